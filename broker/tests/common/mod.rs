//! A broker in this process and a socket that speaks bytes.

#![allow(dead_code, clippy::unwrap_used)]

use std::time::Duration;

use broker::clock::Clock;
use broker::config::Config;
use broker::start::{self, Running};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker on a directory of its own.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) dir: TempDir,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::on(tempfile::tempdir().unwrap(), settings).await
    }

    pub(crate) async fn on(dir: TempDir, settings: &[(&str, &str)]) -> Self {
        let path = dir.path().to_str().unwrap();
        // Records of tests are of 1970: they must outlive the first look for old ones.
        let mut all =
            vec![("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", path), ("log.retention.ms", "-1")];
        all.extend_from_slice(settings);
        let running = start::start(Config::with(&all).unwrap()).await.unwrap();
        Self { running, dir }
    }

    pub(crate) async fn topic(&self, name: &str) {
        self.running.broker().catalog.ensure(name).await.unwrap();
    }

    pub(crate) async fn connect(&self) -> Raw {
        Raw { stream: TcpStream::connect(self.running.local_addr()).await.unwrap() }
    }

    /// What every raw case ends with: a new connection is served within a second.
    pub(crate) async fn answers(&self) {
        let mut raw = self.connect().await;
        raw.send(&hex("0000000b 0012 0000 00000009 0001 61")).await;
        let answer = timeout(Duration::from_secs(1), raw.frame()).await.expect("answered within 1 s");
        assert_eq!(answer[..6], hex("00000009 0000"));
    }
}

/// A socket.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
}

impl Raw {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// One frame without its length.
    pub(crate) async fn frame(&mut self) -> Vec<u8> {
        let read = async {
            let length = self.stream.read_i32().await.unwrap();
            let mut body = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut body).await.unwrap();
            body
        };
        timeout(PATIENCE, read).await.expect("an answer comes")
    }

    /// One frame without its length; nothing where the connection ends before its end.
    pub(crate) async fn frame_or_end(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let length = self.stream.read_i32().await.ok()?;
            let mut body = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut body).await.ok()?;
            Some(body)
        };
        timeout(PATIENCE, read).await.expect("an answer comes, or the end")
    }

    /// The broker ends this connection within a second without sending a byte.
    pub(crate) async fn closes(&mut self) {
        let mut byte = [0];
        let end =
            timeout(Duration::from_secs(1), self.stream.read(&mut byte)).await.expect("closed within 1 s");
        // Bytes that the broker did not read make the close a reset.
        assert!(matches!(end, Ok(0) | Err(_)), "the broker sent {byte:02x?}");
    }
}

/// Bytes written as hex digits, blanks between them ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    assert!(digits.len().is_multiple_of(2), "whole bytes");
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// A frame: length, then header 1 with client id "a", then the body.
pub(crate) fn request(key: i16, version: i16, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend(key.to_be_bytes());
    rest.extend(version.to_be_bytes());
    rest.extend(correlation.to_be_bytes());
    rest.extend(hex("0001 61"));
    rest.extend(body);
    framed(&rest)
}

/// A flexible frame: as [`request`], with an empty tag section behind the header.
pub(crate) fn flexible(key: i16, version: i16, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut tagged = vec![0];
    tagged.extend(body);
    request(key, version, correlation, &tagged)
}

/// Bytes behind their length.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = i32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(bytes);
    frame
}

/// Measures how long something takes.
pub(crate) struct Stopwatch(Clock);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Clock::start())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.mono().0)
    }
}
