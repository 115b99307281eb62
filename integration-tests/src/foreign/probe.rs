//! Probes: clients in several languages with the same roles, options and event log.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::tool_chain::{Installed, ToolChain, require};
use crate::event_log::{self, Event, What};
use crate::process::{Finished, Process};
use crate::real_time::wall_clock_ns;

/// Libraries that probes are built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// kafka-clients 4.4.
    Java44,
    /// kafka-clients 4.2.
    Java42,
    /// librdkafka, through confluent-kafka-python.
    Librdkafka,
    /// franz-go.
    FranzGo,
    /// kafkajs; has no share consumer.
    KafkaJs,
    /// Our own client, over the key-share API; only works in share groups.
    KeyShare,
}

/// What a probe does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Produces keyed records.
    Produce,
    /// Consumes in an ordinary group.
    Consume,
    /// Works in a share group.
    Share,
    /// Measures how long records take from a producer to a consumer. Java only; has no event log.
    Latency,
}

/// A probe to be started.
#[derive(Clone, Debug)]
pub struct Probe {
    client: Client,
    role: Role,
    member: String,
    options: Vec<(String, String)>,
    installed: Installed,
}

/// A probe that runs, or has run. Dropping it kills it.
#[derive(Debug)]
pub struct RunningProbe {
    process: Process,
    member: String,
    log: PathBuf,
    killed: Option<Event>,
}

impl Client {
    /// The foreign libraries that produce and consume in ordinary groups.
    pub const PLAIN: [Self; 5] = [Self::Java44, Self::Java42, Self::Librdkafka, Self::FranzGo, Self::KafkaJs];

    #[track_caller]
    fn require(self) -> Option<Installed> {
        match self {
            Self::Java44 => require(ToolChain::Java44),
            Self::Java42 => require(ToolChain::Java42),
            Self::Librdkafka => require(ToolChain::Python),
            Self::FranzGo => require(ToolChain::Go),
            Self::KafkaJs => require(ToolChain::Node),
            Self::KeyShare => Some(Installed { dir: programs_of_this_crate() }),
        }
    }

    fn command(self, dir: &Path) -> Command {
        let program = |program: &str| Command::new(dir.join(program));
        match self {
            Self::Java44 | Self::Java42 => {
                let mut java = Command::new("java");
                let class_path = format!("{0}/classes:{0}/libs/*", dir.display());
                java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path]);
                java.arg("sluice.probe.Probe");
                java
            }
            Self::Librdkafka => {
                let mut python = program("venv/bin/python");
                python.arg(dir.join("probe.py"));
                python
            }
            Self::FranzGo => program("probe"),
            Self::KafkaJs => {
                let mut node = Command::new("node");
                node.arg(dir.join("probe.js"));
                node
            }
            Self::KeyShare => program("key_share_probe"),
        }
    }
}

/// Cargo builds this crate's programs into the folder above its tests, where benches stand too.
fn programs_of_this_crate() -> PathBuf {
    let program = std::env::current_exe().expect("a process knows its program");
    let folder = program.parent().expect("a program stands in a folder");
    if folder.ends_with("deps") { folder.parent() } else { Some(folder) }
        .expect("a test stands in target/PROFILE/deps")
        .to_owned()
}

impl Probe {
    /// A probe of `client` named `member`; `None` where the test is to be skipped.
    #[track_caller]
    pub fn require(client: Client, role: Role, member: &str) -> Option<Self> {
        let installed = client.require()?;
        Some(Self { client, role, member: member.to_owned(), options: Vec::new(), installed })
    }

    /// Adds an option of `foreign/README.md`, without its dashes.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((format!("--{name}"), value.to_owned()));
        self
    }

    /// Starts it against `topic` of the broker at `bootstrap`; its log goes to `logs`.
    pub fn spawn(&self, bootstrap: &str, topic: &str, logs: &Path) -> RunningProbe {
        let log = logs.join(format!("{}.events", self.member));
        let mut command = self.client.command(&self.installed.dir);
        command.arg(match self.role {
            Role::Produce => "produce",
            Role::Consume => "consume",
            Role::Share => "share",
            Role::Latency => "latency",
        });
        command
            .args(["--bootstrap", bootstrap, "--topic", topic, "--member", &self.member, "--log"])
            .arg(&log);
        command.args(self.options.iter().flat_map(|(name, value)| [name, value]));
        let process = Process::spawn(&self.member, command);
        RunningProbe { process, member: self.member.clone(), log, killed: None }
    }
}

impl RunningProbe {
    /// Its name in the logs.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// What it has logged up to now, and its violent end where it had one.
    pub fn events(&self) -> Vec<Event> {
        let mut events = event_log::read(&self.log);
        events.extend(self.killed.clone());
        events
    }

    /// Length of its log up to now.
    pub fn logged_bytes(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |found| found.len())
    }

    /// Number of records that it has finished up to now.
    pub fn count(&self, what: What) -> usize {
        event_log::read(&self.log).iter().filter(|event| event.what == what).count()
    }

    /// Asks it to stop in order, and does not wait.
    pub fn ask_to_stop(&mut self) {
        self.process.close_stdin();
    }

    /// Waits at most `limit` for its end, and panics with what it printed unless it ended well.
    #[track_caller]
    pub fn expect_end(&mut self, limit: Duration) {
        let ended = self.process.wait(limit).is_some_and(|status| status.success());
        assert!(
            ended || self.killed.is_some(),
            "{} did not end well within {limit:?}: {}",
            self.member,
            self.process.stderr()
        );
    }

    /// What it printed on standard error up to now.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Ends it at once, as a crash would, and writes that down.
    pub fn kill(&mut self) {
        // Taken before the signal: work of another member that begins after this is no overlap.
        let at_ns = wall_clock_ns();
        self.process.kill();
        let member = self.member.clone();
        self.killed = Some(Event {
            at_ns,
            member,
            what: What::Killed,
            partition: -1,
            offset: -1,
            key: None,
            deliveries: 0,
        });
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.wait(Duration::ZERO).is_none()
    }

    /// Waits at most `limit` for its end and hands out what it printed.
    pub fn finish(self, limit: Duration) -> Finished {
        self.process.finish(limit)
    }
}
