//! Apache Kafka's own command-line tools, 4.4, each doing its job.
//!
//! With `SLUICE_TEST_TARGET=kafka` the same tests run against Apache Kafka and show what is expected of a tool.

use std::fs;
use std::time::Duration;

use integration_tests::foreign::KafkaTools;
use integration_tests::process::Finished;
use integration_tests::real_time::wait_until;
use integration_tests::test_broker::TestBroker;

const GROUP_LIMIT: Duration = Duration::from_secs(60);
/// A compaction begins at most `log.cleaner.backoff.ms` after it is due.
const COMPACTION_LIMIT: Duration = Duration::from_secs(60);

/// A broker with topic `t` of one partition, and the tools.
struct Bench {
    broker: TestBroker,
    tools: KafkaTools,
}

impl Bench {
    /// `None` where the test is skipped.
    #[track_caller]
    fn new() -> Option<Self> {
        let tools = KafkaTools::require()?;
        let bench = Self { broker: TestBroker::start()?, tools };
        bench.broker.create_topic(&bench.tools, "t", 1);
        Some(bench)
    }

    fn run(&self, line: &str) -> Finished {
        self.run_with_input(line, "")
    }

    /// Runs a command line, split at spaces.
    fn run_with_input(&self, line: &str, input: &str) -> Finished {
        let mut words = line.split(' ');
        let tool = words.next().expect("a line names its tool");
        let arguments: Vec<&str> = words.collect();
        self.tools.run_with_input(tool, &self.broker.bootstrap(), &arguments, input)
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line).expect_success().stdout.clone()
    }

    /// Produces records `k0:v0`, `k1:v1`, …, with ten keys, through the console producer.
    #[track_caller]
    fn produce(&self, topic: &str, records: usize) {
        let lines: String = (0..records).map(|i| format!("k{}:v{i}\n", i % 10)).collect();
        let line = format!(
            "console-producer --topic {topic} --reader-property parse.key=true --reader-property key.separator=:"
        );
        self.run_with_input(&line, &lines).expect_success();
    }

    /// Reads `records` through the console consumer, as `key<TAB>value` lines.
    #[track_caller]
    fn consume(&self, topic: &str, group: &str, records: usize) -> Vec<String> {
        let printed = self.ok(&format!(
            "console-consumer --topic {topic} --group {group} --from-beginning --max-messages {records} \
             --timeout-ms 30000 --formatter-property print.key=true"
        ));
        printed.lines().map(str::to_owned).collect()
    }

    /// Files of a topic's first partition that end in `extension`, in the order of their base offsets.
    fn files(&self, topic: &str, extension: &str) -> Vec<String> {
        let dir = self.broker.log_dir().join(format!("{topic}-0"));
        let mut files: Vec<String> = fs::read_dir(&dir)
            .expect("the partition has its folder")
            .map(|entry| entry.expect("a folder can be listed").path())
            .filter(|path| path.extension().is_some_and(|e| e == extension))
            .map(|path| path.display().to_string())
            .collect();
        assert!(!files.is_empty(), "{} holds no .{extension} file", dir.display());
        files.sort();
        files
    }
}

/// The words of each line of a table, without its head and its blank lines.
fn rows<'a>(table: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let lines = table.lines().skip_while(|line| !line.starts_with(head)).skip(1);
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|words| !words.is_empty()).collect()
}

#[test]
fn topics_are_created_listed_described_extended_and_deleted() {
    let Some(bench) = Bench::new() else { return };
    bench.ok("topics --create --topic orders --partitions 3 --config retention.ms=600000");
    let listed = bench.ok("topics --list");
    assert!(listed.lines().any(|topic| topic == "orders"), "{listed}");

    let described = bench.ok("topics --describe --topic orders");
    assert!(
        described.contains("PartitionCount: 3") && described.contains("retention.ms=600000"),
        "{described}"
    );
    assert_eq!(described.matches("Leader: 1").count(), 3, "{described}");

    bench.ok("topics --alter --topic orders --partitions 5");
    let described = bench.ok("topics --describe --topic orders");
    assert!(described.contains("PartitionCount: 5"), "{described}");

    let again = bench.run("topics --create --topic orders");
    assert_ne!(again.code(), Some(0));
    assert!(again.to_string().contains("already exists"), "{again}");

    bench.ok("topics --delete --topic orders");
    let listed = bench.ok("topics --list");
    assert!(!listed.lines().any(|topic| topic == "orders"), "{listed}");
}

