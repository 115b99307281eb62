//! What the demo prints: progress bars, and the report at the end.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::DemoError;
use super::ledger::{Ledger, Tally};
use super::server::Server;
use super::workers::Run;

/// A progress bar on stderr; hidden where that is no terminal.
pub fn bar(name: &'static str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64).with_prefix(name);
    let style = "{prefix:5} {wide_bar} {human_pos}/{human_len} records  {per_sec}  {elapsed}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The end of a run.
#[derive(Debug)]
pub struct Report {
    records: usize,
    keys: usize,
    tally: Tally,
    run: Run,
    broker_bytes: Option<u64>,
    disk_bytes: u64,
}

impl Report {
    /// Of a run that is over.
    pub fn new(ledger: &Ledger, run: Run, server: &Server) -> Self {
        Self {
            records: ledger.len(),
            keys: ledger.keys(),
            tally: ledger.tally(),
            run,
            broker_bytes: server.resident_bytes(),
            disk_bytes: server.disk_bytes(),
        }
    }

    fn lost(&self) -> usize {
        self.records - self.tally.done
    }

    /// Whether the promise was kept.
    ///
    /// # Errors
    /// [`DemoError::Broken`] if it was not.
    pub fn verdict(&self) -> Result<(), DemoError> {
        match (self.tally.violations, self.lost()) {
            (0, 0) => Ok(()),
            (violations, lost) => Err(DemoError::Broken { violations, lost }),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, tally, .. } = self;
        let times = run.serial.as_secs_f64() / run.elapsed.as_secs_f64().max(1e-9);
        let rate = self.records as f64 / run.elapsed.as_secs_f64().max(1e-9);
        writeln!(
            f,
            "records          {} processed, of {} aircraft, in one partition",
            grouped(tally.done),
            grouped(self.keys)
        )?;
        writeln!(f, "time             {} ({} records/s)", length(run.elapsed), grouped(rate as usize))?;
        writeln!(f, "one by one       {}: {times:.0} times as long", length(run.serial))?;
        writeln!(
            f,
            "redeliveries     {} (work that was cut off, or whose acknowledgement was)",
            run.redeliveries
        )?;
        writeln!(f, "order violations {}", tally.violations)?;
        writeln!(f, "lost             {}", self.lost())?;
        if let Some(bytes) = self.broker_bytes {
            writeln!(
                f,
                "broker           {} MiB resident, {} MiB on disk",
                bytes >> 20,
                self.disk_bytes >> 20
            )?;
        }
        writeln!(f, "workers")?;
        let mut workers: Vec<_> = run.workers.iter().collect();
        workers.sort_by_key(|(name, _)| (name.len(), (*name).clone()));
        let sum: u64 = workers.iter().map(|(_, (done, _))| done).sum();
        for (name, (done, ended)) in workers {
            let share = 100.0 * *done as f64 / sum.max(1) as f64;
            writeln!(f, "  {name:<14} {:>8} records {share:>5.1} %  {ended}", grouped(*done as usize))?;
        }
        Ok(())
    }
}

/// 336776 as 336,776.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time for people.
fn length(length: Duration) -> String {
    let seconds = length.as_secs_f64();
    if seconds < 90.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {:02.0} s", (seconds / 60.0) as u64, seconds % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(336_776), "336,776");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }

    #[test]
    fn lengths_are_for_people() {
        assert_eq!(length(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(length(Duration::from_secs(673)), "11 min 13 s");
    }
}
