//! What happened in a run, line by line: the same seed must give the same lines.

use std::fmt;

use coordinator::time::Mono;

/// Lines kept for printing; older ones are only in the digest.
const LINES_MAX: usize = 200_000;

/// The lines of a run and a digest over all of them.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Vec<String>,
    digest: u64,
}

impl Default for Trace {
    fn default() -> Self {
        // FNV-1a's offset basis.
        Self { lines: Vec::new(), digest: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Trace {
    /// Adds a line.
    pub fn note(&mut self, now: Mono, what: fmt::Arguments<'_>) {
        let line = format!("{:>6}.{:06} {what}", now.0 / 1_000_000, now.0 % 1_000_000);
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        }
    }

    /// Tells two runs apart.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The last lines, for a report.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        self.lines[self.lines.len().saturating_sub(count)..].join("\n")
    }
}
