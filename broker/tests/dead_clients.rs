//! What a client waited for goes with the client. Counts the files of this process, so it is alone in it.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Server, Stopwatch, flexible, hex};

#[tokio::test]
async fn r01_waiting_fetches_of_dead_clients_go_with_them() {
    let server = Server::start().await;
    server.topic("empty").await;
    let mut fetch = hex("ffffffff 0000ea60 00000001 7fffffff 00 00000000 ffffffff 02");
    fetch.extend(hex(
        "06 656d707479 02 00000000 ffffffff 0000000000000000 ffffffff ffffffffffffffff 00100000 00 00",
    ));
    fetch.extend(hex("01 01 00"));
    let before = open_files();
    let free = server.running.broker().admission.free();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut raw = server.connect().await;
        raw.send(&flexible(1, 12, 1, &fetch)).await;
        clients.push(raw);
    }
    // Both ends of each connection.
    until(|| open_files() >= before + 400).await;
    drop(clients);
    until(|| open_files() <= before + 5 && server.running.broker().admission.free() == free).await;
    server.answers().await;
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn until(mut condition: impl FnMut() -> bool) {
    let begun = Stopwatch::start();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(2), "not within 2 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
