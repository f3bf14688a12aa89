//! What a process has said, line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::{mpsc, watch};

/// Lines in the order in which they were read, from both streams.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Mutex<Vec<String>>,
    length: watch::Sender<usize>,
}

impl Log {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), length: watch::Sender::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut lines = self.lock();
        lines.push(line);
        self.length.send_replace(lines.len());
    }

    /// Reads `stream` to its end on a thread of its own.
    pub(crate) fn read(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        let log = Arc::clone(self);
        thread::spawn(move || for_each_line(stream, |line| log.push(line)));
    }

    /// Every line so far, from number `since` on.
    pub(crate) fn since(&self, since: usize) -> Vec<String> {
        self.lock().get(since..).unwrap_or_default().to_vec()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn tail(&self, count: usize) -> String {
        let lines = self.lock();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Changes whenever a line comes.
    pub(crate) fn length(&self) -> watch::Receiver<usize> {
        self.length.subscribe()
    }

    /// What `pick` makes of the first line from `from` on that it takes, and the number of the next line.
    pub(crate) fn find<T>(
        &self,
        from: usize,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> Result<(T, usize), usize> {
        let lines = self.lock();
        let mut rest = lines.iter().enumerate().skip(from);
        rest.find_map(|(at, line)| pick(line).map(|found| (found, at + 1))).ok_or(lines.len())
    }
}

/// Hands each line of `stream` over on a thread of its own.
pub(crate) fn pass_on(stream: impl Read + Send + 'static, lines: mpsc::UnboundedSender<String>) {
    thread::spawn(move || for_each_line(stream, |line| _ = lines.send(line)));
}

fn for_each_line(stream: impl Read, mut take: impl FnMut(String)) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(stream.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        take(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        line.clear();
    }
}
