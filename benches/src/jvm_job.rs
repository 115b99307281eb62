//! Jobs of the Java program of the makespan bench (`integration-tests/foreign/makespan`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use integration_tests::event_log::{self, Event};
use integration_tests::foreign::{Installed, ToolChain, require};
use integration_tests::process::Process;

/// A JVM with 64 consumers, on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Writing 200,000 lines.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// A running job. Dropping it kills it.
#[derive(Debug)]
pub struct JvmJob {
    process: Process,
    log: PathBuf,
}

/// The program, set up; `None` where Java or Maven is missing.
#[must_use]
pub fn program() -> Option<Installed> {
    require(ToolChain::Makespan)
}

impl JvmJob {
    /// Starts it with a role and options, and waits until its workers are there.
    #[must_use]
    pub fn start(installed: &Installed, role: &str, options: &[(&str, &str)], log: &Path) -> Self {
        let mut java = Command::new("java");
        let dir = installed.dir.display();
        // The first of two classes of a name counts.
        let class_path = match role {
            "parallel" => format!("{dir}/classes:{dir}/libs-parallel/*:{dir}/libs/*"),
            _ => format!("{dir}/classes:{dir}/libs/*"),
        };
        java.args(["-Xmx1g", "-XX:+UseSerialGC", "-cp", &class_path, "sluice.makespan.Makespan", role]);
        for (name, value) in options {
            java.arg(format!("--{name}")).arg(value);
        }
        java.arg("--log").arg(log);
        let process = Process::spawn(role, java);
        let ready = process.wait_for_line(READY_LIMIT, |line| line == "ready");
        assert!(ready.is_some(), "{role} is not ready: {}", process.stderr());
        Self { process, log: log.to_owned() }
    }

    /// Waits at most `limit` until every record is worked off, and hands out what the workers wrote down: all of it, or
    /// what they did in that time.
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Vec<Event> {
        let _ = self.process.wait_for_line(limit, |line| line == "done");
        self.process.close_stdin();
        let written = self.process.wait_for_line(WRITE_LIMIT, |line| line == "written");
        assert!(written.is_some(), "a job wrote no log: {}", self.process.stderr());
        event_log::read(&self.log)
    }
}
