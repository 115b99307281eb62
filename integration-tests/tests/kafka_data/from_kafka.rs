//! What a stopped Kafka broker leaves is taken over by `sluice import`, and is the same.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use integration_tests::broker_process::{BrokerProcess, binary};
use integration_tests::foreign::ApacheKafka;
use integration_tests::process::{Finished, run};
use integration_tests::real_time::wait_until;
use records::Batches;
use tempfile::TempDir;

use crate::bench::{
    Isolation, Record, assert_same, bounds, checkpoint, committed, delete_records, dump, tool, topic_ids,
    verify, write_checkpoint,
};
use crate::fill::{self, Dumps, EAGER_CLEANER, Idempotent};

const IMPORT_LIMIT: Duration = Duration::from_secs(120);
const TOPICS: [&str; 7] = ["codecs", "compacted", "moved", "deleted", "again", "cut", "idem"];
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";

/// Runs `sluice import`.
pub(crate) fn import(from: &Path, to: &Path, more: &[&str]) -> Finished {
    let mut command = Command::new(binary());
    command.arg("import").arg("--from").arg(from).arg("--data-dir").arg(to).args(more);
    run("sluice import", command, b"", IMPORT_LIMIT)
}

fn dumps(bootstrap: &str) -> Dumps {
    TOPICS.iter().map(|topic| ((*topic).to_owned(), dump(bootstrap, topic, Isolation::Uncommitted))).collect()
}

/// Leader epochs of all batches of a partition, in order.
fn epochs(dir: &Path) -> Vec<i32> {
    let mut logs: Vec<_> = fs::read_dir(dir)
        .expect("the partition has its folder")
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    let bytes: Vec<u8> = logs.iter().flat_map(|log| fs::read(log).expect("a log can be read")).collect();
    Batches::new(&bytes).map(|batch| batch.expect("whole batches").leader_epoch()).collect()
}

fn numbers(records: &[Record]) -> Vec<String> {
    let text = |record: &Record| String::from_utf8(record.value.clone().expect("a value")).expect("text");
    records.iter().map(text).collect()
}

