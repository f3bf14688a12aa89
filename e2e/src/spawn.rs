//! Starting children that cannot outlive the test process.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

use crate::place;

struct Job {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// Spawns `command` with its outputs piped; the child is killed when the test process ends, even by SIGKILL, where `setpriv` is present.
///
/// The kernel sends that signal when the *thread* that spawned the child ends, so one thread that never ends
/// spawns them all.
pub(crate) fn spawn(command: Command, input: Stdio) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for Job { mut command, reply } in queue {
                _ = reply.send(command.spawn());
            }
        });
        jobs
    });
    let (reply, answer) = mpsc::channel();
    let mut command = under_this_process(command);
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = Job { command, reply };
    spawner.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
    answer.recv().map_err(|_| io::ErrorKind::BrokenPipe)?
}

fn under_this_process(command: Command) -> Command {
    let Some(setpriv) = place::on_path("setpriv") else { return command };
    let mut wrapped = Command::new(setpriv);
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}
