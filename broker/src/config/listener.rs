//! Addresses: `HOST:PORT` and Kafka's `PROTOCOL://HOST:PORT`.

use std::fmt;

use super::ConfigError;

/// A host (name or address, without brackets; may be empty) and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name or address; empty: every address of this machine.
    pub host: String,
    /// Port; 0: any free one.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl HostPort {
    /// What to bind: the host, or every address.
    #[must_use]
    pub fn bind_host(&self) -> &str {
        if self.host.is_empty() { "0.0.0.0" } else { &self.host }
    }

    /// Whether this stands for every address, which nobody can connect to.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

/// Reads the one listener of `setting`.
pub(super) fn one(text: &str, setting: &str) -> Result<HostPort, ConfigError> {
    let text = text.trim();
    if text.contains(',') {
        return Err(ConfigError::Contradiction(format!(
            "{setting} names several listeners: name one, several are not served"
        )));
    }
    match text.split_once("://") {
        Some((protocol, address)) if protocol.eq_ignore_ascii_case("PLAINTEXT") => {
            host_port(address, setting)
        }
        Some((protocol, _)) => Err(ConfigError::Contradiction(format!(
            "{setting}: {} is not served: use PLAINTEXT://HOST:PORT",
            protocol.escape_debug()
        ))),
        None => host_port(text, setting),
    }
}

/// Reads `HOST:PORT`; IPv6 addresses stand in brackets.
pub(super) fn host_port(text: &str, setting: &str) -> Result<HostPort, ConfigError> {
    let wrong = || {
        ConfigError::Contradiction(format!(
            "{setting}: {} is not HOST:PORT (the port from 0 to 65535, an IPv6 address in brackets)",
            text.escape_debug()
        ))
    };
    let (host, port) = text.trim().rsplit_once(':').ok_or_else(wrong)?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or_else(wrong)?,
        None if host.contains(':') => return Err(wrong()),
        None => host,
    };
    if host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(wrong());
    }
    Ok(HostPort { host: host.to_owned(), port: port.parse().map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let good = |text: &str, host: &str, port: u16| {
            let read = one(text, "listeners").unwrap();
            assert_eq!((read.host.as_str(), read.port), (host, port));
        };
        good("PLAINTEXT://:9092", "", 9092);
        good("plaintext://[::1]:0", "::1", 0);
        good("broker-1.example:9092", "broker-1.example", 9092);
        for bad in ["SSL://h:1", "h", "h:", "h:70000", "::1:9092", "[::1:9092", "a b:1", "h:1,i:2"] {
            assert!(one(bad, "listeners").is_err(), "{bad}");
        }
        assert_eq!(one("[::1]:5", "x").unwrap().to_string(), "[::1]:5");
    }
}
