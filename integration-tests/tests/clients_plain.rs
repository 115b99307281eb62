//! Every client that users have produces, consumes and joins a group, each with the records of all the others.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use integration_tests::event_log::{Event, What};
use integration_tests::foreign::{Client, KafkaTools, Probe, Role, RunningProbe, ToolChain, require};
use integration_tests::process::{Process, run};
use integration_tests::test_broker::TestBroker;

const RECORDS_EACH: usize = 500;
const LIMIT: Duration = Duration::from_secs(90);

fn places(events: &[Event], what: What) -> Vec<(i64, Option<String>)> {
    events.iter().filter(|event| event.what == what).map(|event| (event.offset, event.key.clone())).collect()
}

#[test]
fn every_client_reads_what_every_client_wrote() {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let readers: Vec<Client> =
        Client::PLAIN.into_iter().filter(|&client| client != Client::KafkaJs).collect();
    write_and_read(&codecs, &readers);
}

/// kafkajs comes without snappy, lz4 and zstd.
#[test]
fn kafkajs_reads_what_every_client_wrote() {
    write_and_read(&["none", "gzip"], &[Client::KafkaJs]);
}

fn write_and_read(codecs: &[&str], readers: &[Client]) {
    let Some(tools) = KafkaTools::require() else { return };
    let Some(broker) = TestBroker::start() else { return };
    let bootstrap = broker.bootstrap();
    broker.create_topic(&tools, "mixed", 1);
    let logs = tempfile::tempdir().expect("a temporary folder can be made");

    let mut produced = Vec::new();
    for (client, codec) in Client::PLAIN.into_iter().zip(codecs.iter().cycle()) {
        let Some(probe) = Probe::require(client, Role::Produce, &format!("produce-{client:?}")) else {
            return;
        };
        let probe = probe.option("records", &RECORDS_EACH.to_string()).option("keyless-percent", "5");
        let mut running = probe.option("compression", codec).spawn(&bootstrap, "mixed", logs.path());
        running.expect_end(LIMIT);
        let own = places(&running.events(), What::Produced);
        assert_eq!(own.len(), RECORDS_EACH, "{client:?}: {}", running.stderr());
        produced.extend(own);
    }
    produced.sort();
    let offsets: HashSet<i64> = produced.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets.len(), RECORDS_EACH * Client::PLAIN.len(), "two records were told the same offset");

    for &client in readers {
        let name = format!("consume-{client:?}");
        let Some(probe) = Probe::require(client, Role::Consume, &name) else { return };
        let probe = probe.option("records", &produced.len().to_string()).option("group", &name);
        let mut running = probe.spawn(&bootstrap, "mixed", logs.path());
        running.expect_end(LIMIT);
        let read = places(&running.events(), What::Consumed);
        let first_difference = read.iter().zip(&produced).find(|(read, produced)| read != produced);
        assert!(
            read.len() == produced.len() && first_difference.is_none(),
            "{client:?} read {} of {} records, first difference {first_difference:?}: {}",
            read.len(),
            produced.len(),
            running.stderr()
        );
    }
}

#[test]
fn members_of_one_group_share_the_partitions_and_hand_them_on() {
    let Some(tools) = KafkaTools::require() else { return };
    let Some(broker) = TestBroker::start() else { return };
    let bootstrap = broker.bootstrap();
    for client in [Client::Java44, Client::Librdkafka, Client::FranzGo, Client::KafkaJs] {
        let topic = format!("shared-{client:?}");
        broker.create_topic(&tools, &topic, 4);
        let logs = tempfile::tempdir().expect("a temporary folder can be made");
        let mut members = Vec::new();
        for name in ["first", "second"] {
            let Some(probe) = Probe::require(client, Role::Consume, name) else { return };
            members.push(probe.option("group", &topic).spawn(&bootstrap, &topic, logs.path()));
        }
        let mut produced = 0;
        let mut round = 0;
        // Until both have a share: how long a rebalance takes is the client's affair.
        let both = integration_tests::real_time::wait_until(LIMIT, || {
            round += 1;
            let Some(probe) = Probe::require(Client::FranzGo, Role::Produce, &format!("p{round}")) else {
                return true;
            };
            let probe =
                probe.option("records", "200").option("keys", "100").option("seed", &round.to_string());
            let mut producer = probe.spawn(&bootstrap, &topic, logs.path());
            producer.expect_end(LIMIT);
            produced += 200;
            members.iter().all(|member| member.count(What::Consumed) > 0)
        });
        assert!(both, "{client:?}: one member got nothing: {}", members[1].stderr());
        members[1].ask_to_stop();
        members[1].expect_end(LIMIT);
        let all = integration_tests::real_time::wait_until(LIMIT, || {
            let events: Vec<Event> = members.iter().flat_map(RunningProbe::events).collect();
            let seen: HashSet<(i32, i64)> = events
                .iter()
                .filter(|event| event.what == What::Consumed)
                .map(|event| (event.partition, event.offset))
                .collect();
            seen.len() == produced
        });
        assert!(all, "{client:?}: not all of {produced} records arrived: {}", members[0].stderr());
    }
}

#[test]
fn kcat_produces_consumes_and_joins_a_group() {
    if require(ToolChain::Kcat).is_none() {
        return;
    }
    let Some(tools) = KafkaTools::require() else { return };
    let Some(broker) = TestBroker::start() else { return };
    let bootstrap = broker.bootstrap();
    broker.create_topic(&tools, "cats", 1);
    let kcat = |arguments: &[&str]| {
        let mut command = Command::new("kcat");
        command.args(["-b", &bootstrap]).args(arguments);
        command
    };
    let input: String = (0..100).map(|i| format!("k{}:v{i}\n", i % 7)).collect();
    run("kcat -P", kcat(&["-P", "-t", "cats", "-K:", "-z", "lz4"]), input.as_bytes(), LIMIT).expect_success();
    let read = run("kcat -C", kcat(&["-C", "-t", "cats", "-K:", "-e", "-q", "-o", "beginning"]), b"", LIMIT);
    assert_eq!(read.expect_success().stdout, input);

    let listed = run("kcat -L", kcat(&["-L", "-t", "cats"]), b"", LIMIT);
    assert!(listed.expect_success().stdout.contains("topic \"cats\" with 1 partitions"), "{listed}");

    let member = Process::spawn(
        "kcat -G",
        kcat(&["-G", "kittens", "-q", "-u", "-X", "auto.offset.reset=earliest", "cats"]),
    );
    assert!(member.wait_for_line(LIMIT, |line| line == "v99").is_some(), "{}", member.stderr());
    assert_eq!(member.stdout().lines().count(), 100);
}
