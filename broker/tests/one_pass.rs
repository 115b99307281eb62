//! A batch is inflated once on its way to the disk. Alone in its file: the counter is the process's.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use records::batch::BatchBuilder;
use records::compression::payloads_opened;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use tokio::time::sleep;

use share::{ALL, Setup, produce_to};

const RESTARTS_MAX: usize = 20;

#[tokio::test]
async fn p23_validation_costs_one_pass_with_a_key_index_and_without() {
    let setup = Setup::new("key").await;
    setup.server.topic("plain").await;
    setup.produce(1).await;
    // After a restart the index is on, and no group is there that would read the log: once it was begun, which happens
    // beside everything else.
    let mut setup = setup;
    for _ in 0..RESTARTS_MAX {
        setup.joined("a").await.fetch(ALL).await;
        sleep(Duration::from_millis(50)).await;
        setup = setup.restarted().await;
        let partition = PartitionId { topic: TopicId(setup.topic), index: 0 };
        if setup.server.running.broker().keyed.contains(partition) {
            break;
        }
    }
    let broker = setup.server.running.broker();
    let mut batch = BatchBuilder::new(Codec::Zstd, TimestampType::Create);
    for number in 0..10_000 {
        batch.append(0, Some(format!("key-{number}").as_bytes()), Some(&[7; 100]), &[]);
    }
    let batch = batch.build(Offset(0), -1);
    for policy in ["delete", "compact"] {
        for topic in ["t", "plain"] {
            let configs = [("cleanup.policy".to_owned(), policy.to_owned())].into();
            broker.catalog.set_topic_configs(topic, configs).await.unwrap();
            let id = broker.catalog.image().topic(topic).unwrap().id;
            let partition = PartitionId { topic: TopicId(id.0), index: 0 };
            assert_eq!(broker.keyed.contains(partition), topic == "t");
            let before = payloads_opened();
            for _ in 0..3 {
                assert_eq!(produce_to(&setup.server, topic, batch.clone()).await.0, 0);
            }
            assert_eq!(payloads_opened() - before, 3, "{topic} {policy}");
        }
    }
}
