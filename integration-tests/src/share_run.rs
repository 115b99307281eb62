//! One run of a share group of foreign clients: records come in, members come and go, the order checker judges.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::event_log::{Event, What};
use crate::foreign::{Client, Probe, Role, RunningProbe};
use crate::order_checker::{ProducedRecord, Report, check, explain};
use crate::real_time::{Deadline, pause, wait_until};

/// A member that is told to stop ends its work, settles and leaves; a JVM on a busy machine takes its time.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How often long logs are read.
const LOOK_SLOWLY: Duration = Duration::from_secs(1);

/// How many violations are told with all their events.
const EXPLAINED_MAX: usize = 5;

/// Options that all members of a run share, as `foreign/README.md` names them.
pub type Options<'a> = &'a [(&'a str, &'a str)];

/// A share group at work on one topic.
#[derive(Debug)]
pub struct ShareRun {
    bootstrap: String,
    topic: String,
    group: String,
    options: Vec<(String, String)>,
    logs: PathBuf,
    /// Keeps a folder of its own until the end.
    _own_dir: Option<TempDir>,
    producers: Vec<RunningProbe>,
    members: Vec<RunningProbe>,
    seed: u64,
}

impl ShareRun {
    /// A run of `group` on `topic`, with nobody in it yet. `options` go to every member.
    pub fn new(bootstrap: &str, topic: &str, group: &str, options: Options<'_>) -> Self {
        let dir = TempDir::new().expect("a temporary folder can be made");
        let run = Self::new_in(dir.path(), bootstrap, topic, group, options);
        Self { _own_dir: Some(dir), ..run }
    }

    /// As [`Self::new`], with event logs and what members print in a folder that stays.
    pub fn new_in(logs: &Path, bootstrap: &str, topic: &str, group: &str, options: Options<'_>) -> Self {
        Self {
            bootstrap: bootstrap.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            options: options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            logs: logs.to_owned(),
            _own_dir: None,
            producers: Vec::new(),
            members: Vec::new(),
            seed: 0,
        }
    }

    /// Starts a producer. `None` where the test is to be skipped.
    #[track_caller]
    pub fn add_producer(&mut self, client: Client, name: &str, options: Options<'_>) -> Option<()> {
        let probe = self.with_seed(with(Probe::require(client, Role::Produce, name)?, options));
        self.producers.push(probe.spawn(&self.bootstrap, &self.topic, &self.logs));
        Some(())
    }

    /// Starts a member. `None` where the test is to be skipped.
    #[track_caller]
    pub fn add_member(&mut self, client: Client, name: &str, options: Options<'_>) -> Option<()> {
        let mut probe = Probe::require(client, Role::Share, name)?.option("group", &self.group);
        for (option, value) in &self.options {
            probe = probe.option(option, value);
        }
        let probe = self.with_seed(with(probe, options));
        self.members.push(probe.spawn(&self.bootstrap, &self.topic, &self.logs));
        Some(())
    }

    /// Tells a member to stop in order, and does not wait for it.
    #[track_caller]
    pub fn stop_member(&mut self, name: &str) {
        self.member(name).ask_to_stop();
    }

    /// Kills a member, as a crash would.
    #[track_caller]
    pub fn kill_member(&mut self, name: &str) {
        self.member(name).kill();
    }

    /// Waits at most `limit` until all producers are done.
    #[track_caller]
    pub fn wait_for_producers(&mut self, limit: Duration) {
        for producer in &mut self.producers {
            producer.expect_end(limit);
        }
    }

    /// Number of records that have been worked off, each counted once.
    pub fn done(&self) -> usize {
        let mut places: Vec<(i32, i64)> = self
            .events()
            .iter()
            .filter(|event| event.what == What::Success)
            .map(|event| (event.partition, event.offset))
            .collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    }