#[test]
fn the_console_producer_and_consumer_pass_records() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 50);
    let lines = bench.consume("t", "readers", 50);
    let expected: Vec<String> = (0..50).map(|i| format!("k{}\tv{i}", i % 10)).collect();
    assert_eq!(lines, expected);

    // The group has committed: it goes on where it stopped.
    bench.produce("t", 3);
    assert_eq!(bench.consume("t", "readers", 3), ["k0\tv0", "k1\tv1", "k2\tv2"]);
}

#[test]
fn the_console_consumer_speaks_both_group_protocols_where_they_are_served() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 10);
    let apis = bench.ok("broker-api-versions");
    let mut protocols = vec!["classic"];
    if apis.contains("ConsumerGroupHeartbeat(68): 0") {
        protocols.push("consumer");
    }
    for protocol in protocols {
        let printed = bench.ok(&format!(
            "console-consumer --topic t --group g-{protocol} --command-property group.protocol={protocol} \
             --command-property auto.offset.reset=earliest --max-messages 10 --timeout-ms 30000"
        ));
        assert_eq!(printed.lines().count(), 10, "{protocol}: {printed}");
    }
}

#[test]
fn the_console_share_consumer_takes_every_record_once() {
    let Some(bench) = Bench::new() else { return };
    bench.broker.set_up_share_group(&bench.tools, "workers");
    bench.produce("t", 40);
    let printed = bench
        .ok("console-share-consumer --topic t --group workers --max-messages 40 --timeout-ms 30000 \
         --formatter-property print.key=true");
    let mut lines: Vec<&str> = printed.lines().collect();
    if bench.broker.is_sluice() {
        for key in 0..10 {
            let values: Vec<&str> =
                lines.iter().filter_map(|line| line.strip_prefix(&format!("k{key}\t"))).collect();
            let expected: Vec<String> = (0..4).map(|round| format!("v{}", round * 10 + key)).collect();
            assert_eq!(values, expected, "k{key} is out of order");
        }
    }
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..40).map(|i| format!("k{}\tv{i}", i % 10)).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn share_groups_shows_offsets_members_and_state() {
    let Some(bench) = Bench::new() else { return };
    bench.broker.set_up_share_group(&bench.tools, "workers");
    bench.produce("t", 20);
    bench.ok("console-share-consumer --topic t --group workers --max-messages 20 --timeout-ms 30000");

    assert!(bench.ok("share-groups --list").lines().any(|group| group.trim() == "workers"));
    let table = bench.ok("share-groups --describe --group workers");
    let offsets = rows(&table, "GROUP");
    assert_eq!(offsets.len(), 1, "{table}");
    assert_eq!(offsets[0][..3], ["workers", "t", "0"], "{table}");
    // Kafka's persisted start offset may lag behind what is done; the lag may not.
    assert_eq!(offsets[0][4], "0", "all was acknowledged: {table}");
    let table = bench.ok("share-groups --describe --group workers --state");
    assert!(rows(&table, "GROUP")[0].contains(&"Empty"), "{table}");

    let arguments = ["--topic", "t", "--group", "workers"];
    let consumer = bench.tools.spawn("console-share-consumer", &bench.broker.bootstrap(), &arguments);
    let seen = wait_until(GROUP_LIMIT, || {
        rows(&bench.ok("share-groups --describe --group workers --members"), "GROUP").len() == 1
    });
    assert!(seen, "no member shows up: {}", consumer.stderr());
    let table = bench.ok("share-groups --describe --group workers --members");
    let members = rows(&table, "GROUP");
    assert_eq!(members[0][0], "workers", "{table}");
    assert!(table.contains("t:0"), "the assignment is missing: {table}");
    let table = bench.ok("share-groups --describe --group workers --state");
    assert!(rows(&table, "GROUP")[0].contains(&"Stable"), "{table}");
}

