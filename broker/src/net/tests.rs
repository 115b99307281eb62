use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Config;
use crate::dispatch::PANICKING_CLIENT;
use crate::start::{self, Running};

async fn broker(dir: &tempfile::TempDir) -> Running {
    let path = dir.path().to_str().unwrap();
    let settings = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", path)];
    start::start(Config::with(&settings).unwrap()).await.unwrap()
}

/// ApiVersions v0 or Metadata v1 of all topics, of a client of this name.
fn request(key: i16, version: i16, client: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(7_i32.to_be_bytes());
    bytes.extend(i16::try_from(client.len()).unwrap().to_be_bytes());
    bytes.extend(client.as_bytes());
    bytes.extend(body);
    let mut frame = i32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

async fn answer(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let length = stream.read_i32().await.ok()?;
        let mut body = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut body).await.ok()?;
        Some(body)
    };
    timeout(Duration::from_secs(5), read).await.expect("an answer or the end")
}

#[tokio::test]
async fn b12_a_panic_ends_its_connection_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let running = broker(&dir).await;
    let mut bystander = TcpStream::connect(running.local_addr()).await.unwrap();
    for (key, version, body) in [(18, 0, &[][..]), (3, 1, &[0xff; 4][..]), (19, 2, &[0; 9][..])] {
        let mut hit = TcpStream::connect(running.local_addr()).await.unwrap();
        hit.write_all(&request(key, version, PANICKING_CLIENT, body)).await.unwrap();
        assert_eq!(answer(&mut hit).await, None);
    }
    bystander.write_all(&request(18, 0, "fine", &[])).await.unwrap();
    assert!(answer(&mut bystander).await.is_some());
    running.broker().catalog.ensure("after").await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_further_requests() {
    let dir = tempfile::tempdir().unwrap();
    let running = broker(&dir).await;
    for number in 0..100 {
        running.broker().catalog.ensure(&format!("topic-{number:0>200}")).await.unwrap();
    }
    let before = running.broker().admission.free();
    let mut stream = TcpStream::connect(running.local_addr()).await.unwrap();
    // Each answer has some 25 kB. More requests than the kernel's buffers hold: they stand if the broker does.
    let asked = request(3, 1, "slow", &[0xff; 4]).repeat(2_000_000);
    let sent = timeout(Duration::from_millis(500), stream.write_all(&asked)).await;
    assert!(sent.is_err(), "the broker went on reading");
    let reserved = before - running.broker().admission.free();
    assert!(reserved < 1 << 20, "{reserved} bytes are reserved");
    let mut other = TcpStream::connect(running.local_addr()).await.unwrap();
    other.write_all(&request(18, 0, "fine", &[])).await.unwrap();
    assert!(answer(&mut other).await.is_some());
    drop(stream);
    running.stop().await.unwrap();
}
