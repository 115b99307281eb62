//! The tools that administer share groups, side by side: the same commands against Sluice and against Apache Kafka 4.4
//! must print the same, but for what each broker words in its own way.

use std::collections::BTreeSet;
use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::{ApacheKafka, KafkaTools};
use integration_tests::process::{Finished, Process};
use integration_tests::real_time::wait_until;

const MEMBER_LIMIT: Duration = Duration::from_secs(60);

/// Both brokers and the tools.
struct Pair {
    sluice: BrokerProcess,
    kafka: ApacheKafka,
    tools: KafkaTools,
}

impl Pair {
    #[track_caller]
    fn start() -> Option<Self> {
        let tools = KafkaTools::require()?;
        let pair = Self { sluice: BrokerProcess::start(), kafka: ApacheKafka::start("")?, tools };
        for topic in ["t 2", "u 1"] {
            let (name, partitions) = topic.split_once(' ').expect("a name and a number");
            pair.both(&format!("topics --create --topic {name} --partitions {partitions}"));
        }
        pair.both("configs --alter --entity-type groups --entity-name g --add-config share.auto.offset.reset=earliest");
        let lines: String = (0..20).map(|i| format!("k{i}:v{i}\n")).collect();
        for bootstrap in pair.bootstraps() {
            let arguments = [
                "--topic",
                "t",
                "--reader-property",
                "parse.key=true",
                "--reader-property",
                "key.separator=:",
            ];
            pair.tools.run_with_input("console-producer", &bootstrap, &arguments, &lines).expect_success();
        }
        pair.both("console-share-consumer --topic t --group g --max-messages 20 --timeout-ms 30000");
        Some(pair)
    }

    /// Sluice's address, then Kafka's.
    fn bootstraps(&self) -> [String; 2] {
        [self.sluice.bootstrap().to_owned(), self.kafka.bootstrap()]
    }

    /// Runs a command line against both.
    fn run(&self, line: &str) -> [Finished; 2] {
        let mut words = line.split(' ');
        let tool = words.next().expect("a line names its tool");
        let arguments: Vec<&str> = words.collect();
        self.bootstraps().map(|bootstrap| self.tools.run(tool, &bootstrap, &arguments))
    }

    /// Runs a command line that must succeed with both, and gives what they printed.
    #[track_caller]
    fn both(&self, line: &str) -> [String; 2] {
        self.run(line).map(|finished| finished.expect_success().stdout.clone())
    }

    /// What both print is the same, but for addresses, member ids and the order of lines.
    #[track_caller]
    fn same(&self, line: &str) {
        let [ours, theirs] = self.run(line);
        assert_eq!(ours.code(), theirs.code(), "{line}\nsluice: {ours}\nkafka: {theirs}");
        assert_eq!(plain(&ours.stdout), plain(&theirs.stdout), "{line}");
    }

    /// Both print every one of these words, and end alike.
    #[track_caller]
    fn say(&self, line: &str, words: &[&str]) {
        let [ours, theirs] = self.run(line);
        assert_eq!(ours.code(), theirs.code(), "{line}\nsluice: {ours}\nkafka: {theirs}");
        for (who, finished) in [("sluice", &ours), ("kafka", &theirs)] {
            for word in words {
                assert!(finished.to_string().contains(word), "{line}: {who} does not say {word}: {finished}");
            }
        }
    }

    /// A share consumer of `t` at each broker, known to the group.
    #[track_caller]
    fn members(&self) -> [Process; 2] {
        let members = self.bootstraps().map(|bootstrap| {
            self.tools.spawn("console-share-consumer", &bootstrap, &["--topic", "t", "--group", "g"])
        });
        let seen = wait_until(MEMBER_LIMIT, || {
            let tables = self.both("share-groups --describe --group g --members");
            tables.iter().all(|table| table.contains("t:0,1"))
        });
        assert!(seen, "no member shows up");
        members
    }
}