#[test]
fn consumer_groups_shows_lag_members_and_state() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 20);
    bench.consume("t", "readers", 20);
    bench.produce("t", 5);

    assert!(bench.ok("consumer-groups --list").lines().any(|group| group == "readers"));
    let table = bench.ok("consumer-groups --describe --group readers");
    let offsets = rows(&table, "GROUP");
    assert_eq!(offsets[0][..6], ["readers", "t", "0", "20", "25", "5"], "{table}");
    let table = bench.ok("consumer-groups --describe --group readers --state");
    assert!(rows(&table, "GROUP")[0].contains(&"Empty"), "{table}");

    let arguments = ["--topic", "t", "--group", "readers"];
    let consumer = bench.tools.spawn("console-consumer", &bench.broker.bootstrap(), &arguments);
    assert!(consumer.wait_for_line(GROUP_LIMIT, |line| line == "v4").is_some(), "{}", consumer.stderr());
    let table = bench.ok("consumer-groups --describe --group readers --members");
    let members = rows(&table, "GROUP");
    assert_eq!((members.len(), members[0][0]), (1, "readers"), "{table}");
    drop(consumer);

    let other = bench.run("consumer-groups --delete --group nobody");
    assert!(other.to_string().contains("GroupIdNotFoundException"), "{other}");
}

#[test]
fn consumer_groups_deletes_and_resets_offsets() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 20);
    bench.consume("t", "readers", 20);
    let reset = "consumer-groups --group readers --reset-offsets --topic t --to-offset 7 --execute";
    assert_eq!(rows(&bench.ok(reset), "GROUP")[0][..4], ["readers", "t", "0", "7"]);
    let table = bench.ok("consumer-groups --describe --group readers");
    assert_eq!(rows(&table, "GROUP")[0][..6], ["readers", "t", "0", "7", "20", "13"], "{table}");
    let deleted = bench.ok("consumer-groups --group readers --delete-offsets --topic t:0");
    assert!(deleted.contains("Successful"), "{deleted}");
    let table = bench.run("consumer-groups --describe --group readers").to_string();
    assert!(!table.contains("20"), "{table}");
}

#[test]
fn log_dirs_shows_what_each_partition_takes() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 20);
    let printed = bench.ok("log-dirs --describe --topic-list t");
    let json = printed.lines().find(|line| line.starts_with('{')).expect("one line is JSON");
    let told: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let dir = &told["brokers"][0]["logDirs"][0];
    assert_eq!(dir["error"], serde_json::Value::Null, "{printed}");
    let partition = &dir["partitions"][0];
    assert_eq!((&partition["partition"], &partition["offsetLag"]), (&"t-0".into(), &0.into()), "{printed}");
    assert!(partition["size"].as_u64().is_some_and(|size| size > 100), "{printed}");
}

#[test]
fn groups_lists_groups_of_each_type() {
    let Some(bench) = Bench::new() else { return };
    bench.broker.set_up_share_group(&bench.tools, "workers");
    bench.produce("t", 2);
    bench.consume("t", "readers", 2);
    bench.ok("console-share-consumer --topic t --group workers --max-messages 2 --timeout-ms 30000");
    let table = bench.ok("groups --list");
    let mut groups = rows(&table, "GROUP");
    groups.sort();
    assert_eq!(groups, [["readers", "Classic", "consumer"], ["workers", "Share", "share"]], "{table}");
}

#[test]
fn configs_of_topics_and_groups_are_set_shown_and_removed() {
    let Some(bench) = Bench::new() else { return };
    let group_config =
        if bench.broker.is_sluice() { "sluice.share.order=key" } else { "share.auto.offset.reset=earliest" };
    for (kind, name, config) in [("topics", "t", "retention.ms=100000"), ("groups", "workers", group_config)]
    {
        let entity = format!("--entity-type {kind} --entity-name {name}");
        bench.ok(&format!("configs --alter {entity} --add-config {config}"));
        let shown = bench.ok(&format!("configs --describe {entity}"));
        assert!(shown.lines().any(|line| line.trim().starts_with(config)), "{shown}");
        let all = bench.ok(&format!("configs --describe {entity} --all"));
        assert!(all.lines().count() > 5, "the defaults are missing: {all}");

        let unknown = bench.run(&format!("configs --alter {entity} --add-config nonsense=1"));
        assert_ne!(unknown.code(), Some(0));
        assert!(unknown.to_string().contains("config name: nonsense"), "{unknown}");

        let config_name = config.split('=').next().expect("a config has a name");
        bench.ok(&format!("configs --alter {entity} --delete-config {config_name}"));
        let shown = bench.ok(&format!("configs --describe {entity}"));
        assert!(!shown.contains(config), "{shown}");
    }
    let bad = bench.run(
        "configs --alter --entity-type groups --entity-name g --add-config share.record.lock.duration.ms=70000",
    );
    assert_ne!(bad.code(), Some(0), "{bad}");
    assert!(bad.to_string().contains("InvalidConfigurationException"), "{bad}");
}