#[test]
fn p25_r07_a_kafka_data_directory_is_taken_over_record_by_record() {
    let Some(mut kafka) = ApacheKafka::start(EAGER_CLEANER) else { return };
    let tools = kafka.tools().clone();
    let source = kafka.bootstrap();
    fill::all_codecs(&tools, &source, "codecs");
    fill::compacted(&tools, &source, &kafka.log_dir(), "compacted");
    let open = fill::transactions(&tools, &source, "moved", true);
    tool(&tools, &source, "topics --create --topic deleted");
    fill::numbered(&source, "deleted", 100);
    delete_records(&tools, &source, "deleted", 50);
    tool(&tools, &source, "topics --create --topic again --partitions 3 --config retention.ms=1000000");
    fill::numbered(&source, "again", 9);
    tool(&tools, &source, "topics --delete --topic again");
    tool(&tools, &source, "topics --create --topic again --config max.message.bytes=70000");
    fill::numbered(&source, "again", 4);
    tool(&tools, &source, "topics --create --topic cut");
    fill::numbered(&source, "cut", 30);
    tool(&tools, &source, "topics --create --topic idem");
    let idempotent = Idempotent::new(&source, "idem");
    assert_eq!(idempotent.send(&source, 0), (0, 0));
    assert_eq!(idempotent.send(&source, 2), (0, 2));
    fill::commit(&source, "readers", "codecs", 77);
    fill::commit(&source, "readers", "deleted", 60);
    fill::commit(&source, "others", "cut", 25);
    let modern =
        "console-consumer --topic again --group modern --from-beginning --max-messages 4 --timeout-ms 30000";
    tool(&tools, &source, &format!("{modern} --command-property group.protocol=consumer"));
    let shared = "--entity-type groups --entity-name workers --add-config share.auto.offset.reset=earliest";
    tool(&tools, &source, &format!("configs --alter {shared}"));

    let mut expected = dumps(&source);
    let committed_moves = dump(&source, "moved", Isolation::Committed);
    let ends = TOPICS.map(|topic| bounds(&source, topic, partitions(topic)));
    let ids = topic_ids(&tools, &source);
    let groups = ["readers", "others", "modern"].map(|group| committed(&tools, &source, group));
    kafka.stop();
    drop(open);
    let dir = kafka.log_dir();
    // As after an unclean election: the last ten records were never in sync.
    let mut marks = checkpoint(&dir, HIGH_WATERMARKS);
    let mark = marks.iter_mut().find(|line| line.starts_with("cut 0 ")).expect("every partition has one");
    assert_eq!(mark, "cut 0 30");
    *mark = "cut 0 20".to_owned();
    write_checkpoint(&dir, HIGH_WATERMARKS, &marks);
    expected.get_mut("cut").expect("it was read").truncate(20);

    let work = TempDir::new().expect("a temporary folder can be made");
    let target = work.path().join("data");
    let looked = import(&dir, &target, &["--dry-run"]);
    assert!(looked.expect_success().stdout.contains("would be taken over"), "{looked}");
    assert!(!target.exists(), "a dry run writes nothing");
    let taken = import(&dir, &target, &[]);
    let told = &taken.expect_success().stdout;
    for what in [
        "deleted-0: offsets 50 to 100",
        "cut-0: offsets 0 to 20",
        "behind the high watermark",
        "__transaction_state",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
    assert!(told.contains("1 open transactions ended"), "{told}");
    let again = import(&dir, &target, &[]);
    assert!(again.stderr.contains("has topic") && again.code() == Some(1), "{again}");

    let mut sluice = BrokerProcess::start_on(&target, &[]);
    let compare = |sluice: &BrokerProcess| {
        let bootstrap = sluice.bootstrap();
        let found = dumps(bootstrap);
        for topic in TOPICS {
            assert_same(topic, &expected[topic], &found[topic]);
        }
        // What Kafka hid behind the open transaction is seen once it has its end, but not the transaction itself.
        let committed = dump(bootstrap, "moved", Isolation::Committed);
        assert_same("moved, committed", &committed_moves, &committed[..committed_moves.len()]);
        let behind = numbers(&committed[committed_moves.len()..]);
        assert_eq!(behind, (0..20).map(|i| format!("behind the open one {i}")).collect::<Vec<_>>());
        assert!(!numbers(&committed).iter().any(|value| value.starts_with("aborted")));
    };
    compare(&sluice);
    let bootstrap = sluice.bootstrap().to_owned();
    for (topic, mut ends) in TOPICS.into_iter().zip(ends) {
        match topic {
            "cut" => ends[0].1 = 20,
            // The marker that ended the open transaction has an offset of its own.
            "moved" => ends[0].1 += 1,
            "deleted" => assert_eq!(ends, [(50, 100)]),
            _ => {}
        }
        assert_eq!(bounds(&bootstrap, topic, partitions(topic)), ends, "{topic}");
    }
    assert_eq!(topic_ids(&tools, &bootstrap), ids);
    let configs = tool(&tools, &bootstrap, "configs --describe --entity-type topics --entity-name again");
    assert!(configs.contains("max.message.bytes=70000") && !configs.contains("retention.ms"), "{configs}");
    assert_eq!(committed(&tools, &bootstrap, "readers"), groups[0]);
    assert_eq!(committed(&tools, &bootstrap, "modern"), groups[2]);
    let mut others = groups[1].clone();
    assert_eq!(others[0][3..], ["25", "30", "5"]);
    // What was committed of records that were cut off would be other records' offsets.
    others[0].splice(3.., ["20", "20", "0"].map(str::to_owned));
    assert_eq!(committed(&tools, &bootstrap, "others"), others);

    let ordered = "--entity-type groups --entity-name ordered";
    let in_order = "share.auto.offset.reset=earliest,sluice.share.order=key";
    tool(&tools, &bootstrap, &format!("configs --alter {ordered} --add-config {in_order}"));
    for group in ["workers", "ordered"] {
        let shared = format!("console-share-consumer --topic deleted --group {group}");
        let printed = tool(&tools, &bootstrap, &format!("{shared} --max-messages 50 --timeout-ms 30000"));
        let mut values: Vec<i32> = printed.lines().map(|line| line.parse().expect("a number")).collect();
        values.sort_unstable();
        assert_eq!(values, (50..100).collect::<Vec<_>>(), "{group}");
    }

    sluice.kill();
    sluice.restart();
    compare(&sluice);
    assert_eq!(idempotent.send(&bootstrap, 2), (0, 2), "it was stored by Kafka");
    assert_eq!(idempotent.send(&bootstrap, 6).0, OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(idempotent.send(&bootstrap, 4), (0, 4));
    assert_ne!(Idempotent::new(&bootstrap, "idem").id(), idempotent.id());
    assert!(sluice.terminate().success());
    let epochs = epochs(&target.join("idem-0"));
    let (new, old) = epochs.split_last().expect("batches");
    assert!(old.iter().all(|epoch| epoch < new), "{epochs:?}");
    verify(&target);
}

fn partitions(topic: &str) -> i32 {
    if topic == "codecs" { 2 } else { 1 }
}

#[test]
fn p25_a_running_broker_and_one_that_was_killed_are_refused() {
    let often = "replica.high.watermark.checkpoint.interval.ms=100";
    let Some(mut kafka) = ApacheKafka::start(often) else { return };
    let tools = kafka.tools().clone();
    tool(&tools, &kafka.bootstrap(), "topics --create --topic t");
    fill::numbered(&kafka.bootstrap(), "t", 10);
    // Without a single high watermark nothing can be taken of a broker that was killed.
    let checkpoint = kafka.log_dir().join("replication-offset-checkpoint");
    let is_written = || std::fs::read_to_string(&checkpoint).is_ok_and(|text| text.contains("t 0 "));
    assert!(wait_until(Duration::from_secs(30), is_written), "Kafka writes its high watermarks");
    let work = TempDir::new().expect("a temporary folder can be made");
    let target = work.path().join("data");
    let dir = kafka.log_dir();
    let running = import(&dir, &target, &[]);
    assert!(running.stderr.contains("is in use; stop the Kafka broker"), "{running}");
    kafka.kill();
    let killed = import(&dir, &target, &[]);
    assert!(killed.stderr.contains("was not closed in order"), "{killed}");
    assert!(!target.join("t-0").exists());
    // Its last checkpoint may lie before the records: what was taken is a beginning of them, in order.
    import(&dir, &target, &["--unclean"]).expect_success();
    let sluice = BrokerProcess::start_on(&target, &[]);
    let read = numbers(&dump(sluice.bootstrap(), "t", Isolation::Uncommitted));
    assert_eq!(read, (0..read.len()).map(|i| i.to_string()).collect::<Vec<_>>());
    let opened = run("sluice serve", serve(&dir), b"", IMPORT_LIMIT);
    assert!(opened.to_string().contains("take it over with sluice import"), "{opened}");
    assert!(dir.join("t-0").exists(), "a Kafka directory is left alone");
}

fn serve(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir);
    command
}
