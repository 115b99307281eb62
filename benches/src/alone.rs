//! Sluice by itself, watched from outside: its metrics, its memory, what it reads.

use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::metrics_page::{MetricsPage, share_metric};
use integration_tests::real_time::wait_until;
use tempfile::TempDir;

/// The page of metrics comes with the broker, not before its ready line.
const PAGE_LIMIT: Duration = Duration::from_secs(10);

/// A broker and its page of metrics.
#[derive(Debug)]
pub struct Alone {
    /// The broker.
    pub broker: BrokerProcess,
    metrics: MetricsPage,
    _dir: TempDir,
}

impl Alone {
    /// Starts it on free ports and a fresh directory; `properties` are lines of its configuration.
    #[must_use]
    pub fn start(properties: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let metrics = MetricsPage::on_a_free_port();
        let config = dir.path().join("sluice.properties");
        let lines = format!("{}\n{properties}\n", metrics.property());
        std::fs::write(&config, lines).expect("a temporary file can be written");
        let arguments = ["--config", config.to_str().expect("temporary paths are UTF-8")];
        let broker = BrokerProcess::start_on(&dir.path().join("data"), &arguments);
        Self { broker, metrics, _dir: dir }
    }

    /// A figure of a share group, 0 where there is none.
    #[must_use]
    pub fn share_metric(&self, name: &str, group: &str) -> f64 {
        share_metric(&self.page(), name, group)
    }

    fn page(&self) -> String {
        let mut page = None;
        wait_until(PAGE_LIMIT, || {
            page = self.metrics.read();
            page.is_some()
        });
        page.unwrap_or_default()
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
