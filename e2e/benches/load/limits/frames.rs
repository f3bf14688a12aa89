//! What it costs to send a frame of 200 bytes to each of many sockets: written ahead, one write to a socket.
//!
//! This program started again is the one that sends, so that its processor time is told apart.

use e2e::process::Process;
use std::io::{BufRead as _, Write as _};
use std::process::Command;
use std::time::Duration;
use std::{env, io, iter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::meter;
use crate::workloads::Size;
use crate::workloads::broadcast::{FIFTY, Hall, ONE};

/// What this program is started with to be the one that sends.
pub(crate) const ARGUMENT: &str = "--broadcaster";
const PAYLOAD: u8 = 200;
const HEAD: usize = 4;
const FRAME: usize = HEAD + PAYLOAD as usize;
const SECONDS: usize = 2;
/// Frames, flat out, to all sockets.
const FLAT_OUT: usize = 250_000;

/// Processor time of a frame in each of the halls, at their pace and flat out.
pub(super) async fn measure(size: Size) -> Vec<(String, &'static str, f64)> {
    let mut all = Vec::new();
    for (name, hall) in [("one", ONE), ("50", FIFTY)] {
        let hall = hall.sized(size);
        let rounds = FLAT_OUT / size.of(1, 1_000) / hall.members;
        let paced = hall.per_second() * size.of(SECONDS, 1);
        all.push((format!("frame_{name}_paced"), "us/frame", sent(&hall, paced, hall.every()).await));
        all.push((format!("frame_{name}_full"), "us/frame", sent(&hall, rounds, Duration::ZERO).await));
    }
    all
}

/// Microseconds for each frame of so many messages, each to one room after the other.
async fn sent(hall: &Hall, messages: usize, every: Duration) -> f64 {
    let mut command = Command::new(env::current_exe().expect("the system names the running program"));
    command.arg(ARGUMENT);
    command.args([hall.rooms, hall.members].map(|number| number.to_string()));
    let (process, mut input, mut output) = Process::converse("broadcaster", command);
    let port: u16 = output.recv().await.and_then(|line| line.parse().ok()).expect("a port");
    let mut readers = Vec::new();
    for _ in 0..hall.rooms * hall.members {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a listening broadcaster");
        readers.push(stream);
    }
    assert_eq!(output.recv().await.as_deref(), Some("ready"), "it has all of them");
    let begin = meter::of_process(process.pid());
    writeln!(input, "{messages} {}", every.as_micros()).expect("it listens");
    let reading = readers.into_iter().enumerate().map(|(at, stream)| {
        let room = at / hall.members;
        let messages = messages / hall.rooms + usize::from(room < messages % hall.rooms);
        tokio::task::spawn_local(read(stream, messages * FRAME))
    });
    for each in reading.collect::<Vec<_>>() {
        each.await.expect("all frames come");
    }
    let used = meter::of_process(process.pid()) - begin;
    used.as_secs_f64() * 1e6 / f64::from(u32::try_from(messages * hall.members).expect("a few"))
}

async fn read(mut stream: TcpStream, mut bytes: usize) {
    let mut chunk = [0; 4096];
    while bytes > 0 {
        let read = stream.read(&mut chunk).await.expect("an open connection");
        assert!(read > 0, "{bytes} bytes are missing");
        bytes -= read;
    }
}

/// The one that sends: takes rooms and members, then messages and the time between two of them.
pub(crate) async fn broadcaster(arguments: &[String]) {
    let [rooms, members] = numbers(arguments.iter().map(String::as_str));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    say(&listener.local_addr().expect("a bound port").port().to_string());
    let mut sockets = Vec::with_capacity(rooms * members);
    for _ in 0..rooms * members {
        let (socket, _) = listener.accept().await.expect("a connection");
        socket.set_nodelay(true).expect("a TCP connection");
        sockets.push(socket);
    }
    say("ready");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("an order");
    let [messages, every] = numbers(line.split_whitespace());
    let every = Duration::from_micros(every as u64);
    // A final frame of text, whose length stands in two bytes.
    let frame: Vec<u8> =
        [0x81, 126, 0, PAYLOAD].into_iter().chain(iter::repeat_n(b'x', usize::from(PAYLOAD))).collect();
    let mut due = Instant::now();
    for message in 0..messages {
        if !every.is_zero() {
            sleep_until(due).await;
            due += every;
        }
        let room = message % rooms;
        for socket in &mut sockets[room * members..][..members] {
            socket.write_all(&frame).await.expect("a reader");
        }
    }
    // Until the parent, which has read everything by then, ends this process.
    std::future::pending::<()>().await;
}

fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> [usize; 2] {
    let all: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();
    all.try_into().expect("two numbers")
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn say(line: &str) {
    println!("{line}");
}