/// The lines of a table as a set of words: without addresses, member ids and column widths.
fn plain(printed: &str) -> BTreeSet<String> {
    let word = |word: &str| {
        let is_member = word.len() == 22 && !word.contains('=') && !word.contains('-');
        match word {
            _ if word.starts_with("127.0.0.1:") => "BROKER".to_owned(),
            _ if is_member => "MEMBER".to_owned(),
            word => word.to_owned(),
        }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    printed.lines().map(line).filter(|line| !line.is_empty()).collect()
}

#[test]
fn s18_offsets_are_reset_and_deleted_as_by_kafka() {
    let Some(pair) = Pair::start() else { return };
    pair.same("share-groups --list");
    pair.same("share-groups --list --state");
    pair.same("share-groups --list --state stable");
    for table in pair.both("share-groups --describe --group g") {
        let lags: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("g "))
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        assert_eq!(lags, ["0", "0"], "{table}");
    }
    pair.same("share-groups --describe --group g --members");
    pair.same("share-groups --describe --group g --state");
    pair.say("share-groups --describe --group nobody", &["GroupIdNotFoundException"]);

    let reset = "share-groups --reset-offsets --group g";
    pair.same(&format!("{reset} --topic t --to-earliest --dry-run"));
    for to in
        ["--to-latest", "--to-datetime 2020-01-01T00:00:00.000", "--to-datetime 2030-01-01T00:00:00.000"]
    {
        pair.same(&format!("{reset} --topic t --to-earliest --execute"));
        pair.same(&format!("{reset} --topic t {to} --execute"));
        pair.same("share-groups --describe --group g");
        pair.same("share-groups --describe --group g --verbose");
    }
    pair.same(&format!("{reset} --topic t:0 --to-earliest --execute"));
    pair.same(&format!("{reset} --all-topics --to-earliest --execute"));
    pair.same(&format!("{reset} --topic u --to-latest --execute"));
    pair.same(&format!("{reset} --topic missing --to-earliest --execute"));
    pair.same("share-groups --describe --group g");
    // A group that nobody has heard of is made.
    pair.same("share-groups --reset-offsets --group fresh --topic t:1 --to-latest --execute");
    pair.same("share-groups --describe --group fresh");
    pair.same("share-groups --describe --group fresh --state --verbose");
    pair.same("share-groups --list");
    pair.same("share-groups --delete --group fresh");

    pair.same("share-groups --delete-offsets --group g --topic u");
    pair.say("share-groups --delete-offsets --group g --topic u", &["Error:"]);
    pair.say("share-groups --delete-offsets --group g --topic missing", &["missing", "Error:"]);
    pair.say("share-groups --delete-offsets --group nobody --topic t", &["Error:", "not found"]);
    pair.same("share-groups --describe --group g");
    pair.same("share-groups --delete-offsets --group g --topic t");
    pair.same("share-groups --describe --group g");
}

#[test]
fn s18_a_group_with_members_is_left_alone_as_by_kafka() {
    let Some(pair) = Pair::start() else { return };
    let members = pair.members();
    pair.same("share-groups --describe --group g --members");
    pair.same("share-groups --describe --group g --state");
    pair.same("groups --list --share");
    pair.same("share-groups --reset-offsets --group g --topic t --to-earliest --execute");
    pair.say("share-groups --delete-offsets --group g --topic t", &["Error:", "not empty"]);
    pair.say("share-groups --delete --group g", &["could not be deleted", "GroupNotEmptyException"]);
    drop(members);
    let empty = wait_until(Duration::from_secs(120), || {
        let tables = pair.both("share-groups --describe --group g --state");
        tables.iter().all(|table| table.contains("Empty"))
    });
    assert!(empty, "the members are still there");
    pair.same("share-groups --delete --group g");
    pair.same("share-groups --list");
    pair.say("consumer-groups --describe --group g", &["GroupIdNotFoundException"]);
}

#[test]
fn s15_s30_group_settings_are_taken_and_refused_as_by_kafka() {
    let Some(pair) = Pair::start() else { return };
    let entity = "--entity-type groups --entity-name fresh";
    for (name, low, high) in [
        ("share.record.lock.duration.ms", 15_000, 60_000),
        ("share.session.timeout.ms", 45_000, 60_000),
        ("share.heartbeat.interval.ms", 5_000, 15_000),
        ("share.delivery.count.limit", 2, 10),
        ("share.partition.max.record.locks", 100, 4_000),
    ] {
        let set = |value: i64| format!("configs --alter {entity} --add-config {name}={value}");
        pair.same(&set(low));
        pair.same(&set(high));
        for beyond in [low - 1, high + 1] {
            pair.say(&set(beyond), &["InvalidConfigurationException"]);
        }
    }
    pair.say(&format!("configs --alter {entity} --add-config nonsense=1"), &["nonsense"]);
    pair.say(&format!("configs --alter {entity} --add-config share.isolation.level=x"), &["InvalidConfig"]);
    pair.say(
        &format!("configs --alter {entity} --add-config share.auto.offset.reset=foo"),
        &["InvalidConfig"],
    );
    pair.same(&format!("configs --alter {entity} --add-config share.auto.offset.reset=by_duration:PT1H"));
    pair.same(&format!("configs --alter {entity} --add-config share.isolation.level=read_committed"));
    pair.same(&format!("configs --describe {entity}"));
    // The group has no member, and shows up by its settings.
    pair.same("configs --describe --entity-type groups");
    let ours_alone = |line: &&String| !line.starts_with("sluice.");
    let [ours, theirs] = pair.both(&format!("configs --describe {entity} --all"));
    let (ours, theirs) = (plain(&ours), plain(&theirs));
    assert_eq!(ours.iter().filter(ours_alone).collect::<Vec<_>>(), theirs.iter().collect::<Vec<_>>());
    assert!(ours.iter().any(|line| line.starts_with("sluice.share.order=none")));
}
