//! A child process: what it says, how it ends, and everything one can do to it.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io, thread};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::log::{self, Log};
use crate::{place, spawn};

const TAIL_LINES: usize = 60;
/// How long the last lines of a process that has ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Where the standard output goes; standard error is always logged.
enum Output {
    Log,
    Lines(mpsc::UnboundedSender<String>),
}

/// A running or ended child. Dropping it kills it, by its own pid.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    /// `None` once it has been reaped and its pid may be another's.
    child: Arc<Mutex<Option<Child>>>,
    log: Arc<Log>,
    ended: watch::Receiver<Option<ExitStatus>>,
    reaper: Option<thread::JoinHandle<()>>,
}

/// Processor time and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// User and system time since it started, in clock ticks made microseconds.
    pub cpu: Duration,
    /// Resident set, in bytes.
    pub resident_bytes: u64,
}

impl Process {
    /// Starts `command` with its output logged under `name`.
    pub fn start(name: &str, command: Command) -> Self {
        Self::launch(name, command, Stdio::null(), Output::Log).0
    }

    /// Starts `command` for a conversation: its standard input, and its standard output line by line.
    pub fn converse(name: &str, command: Command) -> (Self, ChildStdin, mpsc::UnboundedReceiver<String>) {
        let (lines, output) = mpsc::unbounded_channel();
        let (process, input) = Self::launch(name, command, Stdio::piped(), Output::Lines(lines));
        (process, input.expect("standard input was asked for"), output)
    }

    fn launch(name: &str, command: Command, input: Stdio, output: Output) -> (Self, Option<ChildStdin>) {
        let program = command.get_program().to_owned();
        let mut child = match spawn::spawn(command, input) {
            Ok(child) => child,
            Err(error) => panic!("{name}: {} cannot be started: {error}", program.display()),
        };
        let log = Log::new();
        let pid = Pid::from_child(&child);
        log.read(child.stderr.take().expect("standard error is piped"));
        let stdout = child.stdout.take().expect("standard output is piped");
        match output {
            Output::Log => log.read(stdout),
            Output::Lines(lines) => log::pass_on(stdout, lines),
        }
        let input = child.stdin.take();
        let child = Arc::new(Mutex::new(Some(child)));
        let (end, ended) = watch::channel(None);
        let waiting = Arc::clone(&child);
        let reaper = thread::spawn(move || reap(pid, &waiting, &end));
        (Self { name: name.to_owned(), pid, child, log, ended, reaper: Some(reaper) }, input)
    }