#[test]
fn the_perf_tools_push_and_pull_their_records() {
    let Some(bench) = Bench::new() else { return };
    bench.broker.set_up_share_group(&bench.tools, "workers");
    let produced =
        bench.ok("producer-perf-test --topic t --num-records 20000 --record-size 100 --throughput -1");
    assert!(produced.contains("20000 records sent"), "{produced}");

    let consumed = bench.ok("consumer-perf-test --topic t --group readers --num-records 20000");
    assert_eq!(column(&consumed, "data.consumed.in.nMsg"), 20_000, "{consumed}");

    let shared =
        bench.ok("share-consumer-perf-test --topic t --group workers --num-records 20000 --timeout 60000");
    assert!(column(&shared, "data.consumed.in.nMsg") >= 20_000, "{shared}");
}

/// The number under a heading of a perf tool's comma-separated table.
fn column(table: &str, heading: &str) -> u64 {
    let split = |line: &str| line.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let mut lines = table.lines().skip_while(|line| !line.starts_with("start.time"));
    let heads = split(lines.next().expect("the tool prints a head"));
    let values = split(lines.next().expect("the tool prints a result"));
    let index = heads.iter().position(|head| head == heading).expect("the head names the column");
    values
        .get(index)
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {heading} in {table}"))
}

#[test]
fn get_offsets_tells_both_ends_and_a_time() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 30);
    for (time, expected) in
        [("latest", "t:0:30"), ("earliest", "t:0:0"), ("0", "t:0:0"), ("max-timestamp", "t:0:")]
    {
        let printed = bench.ok(&format!("get-offsets --topic t --time {time}"));
        assert!(printed.trim().starts_with(expected), "{time}: {printed}");
    }
}

#[test]
fn delete_records_moves_the_start() {
    let Some(bench) = Bench::new() else { return };
    bench.produce("t", 30);
    let plan = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    fs::write(plan.path(), r#"{"partitions":[{"topic":"t","partition":0,"offset":12}],"version":1}"#)
        .expect("the file can be written");
    bench.ok(&format!("delete-records --offset-json-file {}", plan.path().display()));
    assert_eq!(bench.ok("get-offsets --topic t --time earliest").trim(), "t:0:12");
    assert_eq!(bench.consume("t", "readers", 18).len(), 18);
}

#[test]
fn broker_api_versions_finds_nothing_unknown_but_our_own() {
    let Some(bench) = Bench::new() else { return };
    let printed = bench.ok("broker-api-versions");
    for api in ["Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13", "ShareFetch(78): 1 to 2"]
    {
        assert!(printed.contains(api), "{api} is missing: {printed}");
    }
    for unknown in printed.lines().filter(|line| line.contains("UNKNOWN(")) {
        assert!(unknown.contains("UNKNOWN(100"), "{unknown}");
    }
}

#[test]
fn r07_dump_log_reads_compacted_segments() {
    let Some(bench) = Bench::new() else { return };
    bench.ok("topics --create --topic logged --config cleanup.policy=compact --config min.cleanable.dirty.ratio=0.01 \
         --config segment.bytes=1048576 --config segment.ms=1");
    for _ in 0..3 {
        bench.produce("logged", 200);
    }
    let compacted = wait_until(COMPACTION_LIMIT, || {
        let checkpoint = bench.broker.log_dir().join("cleaner-offset-checkpoint");
        fs::read_to_string(checkpoint)
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("logged 0 ")))
    });
    assert!(compacted, "nothing was compacted");
    let logs = bench.files("logged", "log").join(",");
    let dumped =
        bench.tools.run_offline("dump-log", &["--files", &logs, "--print-data-log", "--deep-iteration"]);
    let printed = &dumped.expect_success().stdout;
    assert!(printed.matches("| offset: ").count() < 600, "{printed:.2000}");
    assert!(printed.contains("payload: v199") && !printed.contains("isvalid: false"), "{printed:.2000}");
    for extension in ["index", "timeindex"] {
        let files = bench.files("logged", extension).join(",");
        let dumped = bench.tools.run_offline("dump-log", &["--files", &files]).expect_success().to_string();
        for bad in ["Mismatches", "mismatch", "out of order", "not found"] {
            assert!(!dumped.contains(bad), "{dumped}");
        }
    }
    let lines = bench.ok("console-consumer --topic logged --from-beginning --timeout-ms 8000 \
         --formatter-property print.key=true");
    for key in 0..10 {
        let last = lines.lines().rfind(|line| line.starts_with(&format!("k{key}\t")));
        assert_eq!(last, Some(&*format!("k{key}\tv{}", 190 + key)), "{lines}");
    }
}

