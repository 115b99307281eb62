//! What the kernel alone takes for what a broker must do: the physical limits that CPU figures stand beside.
//!
//! One thread does the bare system calls of a broker over a loopback connection, and its own CPU time counts. On
//! loopback that holds the peer's share of the network stack too, as it does in a broker's figure.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Bytes that each measurement moves.
const MOVED: usize = 1 << 30;
/// Bytes of the file that is sent over and over: it stays in the page cache.
const SENT_FILE: usize = 64 << 20;
/// Bytes of a produced file after which a new one begins: all of it stays below the kernel's dirty limit.
const WRITTEN_FILE: u64 = 256 << 20;
/// Requests of a producer that are out at a time (`max.in.flight.requests.per.connection`).
const IN_FLIGHT: usize = 5;
/// An answer to a produce request.
const ANSWER: [u8; 64] = [0; 64];

/// CPU seconds a gigabyte of answering each byte asked for with `piece` bytes of a file, by `sendfile` alone.
///
/// # Panics
/// Where the machine refuses files or loopback connections.
#[must_use]
pub fn sending_cpu_s_per_gb(piece: usize) -> f64 {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&vec![7; SENT_FILE]).expect("room for it");
    let (server, client) = connection();
    let reader = std::thread::spawn(move || ask(client, piece));
    let cpu = cpu_of(|| send(server, &file, piece));
    reader.join().expect("the reader reads to the end");
    cpu.as_secs_f64() / (MOVED as f64 / 1e9)
}

/// CPU seconds a gigabyte of reading `batch` bytes, writing them to a file and answering, by `read` and `write` alone.
///
/// # Panics
/// Where the machine refuses files or loopback connections.
#[must_use]
pub fn receiving_cpu_s_per_gb(batch: usize) -> f64 {
    let (server, client) = connection();
    let producer = std::thread::spawn(move || offer(client, batch));
    let cpu = cpu_of(|| store(server, batch));
    producer.join().expect("the producer is answered to the end");
    cpu.as_secs_f64() / (MOVED as f64 / 1e9)
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("a bound port")).expect("a listener");
    let (server, _) = listener.accept().expect("the connection just made");
    for stream in [&server, &client] {
        stream.set_nodelay(true).expect("a socket option");
    }
    (server, client)
}

fn cpu_of(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("below a second"))
    };
    let before = now();
    work();
    now() - before
}

fn send(mut stream: TcpStream, file: &File, piece: usize) {
    let mut asked = [0];
    let mut position = 0;
    for _ in 0..MOVED / piece {
        stream.read_exact(&mut asked).expect("a question");
        if position + piece as u64 > SENT_FILE as u64 {
            position = 0;
        }
        let end = position + piece as u64;
        while position < end {
            let left = usize::try_from(end - position).expect("at most a piece");
            rustix::fs::sendfile(&stream, file, Some(&mut position), left).expect("an open connection");
        }
    }
}

fn ask(mut stream: TcpStream, piece: usize) {
    let mut answer = vec![0; piece];
    for _ in 0..MOVED / piece {
        stream.write_all(&[0]).expect("an open connection");
        stream.read_exact(&mut answer).expect("an answer");
    }
}

fn store(mut stream: TcpStream, batch: usize) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let mut bytes = vec![0; batch];
    let mut position = 0;
    for _ in 0..MOVED / batch {
        stream.read_exact(&mut bytes).expect("a batch");
        if position >= WRITTEN_FILE {
            file = tempfile::tempfile().expect("a temporary file");
            position = 0;
        }
        file.write_all_at(&bytes, position).expect("room for it");
        position += batch as u64;
        stream.write_all(&ANSWER).expect("an open connection");
    }
}

fn offer(mut stream: TcpStream, batch: usize) {
    let bytes = vec![7; batch];
    let mut answer = ANSWER;
    for sent in 0..MOVED / batch {
        stream.write_all(&bytes).expect("an open connection");
        if sent >= IN_FLIGHT - 1 {
            stream.read_exact(&mut answer).expect("an answer");
        }
    }
    for _ in 0..IN_FLIGHT - 1 {
        stream.read_exact(&mut answer).expect("an answer");
    }
}
