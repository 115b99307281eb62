//! What strangers send, and that it harms nobody else.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use records::batch::{BatchBuilder, TimestampType};
use records::compression::Codec;
use records::ids::Offset;

use tokio::io::AsyncReadExt;

use common::{Server, Stopwatch, flexible, framed, hex, request};

#[tokio::test]
async fn b01_lengths_are_checked_before_anything_is_allocated() {
    let server = Server::with(&[("socket.request.max.bytes", "1000000")]).await;
    let mut bystander = server.connect().await;
    for length in ["ffffffff", "7fffffff", "00000000", "80000000", "000f4241"] {
        let mut raw = server.connect().await;
        raw.send(&hex(length)).await;
        raw.closes().await;
    }
    bystander.send(&request(18, 0, 1, &[])).await;
    bystander.frame().await;
    server.answers().await;
}

#[tokio::test]
async fn b02_counts_beyond_the_bytes_close() {
    let server = Server::start().await;
    let bodies = [
        request(3, 1, 1, &hex("7fffffff")),
        request(3, 1, 1, &hex("000f4240 0000 0000")),
        framed(&hex("0003 000c 00000001 0001 61 8080808008")),
        request(11, 2, 1, &hex("0001 67 00001770 00001770 0000 0001 63 7fffffff")),
    ];
    for bytes in bodies {
        let mut raw = server.connect().await;
        raw.send(&bytes).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn b03_other_protocols_close_at_once() {
    let server = Server::start().await;
    for bytes in
        [hex("16030100c8010000c40303"), b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"SSH-2.0-x\r\n".to_vec()]
    {
        let mut raw = server.connect().await;
        raw.send(&bytes).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn b04_cut_bodies_close_and_trailing_bytes_do_not() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    raw.send(&request(3, 1, 1, &hex("00000001 0005 6162"))).await;
    raw.closes().await;
    let whole = hex("0003 000c 00000007 0001 61 00 02 00000000000000000000000000000000 03 7a7a 00 00 00 00");
    for length in 1..whole.len() {
        let mut raw = server.connect().await;
        raw.send(&framed(&whole[..length])).await;
        raw.closes().await;
    }
    let mut raw = server.connect().await;
    let mut trailing = whole.clone();
    trailing.extend(b"more");
    raw.send(&framed(&trailing)).await;
    assert_eq!(raw.frame().await[..4], hex("00000007"));
    server.answers().await;
}

#[tokio::test]
async fn b07_slow_writers_are_closed_and_disturb_nobody() {
    let server = Server::with(&[("connections.max.idle.ms", "700")]).await;
    let mut stalled = Vec::new();
    for _ in 0..200 {
        let mut raw = server.connect().await;
        raw.send(&hex("000000")).await;
        stalled.push(raw);
    }
    let mut half = server.connect().await;
    half.send(&hex("05f5e100 0000 0009 00000001")).await;
    let begun = Stopwatch::start();
    server.answers().await;
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_millis(800)).await;
    for raw in &mut stalled {
        raw.closes().await;
    }
    half.closes().await;
}

#[tokio::test]
async fn b07_lengths_that_are_never_filled_take_no_memory_from_others() {
    let server = Server::with(&[("queued.max.request.bytes", "110000000")]).await;
    let free = server.running.broker().admission.free();
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut raw = server.connect().await;
        // Metadata v1, 90 MB long by its own word, and nothing behind its header.
        raw.send(&hex("055d4a80 0003 0001 00000001 0001 61")).await;
        stalled.push(raw);
    }
    let mut good = server.connect().await;
    for correlation in 0..20 {
        let watch = Stopwatch::start();
        good.send(&request(3, 1, correlation, &hex("ffffffff"))).await;
        good.frame().await;
        assert!(watch.elapsed() < Duration::from_secs(1), "waited for memory that nobody uses");
    }
    let taken = free - server.running.broker().admission.free();
    assert!(taken < 1 << 20, "{taken} bytes are reserved for bytes that never came");
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn b08_slow_readers_are_bounded_and_closed() {
    let server = Server::with(&[("connections.max.idle.ms", "1500")]).await;
    server.topic("big").await;
    fill(&server).await;
    let before = resident_bytes();
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut raw = server.connect().await;
        for correlation in 0..4 {
            raw.send(&fetch_all(correlation)).await;
        }
        slow.push(raw);
    }
    let begun = Stopwatch::start();
    server.answers().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "others are served: {:?}", begun.elapsed());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for answers that nobody reads");
    tokio::time::sleep(Duration::from_secs(3)).await;
    for raw in &mut slow {
        let mut taken = Vec::new();
        let end = raw.stream.read_to_end(&mut taken);
        // A reset or an end: either way the connection is closed, long before its four answers were sent.
        let _ = tokio::time::timeout(Duration::from_secs(5), end).await.expect("closed by the idle limit");
        assert!(taken.len() < 100 << 20, "{} bytes were sent to one who does not read", taken.len());
    }
    server.answers().await;
}

/// 50 MiB in topic "big", in batches of 1 MB.
async fn fill(server: &Server) {
    let value = vec![7; 1_000_000];
    let mut raw = server.connect().await;
    for correlation in 0..50 {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        batch.append(0, None, Some(&value), &[]);
        let batch = batch.build(Offset(0), -1);
        // Produce v3: no transactional id, acks 1, timeout, one topic with one partition.
        let mut body = hex("ffff 0001 00000bb8 00000001 0003 626967 00000001 00000000");
        body.extend(i32::try_from(batch.len()).unwrap().to_be_bytes());
        body.extend(&batch);
        raw.send(&request(0, 3, correlation, &body)).await;
        raw.frame().await;
    }
}

/// Fetch v4 of topic "big" from the start, up to 50 MiB.
fn fetch_all(correlation: i32) -> Vec<u8> {
    let body = hex(
        "ffffffff 00000064 00000001 03200000 00 00000001 0003 626967 00000001 00000000 0000000000000000 03200000",
    );
    request(1, 4, correlation, &body)
}

#[tokio::test]
async fn b09_connections_come_and_go_and_wait_for_their_turn() {
    let server = Server::with(&[("max.connections", "5")]).await;
    for _ in 0..500 {
        drop(server.connect().await);
    }
    server.answers().await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(server.connect().await);
        held.last_mut().unwrap().send(&request(18, 0, 1, &[])).await;
        held.last_mut().unwrap().frame().await;
    }
    let mut waiting = server.connect().await;
    waiting.send(&request(18, 0, 2, &[])).await;
    let early = tokio::time::timeout(Duration::from_millis(200), waiting.frame()).await;
    assert!(early.is_err(), "served beyond max.connections");
    held.pop();
    assert_eq!(waiting.frame().await[..4], hex("00000002"));
}

#[tokio::test]
async fn b11_names_that_would_be_paths() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    for name in ["../x", "a/b", "a\0b", "\u{1b}[31m", "."] {
        let mut body = vec![2];
        body.extend([0; 16]);
        body.push(u8::try_from(name.len() + 1).unwrap());
        body.extend(name.as_bytes());
        body.extend(hex("00 01 00 00"));
        raw.send(&flexible(3, 12, 1, &body)).await;
        let answer = raw.frame().await;
        assert!(answer.windows(2).any(|pair| pair == hex("0011")), "{name:?}: {answer:02x?}");
    }
    assert_eq!(server.running.broker().catalog.image().topics().len(), 0);
    server.answers().await;
}