    /// Its name in logs and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn signal(&self, signal: Signal) {
        let child = lock(&self.child);
        if child.is_some() {
            kill_process(self.pid, signal).expect("an own child can be signalled");
        }
    }

    /// SIGTERM: asks it to end.
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGHUP: asks it to reload.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// SIGSTOP: freezes it, all of its threads.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        until_frozen(self.pid);
    }

    /// SIGCONT: lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, and waits until the system has taken it away.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.exit(Duration::from_secs(10)).await;
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Waits for its end.
    pub async fn exit(&self, within: Duration) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = tokio::time::timeout(within, ended.wait_for(Option::is_some)).await;
        match status {
            Ok(Ok(status)) => status.expect("waited for it"),
            _ => panic!("{} has not ended within {within:?}:\n{}", self.name, self.log.tail(TAIL_LINES)),
        }
    }

    /// Every line that it said so far.
    pub fn log_lines(&self) -> Vec<String> {
        self.log.since(0)
    }

    /// How many lines it said so far: where a later [`Self::line`] may begin.
    pub fn log_length(&self) -> usize {
        self.log.len()
    }

    /// Waits for a line that `pick` takes, beginning with line `since`; `what` it is goes into the panic if the
    /// line has not come in time, or cannot any more because the process has ended.
    pub async fn line<T>(
        &self,
        what: &str,
        since: usize,
        within: Duration,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> T {
        let mut length = self.log.length();
        let mut ended = self.ended.clone();
        let mut deadline = Instant::now() + within;
        let mut from = since;
        let mut is_over = false;
        loop {
            length.borrow_and_update();
            match self.log.find(from, &mut pick) {
                Ok((found, _)) => return found,
                Err(next) => from = next.max(since),
            }
            tokio::select! {
                _ = length.changed() => {}
                _ = ended.wait_for(Option::is_some), if !is_over => {
                    is_over = true;
                    deadline = deadline.min(Instant::now() + LAST_WORDS);
                }
                () = sleep_until(deadline) => {
                    let state = self.exit_status().map_or("it runs".to_owned(), |status| status.to_string());
                    panic!("{}: no {what} ({state}):\n{}", self.name, self.log.tail(TAIL_LINES));
                }
            }
        }
    }

    /// Its processor time and memory so far.
    pub fn usage(&self) -> Usage {
        read_usage(self.pid()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            let folder = place::logs();
            let kept = fs::create_dir_all(&folder).and_then(|()| {
                fs::write(folder.join(format!("{}.log", self.name)), self.log_lines().join("\n"))
            });
            // A log that cannot be kept must not turn a failed test into an abort.
            _ = kept;
        }
        if self.exit_status().is_none() {
            _ = lock(&self.child).as_ref().map(|_| kill_process(self.pid, Signal::KILL));
        }
        if let Some(reaper) = self.reaper.take() {
            _ = reaper.join();
        }
    }
}

fn lock(child: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the child has ended, leaving it for the system to remember, and only then, under the lock that
/// every signal is sent under, lets its pid go.
fn reap(pid: Pid, child: &Mutex<Option<Child>>, end: &watch::Sender<Option<ExitStatus>>) {
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    let mut child = lock(child);
    let status = child.as_mut().and_then(|child| child.wait().ok());
    *child = None;
    end.send_replace(status);
}

fn read_usage(pid: i32) -> io::Result<Usage> {
    let missing = || io::Error::other("not a line of /proc");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name stands in parentheses and may hold anything; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or_else(missing)?.1.split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or_else(missing)?;
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().map_err(|_| missing())?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Usage { cpu: Duration::from_micros(ticks * 1_000_000 / per_second), resident_bytes: kib * 1024 })
}

/// Returns once no thread of the process runs any more: a signal to stop reaches those on other processors a moment
/// later, and until then they answer.
pub(crate) fn until_frozen(pid: Pid) {
    let give_up = std::time::Instant::now() + Duration::from_secs(5);
    let runs =
        |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 't', 'Z', 'X']));
    while std::time::Instant::now() < give_up {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return };
        let mut stats =
            threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        if !stats.any(|stat| runs(&stat)) {
            return;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("shell", command)
    }

    #[tokio::test]
    async fn lines_and_the_end_are_waited_for() {
        let process = shell("echo one; echo two >&2; exit 3");
        let taken = |line: &str| (line == "two").then_some(2);
        assert_eq!(process.line("two", 0, Duration::from_secs(10), taken).await, 2);
        assert_eq!(process.exit(Duration::from_secs(10)).await.code(), Some(3));
        process.term();
    }

    #[tokio::test]
    #[should_panic(expected = "no such line")]
    async fn a_line_that_cannot_come_any_more_is_not_waited_for() {
        let process = shell("echo one");
        process.line("such line", 0, Duration::from_secs(600), |_| None::<()>).await;
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone_also_when_it_was_paused() {
        let process = shell("echo ready; exec sleep 600");
        process.line("ready", 0, Duration::from_secs(10), |line| (line == "ready").then_some(())).await;
        let folder = format!("/proc/{}", process.pid());
        assert!(process.usage().resident_bytes > 0);
        process.pause();
        drop(process);
        assert!(!std::path::Path::new(&folder).exists());
    }
}
