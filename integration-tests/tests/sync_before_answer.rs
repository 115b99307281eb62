//! Before each answer with acks=all a sync of that log file, begun after the batch's write, has returned: read off the
//! broker's system calls under load. kill -9 cannot show this, since the page cache outlives the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::thread;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::{ToolChain, require};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

/// Connections, each with a partition of its own.
const CONNECTIONS: i32 = 8;
/// Requests of each.
const REQUESTS: usize = 60;
const TOPIC: TopicName = TopicName(StrBytes::from_static_str("t"));

/// A system call: where its beginning and its end stand in the trace.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    /// The file or socket.
    target: String,
    begins: usize,
    ends: usize,
    ok: bool,
}

#[test]
fn an_answer_with_acks_all_follows_a_sync_that_began_after_its_write() {
    if require(ToolChain::Strace).is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let trace = dir.path().join("trace");
    // -D: the tracer is the grandchild, so that the child is the broker.
    let calls = "trace=pwrite64,pwritev,pwritev2,write,writev,sendto,sendmsg,fdatasync,fsync,syncfs";
    let mut wrapper: Vec<OsString> = ["strace", "-D", "-f", "-yy", "-e", calls, "-o"].map(Into::into).into();
    wrapper.push(trace.clone().into());
    let mut broker = BrokerProcess::start_under(wrapper, &dir.path().join("data"), &[]);
    create_topic(broker.bootstrap());
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|partition| {
            let address = broker.bootstrap().to_owned();
            thread::spawn(move || produce(&address, partition))
        })
        .collect();
    let ports: Vec<u16> = connections.into_iter().map(|one| one.join().expect("it produces")).collect();
    assert!(broker.terminate().success(), "{}", broker.log());
    let calls = parse(&std::fs::read_to_string(&trace).expect("strace wrote"));

    for (partition, port) in ports.iter().enumerate() {
        assert_eq!(unsynced(&calls, partition, *port), [] as [usize; 0], "partition {partition}");
    }
    // The same trace without its syncs: every answer is too early.
    let without: Vec<Call> = calls.iter().filter(|call| !call.name.contains("sync")).cloned().collect();
    for (partition, port) in ports.iter().enumerate() {
        assert_eq!(unsynced(&without, partition, *port).len(), REQUESTS);
    }
    let syncs = calls.len() - without.len();
    println!("{} answers, {syncs} syncs", REQUESTS * ports.len());
}

/// The numbers of the answers on this connection that no sync covers.
fn unsynced(calls: &[Call], partition: usize, port: u16) -> Vec<usize> {
    let directory = format!("/t-{partition}/");
    let peer = format!("->127.0.0.1:{port}]");
    let is_log = |call: &&Call| call.target.contains(&directory) && call.target.contains(".log");
    let writes: Vec<&Call> =
        calls.iter().filter(is_log).filter(|call| call.name.starts_with("pwrite")).collect();
    let answers: Vec<&Call> = calls.iter().filter(|call| call.target.contains(&peer)).collect();
    assert_eq!((writes.len(), answers.len()), (REQUESTS, REQUESTS), "one write and one answer a request");
    let covers = |sync: &Call, write: &Call, answer: &Call| {
        let reaches = sync.name == "syncfs" || sync.target == write.target;
        sync.ok && reaches && write.ends < sync.begins && sync.ends < answer.begins
    };
    let syncs: Vec<&Call> = calls.iter().filter(|call| call.name.contains("sync")).collect();
    (0..REQUESTS)
        .filter(|&number| !syncs.iter().any(|sync| covers(sync, writes[number], answers[number])))
        .collect()
}

/// Reads what strace wrote: one line a call, or two where others came between.
fn parse(text: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let Some((process, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let ok = |text: &str| {
            text.rsplit_once("= ")
                .is_some_and(|(_, value)| !value.starts_with('-') && !value.starts_with('?'))
        };
        if rest.starts_with("<... ") {
            if let Some(index) = open.remove(process) {
                calls[index].ends = number;
                calls[index].ok = ok(rest);
            }
            continue;
        }
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        let target = arguments.split_once('<').map_or("", |(_, target)| target);
        // A socket's name holds `->`; the end of a name is `>` before `,`, `)` or the rest of the line.
        let end = ["]>", ">,", ">)", "> "].iter().filter_map(|mark| target.find(mark)).min().unwrap_or(0);
        let target = target[..end].to_owned() + if target[end..].starts_with("]>") { "]" } else { "" };
        let is_open = rest.ends_with("<unfinished ...>");
        if is_open {
            open.insert(process, calls.len());
        }
        let ends = if is_open { usize::MAX } else { number };
        calls.push(Call { name: name.to_owned(), target, begins: number, ends, ok: !is_open && ok(rest) });
    }
    calls
}

fn create_topic(address: &str) {
    let segment = CreatableTopicConfig::default()
        .with_name(StrBytes::from_static_str("segment.bytes"))
        .with_value(Some(StrBytes::from_static_str("1048576")));
    let topic = CreatableTopic::default()
        .with_name(TOPIC)
        .with_num_partitions(CONNECTIONS)
        .with_replication_factor(1)
        .with_configs(vec![segment]);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    let created = ApiClient::connect(address).call(7, &request).topics.remove(0);
    assert_eq!(created.error_code, 0, "{created:?}");
}

/// Produces one batch after the other and says the connection's port.
fn produce(address: &str, partition: i32) -> u16 {
    let mut client = ApiClient::connect(address);
    for _ in 0..REQUESTS {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        // Large enough for segments to be rolled on the way.
        batch.append(1_700_000_000_000, Some(b"k"), Some(&[b'v'; 40_000]), &[]);
        let records = batch.build(Offset(0), -1);
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
        let data = TopicProduceData::default().with_name(TOPIC).with_partition_data(vec![data]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![data]);
        let answer = client.call(9, &request);
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "{answer:?}");
    }
    client.local_address().port()
}
