//! Many connections that send garbage leave the broker answering, with flat memory.
//!
//! A few seconds in the ordinary run; `make test-garbage` makes it a minute (`SLUICE_GARBAGE_SECONDS`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::{Deadline, Stopwatch, pause};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections that send garbage at once.
const CONNECTIONS: usize = 1_000;

/// Threads that serve them.
const THREADS: usize = 8;

/// What resident memory may differ by.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// ApiVersions v0 with correlation id 9 and client id "a".
const API_VERSIONS: [u8; 15] = [0, 0, 0, 11, 0, 18, 0, 0, 0, 0, 0, 9, 0, 1, b'a'];

#[test]
fn a_thousand_garbage_connections_harm_nobody() {
    raise_file_limit();
    let seconds =
        std::env::var("SLUICE_GARBAGE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut broker = BrokerProcess::start();
    let address = broker.bootstrap().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    // The first two seconds belong to the warm-up: buffers and threads come up once.
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (address, stop, sent) = (address.clone(), Arc::clone(&stop), Arc::clone(&sent));
            thread::spawn(move || attack(&address, thread as u64, &stop, &sent))
        })
        .collect();
    pause(Duration::from_secs(2));
    let before = broker.resident_bytes();
    let deadline = Deadline::after(Duration::from_secs(seconds));
    let mut slowest = Duration::ZERO;
    while !deadline.is_over() {
        slowest = slowest.max(ask(&address));
        pause(Duration::from_millis(100));
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("an attacker only writes and reads");
    }
    let after = broker.resident_bytes();
    assert!(broker.is_running(), "the broker ended:\n{}", broker.log());
    ask(&address);
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent > CONNECTIONS as u64, "only {sent} pieces of garbage were sent");
    assert!(
        after < before + GROWTH_BYTES_MAX,
        "resident memory grew from {before} to {after} bytes in {seconds} s"
    );
    assert!(!broker.log().contains("panicked"), "a panic is in the log:\n{}", broker.log());
    println!(
        "{sent} pieces of garbage in {seconds} s; slowest answer {slowest:?}; resident {before} to {after} bytes"
    );
}

#[test]
fn w07_b03_b11_each_refusal_is_one_log_line_without_control_characters() {
    let broker = BrokerProcess::start();
    let frame = |key: i16, version: i16| {
        let body = [&key.to_be_bytes()[..], &version.to_be_bytes(), &[0; 40]].concat();
        [&[0, 0, 0, 44][..], &body].concat()
    };
    let cases = [
        (frame(0, 14), "key 0 version 14 "),
        (frame(1, 3), "key 1 version 3 "),
        (frame(52, 0), "key 52 version 0 "),
        (frame(9999, 5), "key 9999 version 5 "),
        (frame(-1, 0), "key -1 version 0 "),
        (b"\x16\x03\x01\0\xc8\x01\0\0\xc4\x03\x03".to_vec(), "TLS"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "HTTP"),
        (b"SSH-2.0-\x1b[2J\r\n".to_vec(), "SSH"),
    ];
    for (bytes, words) in cases {
        let mut stream = TcpStream::connect(broker.bootstrap()).expect("the broker accepts");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket takes a timeout");
        stream.write_all(&bytes).expect("the broker reads");
        let read = stream.read(&mut [0]);
        assert!(!matches!(read, Ok(1)), "closed without an answer: {words}");
        let lines = |log: &str| log.lines().filter(|line| line.contains(words)).count();
        let deadline = Deadline::after(Duration::from_secs(5));
        while lines(&broker.log()) == 0 && !deadline.is_over() {
            pause(Duration::from_millis(10));
        }
        assert_eq!(lines(&broker.log()), 1, "one line that names {words}:\n{}", broker.log());
    }
    // A transactional id is a name that the log repeats.
    let name = b"\x1b[2J\x1b]0;x\x07\nforged line";
    let mut body = vec![0, 22, 0, 0, 0, 0, 0, 1, 0, 1, b'a', 0, u8::try_from(name.len()).expect("short")];
    body.extend(name);
    body.extend([0, 0, 0, 9]);
    let mut stream = TcpStream::connect(broker.bootstrap()).expect("the broker accepts");
    stream
        .write_all(&[&[0, 0, 0, u8::try_from(body.len()).expect("short")], &body[..]].concat())
        .expect("it reads");
    let mut start = [0; 14];
    stream.read_exact(&mut start).expect("the broker answers");
    assert_eq!(start[12..], [0, 53]);
    let log = broker.log();
    assert!(!log.chars().any(|one| one.is_control() && one != '\n'), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("forged")), "{log}");
    ask(broker.bootstrap());
}

/// A good client's request, on a connection of its own.
fn ask(address: &str) -> Duration {
    let watch = Stopwatch::start();
    let mut stream = TcpStream::connect(address).expect("the broker accepts");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket takes a timeout");
    stream.write_all(&API_VERSIONS).expect("the broker reads");
    let mut start = [0; 10];
    stream.read_exact(&mut start).expect("the broker answers within 5 s");
    assert_eq!(start[4..], [0, 0, 0, 9, 0, 0], "correlation id and error code");
    watch.elapsed()
}

/// Keeps its part of the connections busy with garbage; a connection that is closed is opened again.
fn attack(address: &str, seed: u64, stop: &AtomicBool, sent: &AtomicU64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    let mut connections: Vec<Option<TcpStream>> = (0..CONNECTIONS / THREADS).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for slot in &mut connections {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let stream = match slot {
                Some(stream) => stream,
                None => match TcpStream::connect(address) {
                    Ok(stream) => {
                        let _ = stream.set_nonblocking(true);
                        slot.insert(stream)
                    }
                    Err(_) => continue,
                },
            };
            let mut answer = [0; 4_096];
            let closed = matches!(stream.read(&mut answer), Ok(0));
            if closed || stream.write(&garbage(&mut random)).is_err() {
                *slot = None;
            }
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Noise, frames of noise, and real headers in front of noise.
fn garbage(random: &mut Random) -> Vec<u8> {
    let length = (random.next() % 600) as usize;
    let mut noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    match random.next() % 4 {
        0 => noise,
        1 => {
            let mut frame = (length as u32).to_be_bytes().to_vec();
            frame.append(&mut noise);
            frame
        }
        2 => {
            // A served API and version, then noise for a body, the length true.
            let key = (random.next() % 93) as i16;
            let version = (random.next() % 14) as i16;
            let mut body = [key.to_be_bytes(), version.to_be_bytes()].concat();
            body.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff]);
            body.append(&mut noise);
            let mut frame = (body.len() as u32).to_be_bytes().to_vec();
            frame.append(&mut body);
            frame
        }
        _ => {
            // A length that is never filled.
            let mut frame = ((random.next() % (200 << 20)) as u32).to_be_bytes().to_vec();
            frame.extend_from_slice(&noise[..length.min(64)]);
            frame
        }
    }
}

/// Xorshift: the same garbage in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A thousand sockets here and a thousand in the broker, which inherits the limit.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