#[test]
fn dump_log_reads_our_segment_files() {
    let Some(bench) = Bench::new() else { return };
    bench.ok("topics --create --topic logged --config segment.bytes=1048576");
    bench.produce("logged", 7);
    // Random payloads hardly shrink: several segments, so that the first one's indexes are complete.
    bench.ok("producer-perf-test --topic logged --num-records 5000 --record-size 1000 --throughput -1 \
         --command-property compression.type=lz4");
    let logs = bench.files("logged", "log");
    assert!(logs.len() > 1, "the log did not roll: {logs:?}");
    let dumped = bench.tools.run_offline("dump-log", &["--files", &logs.join(","), "--print-data-log"]);
    let printed = &dumped.expect_success().stdout;
    assert!(printed.contains("Log starting offset: 0"), "{printed:.400}");
    assert!(printed.contains("key: k3 payload: v3"), "{printed:.2000}");
    assert_eq!(printed.matches("| offset: ").count(), 5_007);
    assert!(printed.contains("compresscodec: lz4") && printed.contains("isvalid: true"));
    assert!(!printed.contains("isvalid: false"));

    for extension in ["index", "timeindex"] {
        let file = &bench.files("logged", extension)[0];
        let checked = bench.tools.run_offline("dump-log", &["--files", file, "--index-sanity-check"]);
        assert!(checked.expect_success().stdout.contains("passed sanity check"), "{checked}");
        // Without the option every entry is looked up in the log.
        let dumped = bench.tools.run_offline("dump-log", &["--files", file]).expect_success().to_string();
        for bad in ["Mismatches", "mismatch", "out of order", "not found"] {
            assert!(!dumped.contains(bad), "{dumped}");
        }
    }
}

#[test]
fn batches_are_stored_with_the_codec_of_their_topic() {
    let Some(bench) = Bench::new() else { return };
    for (wanted, sent, shown) in [
        ("zstd", "none", "zstd"),
        ("gzip", "lz4", "gzip"),
        ("snappy", "gzip", "snappy"),
        ("lz4", "zstd", "lz4"),
        ("uncompressed", "snappy", "none"),
        ("producer", "zstd", "zstd"),
    ] {
        let topic = format!("{wanted}-of-{sent}");
        bench.ok(&format!("topics --create --topic {topic} --config compression.type={wanted}"));
        let lines: String = (0..300).map(|i| format!("k{}:value {i}\n", i % 10)).collect();
        let produce = format!(
            "console-producer --topic {topic} --compression-codec {sent} --reader-property parse.key=true \
             --reader-property key.separator=:"
        );
        bench.run_with_input(&produce, &lines).expect_success();
        let read = bench.consume(&topic, "readers", 300);
        let expected: Vec<String> = (0..300).map(|i| format!("k{}\tvalue {i}", i % 10)).collect();
        assert_eq!(read, expected, "{topic}");
        let logs = bench.files(&topic, "log").join(",");
        let dumped = bench.tools.run_offline("dump-log", &["--files", &logs, "--print-data-log"]);
        let printed = &dumped.expect_success().stdout;
        let batches = printed.matches("compresscodec: ").count();
        assert_eq!(printed.matches(&format!("compresscodec: {shown} ")).count(), batches, "{printed:.2000}");
        assert!(batches > 0 && !printed.contains("isvalid: false"), "{printed:.2000}");
        assert_eq!(printed.matches("| offset: ").count(), 300, "{topic}");
    }
}
