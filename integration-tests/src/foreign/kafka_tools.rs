//! Apache Kafka's command-line tools, as users run them.

use std::process::Command;
use std::time::Duration;

use super::tool_chain::{Installed, ToolChain, require, sources};
use crate::process::{Finished, Process, run};

/// A tool is a JVM: a second or two to start, more on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// The tools, set up.
#[derive(Clone, Debug)]
pub struct KafkaTools {
    installed: Installed,
}

impl KafkaTools {
    /// The tools, or `None` where the test is to be skipped.
    #[track_caller]
    pub fn require() -> Option<Self> {
        require(ToolChain::KafkaTools).map(|installed| Self { installed })
    }

    /// Runs `tool` (without `kafka-` and `.sh`) against a broker to its end.
    pub fn run(&self, tool: &str, bootstrap: &str, arguments: &[&str]) -> Finished {
        self.run_with_input(tool, bootstrap, arguments, "")
    }

    /// As [`Self::run`], with text on its standard input.
    pub fn run_with_input(&self, tool: &str, bootstrap: &str, arguments: &[&str], input: &str) -> Finished {
        let mut command = self.command(tool, arguments);
        command.args(["--bootstrap-server", bootstrap]);
        run(tool, command, input.as_bytes(), RUN_LIMIT)
    }

    /// Runs a tool that talks to no broker.
    pub fn run_offline(&self, tool: &str, arguments: &[&str]) -> Finished {
        run(tool, self.command(tool, arguments), b"", RUN_LIMIT)
    }

    /// Starts a tool that runs until it is stopped.
    pub fn spawn(&self, tool: &str, bootstrap: &str, arguments: &[&str]) -> Process {
        let mut command = self.command(tool, arguments);
        command.args(["--bootstrap-server", bootstrap]);
        Process::spawn(tool, command)
    }

    /// The command of a tool or of `serve`, ready for more arguments.
    pub(super) fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(sources().join("kafka"));
        command.env("KAFKA_TOOLS_LIBS", self.installed.dir.join("libs")).arg(tool).args(arguments);
        command
    }
}
