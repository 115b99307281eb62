//! The demo's broker: this very program as a process of its own, on a temporary directory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::DemoError;

/// A running broker; it is ended when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    directory: PathBuf,
}

impl Server {
    /// Starts `sluice serve` on a free port of 127.0.0.1, or on `listen`.
    ///
    /// # Errors
    /// Where it does not come up.
    pub fn start(directory: &Path, listen: &str) -> Result<Self, DemoError> {
        let program = std::env::current_exe().map_err(DemoError::Io)?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", listen, "--data-dir"])
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(DemoError::Io)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(DemoError::Io)?;
        }
        let Some(address) = line.trim().strip_prefix("sluice ready on ") else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(DemoError::NoBroker);
        };
        Ok(Self { address: address.to_owned(), child, directory: directory.to_owned() })
    }

    /// Its address, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its resident memory in bytes, where the system tells.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Bytes of its data directory.
    pub fn disk_bytes(&self) -> u64 {
        fn sum(directory: &Path) -> u64 {
            let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
            entries
                .flatten()
                .map(|entry| match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => sum(&entry.path()),
                    Ok(metadata) => metadata.len(),
                    Err(_) => 0,
                })
                .sum()
        }
        sum(&self.directory)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
