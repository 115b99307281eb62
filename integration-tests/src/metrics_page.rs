//! A broker's page of metrics, read as Prometheus reads it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Where a broker shows its metrics.
#[derive(Clone, Debug)]
pub struct MetricsPage {
    address: String,
}

impl MetricsPage {
    /// A page on a port that is free now, for a broker that is yet to be started.
    #[must_use]
    pub fn on_a_free_port() -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the machine has free ports");
        Self { address: free.local_addr().expect("a bound socket has an address").to_string() }
    }

    /// The line of the broker's configuration that puts it there.
    #[must_use]
    pub fn property(&self) -> String {
        format!("sluice.metrics.listen={}", self.address)
    }

    /// The whole page; `None` where nobody answers.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.contains("sluice_").then_some(page)
    }
}

/// A figure of a share group on a page, 0 where there is none.
#[must_use]
pub fn share_metric(page: &str, name: &str, group: &str) -> f64 {
    let line = format!("sluice_share_{name}{{group=\"{group}\"}} ");
    let value = page.lines().find_map(|text| text.strip_prefix(&line));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}