    /// Waits at most `limit` until `records` are worked off, and panics with what the members printed otherwise.
    #[track_caller]
    pub fn wait_for_done(&mut self, records: usize, limit: Duration) {
        if !wait_until(limit, || self.done() >= records) {
            panic!("only {} of {records} records in {limit:?}\n{}", self.done(), self.told());
        }
    }

    /// As [`Self::wait_for_done`], for runs whose logs are long: looks once a second.
    #[track_caller]
    pub fn wait_for_done_slowly(&mut self, records: usize, limit: Duration) {
        let deadline = Deadline::after(limit);
        while self.done() < records {
            assert!(!deadline.is_over(), "only {} of {records} records\n{}", self.done(), self.told());
            pause(LOOK_SLOWLY);
        }
    }

    /// True while a producer runs. Panics when one failed.
    #[track_caller]
    pub fn is_producing(&mut self) -> bool {
        let mut running = false;
        for producer in &mut self.producers {
            if producer.is_running() {
                running = true;
            } else {
                producer.expect_end(Duration::ZERO);
            }
        }
        running
    }

    /// Panics, with what it printed, when one of these members has ended.
    #[track_caller]
    pub fn expect_running(&mut self, names: &[String]) {
        for name in names {
            let member = self.member(name);
            assert!(member.is_running(), "{name} ended by itself: {}", tail(&member.stderr()));
        }
    }

    /// Bytes that members have logged up to now: they grow while anything goes on.
    pub fn logged_bytes(&self) -> u64 {
        self.members.iter().map(RunningProbe::logged_bytes).sum()
    }

    /// What members and checker say up to now.
    pub fn told(&self) -> String {
        let printed = |member: &RunningProbe| format!("{}: {}", member.member(), tail(&member.stderr()));
        let printed: Vec<String> = self.members.iter().map(printed).collect();
        format!("{}\n{}", self.report(), printed.join("\n"))
    }

    /// Stops all members that still run, and judges what everyone logged.
    #[track_caller]
    pub fn finish(self) -> Report {
        self.finish_with_events().0
    }

    /// As [`Self::finish`], with the events of all members.
    #[track_caller]
    pub fn finish_with_events(mut self) -> (Report, Vec<Event>) {
        self.wait_for_producers(STOP_LIMIT);
        for member in &mut self.members {
            member.ask_to_stop();
        }
        for member in &mut self.members {
            member.expect_end(STOP_LIMIT);
            let printed = self.logs.join(format!("{}.stderr", member.member()));
            std::fs::write(printed, member.stderr()).expect("the folder can be written");
        }
        let (report, events) = (self.report(), self.events());
        // Captured by the test harness, and shown when the test fails.
        println!("{}", explain(&report, &events, EXPLAINED_MAX));
        (report, events)
    }

    /// Judges what has been logged up to now.
    pub fn report(&self) -> Report {
        let produced: Vec<ProducedRecord> = self
            .producers
            .iter()
            .flat_map(RunningProbe::events)
            .filter(|event| event.what == What::Produced)
            .map(|event| ProducedRecord { partition: event.partition, offset: event.offset, key: event.key })
            .collect();
        check(&produced, &self.events())
    }

    /// Folder of the event logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    fn events(&self) -> Vec<Event> {
        self.members.iter().flat_map(RunningProbe::events).collect()
    }

    #[track_caller]
    fn member(&mut self, name: &str) -> &mut RunningProbe {
        let found = self.members.iter_mut().find(|member| member.member() == name);
        found.unwrap_or_else(|| panic!("no member is called {name}"))
    }

    /// Each client draws from a seed of its own, the same in every run.
    fn with_seed(&mut self, probe: Probe) -> Probe {
        self.seed += 1;
        probe.option("seed", &self.seed.to_string())
    }
}

fn with(mut probe: Probe, options: Options<'_>) -> Probe {
    for (name, value) in options {
        probe = probe.option(name, value);
    }
    probe
}

/// The last lines, enough to see why a client failed.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
