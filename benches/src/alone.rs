//! Sluice by itself, watched from outside: its metrics, its memory, what it reads.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::wait_until;
use tempfile::TempDir;

/// The page of metrics comes with the broker, not before its ready line.
const PAGE_LIMIT: Duration = Duration::from_secs(10);

/// A broker and its page of metrics.
#[derive(Debug)]
pub struct Alone {
    /// The broker.
    pub broker: BrokerProcess,
    metrics: String,
    _dir: TempDir,
}

impl Alone {
    /// Starts it on free ports and a fresh directory; `properties` are lines of its configuration.
    #[must_use]
    pub fn start(properties: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the machine has free ports");
        let metrics = free.local_addr().expect("a bound socket has an address").to_string();
        drop(free);
        let config = dir.path().join("sluice.properties");
        let lines = format!("sluice.metrics.listen={metrics}\n{properties}\n");
        std::fs::write(&config, lines).expect("a temporary file can be written");
        let arguments = ["--config", config.to_str().expect("temporary paths are UTF-8")];
        let broker = BrokerProcess::start_on(&dir.path().join("data"), &arguments);
        Self { broker, metrics, _dir: dir }
    }

    /// A figure of a share group, 0 where there is none.
    #[must_use]
    pub fn share_metric(&self, name: &str, group: &str) -> f64 {
        let line = format!("sluice_share_{name}{{group=\"{group}\"}} ");
        let page = self.page();
        let value = page.lines().find_map(|text| text.strip_prefix(&line));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
    }

    fn page(&self) -> String {
        let mut page = String::new();
        wait_until(PAGE_LIMIT, || {
            page.clear();
            let Ok(mut stream) = TcpStream::connect(&self.metrics) else { return false };
            let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
            asked.is_ok() && stream.read_to_string(&mut page).is_ok() && page.contains("sluice_")
        });
        page
    }

    /// Bytes that the broker has read from files so far, the page cache's included (`rchar` of `/proc`). What it
    /// receives from sockets does not count there: those are read by `recv`.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.broker.id()))
            .expect("a running process has figures");
        let count = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.and_then(|count| count.parse().ok()).expect("the kernel counts")
    }
}
