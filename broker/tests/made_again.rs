//! A topic that is deleted and made again under the same name is another topic (case R03).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use bytes::Bytes;
use coordinator::command::{Acks, Command, Produce};
use coordinator::reply::Reply;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use records::Codec;
use records::batch::BatchView;
use uuid::Uuid;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/offsets.rs"]
mod offsets;
#[path = "common/produce.rs"]
mod produce;
#[path = "common/share.rs"]
mod share;

use client::Client;
use common::Server;
use offsets::{commit, committed};
use produce::{batch, edited, end, numbered, offset_for, produce, stored, with_attributes};
use share::{ACCEPT, ALL, Fetch, PATIENT, Setup};

/// Appends a batch as it is, past the handler: clients cannot write transactions yet.
async fn append(server: &Server, batch: Bytes) {
    let partition = server.running.broker().catalog.image().topic("t").unwrap().partition(0).unwrap();
    let produce = Produce { acks: Acks::Written, parts: vec![(partition, batch.into())] };
    match server.running.broker().shard.call(Command::Produce(produce)).await.unwrap() {
        Reply::Produced(parts) => assert!(parts[0].is_ok()),
        other => panic!("{other:?}"),
    }
}

fn by_id(id: [u8; 16], offset: i64) -> FetchRequest {
    let part = FetchPartition::default()
        .with_fetch_offset(offset)
        .with_current_leader_epoch(-1)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic_id(Uuid::from_bytes(id)).with_partitions(vec![part]);
    FetchRequest::default().with_min_bytes(1).with_session_epoch(-1).with_topics(vec![topic])
}

/// Codes of the partitions of an answer, the answer's own among them.
async fn codes(client: &mut Client, request: &FetchRequest) -> BTreeSet<i16> {
    let answer = client.call(15, request).await;
    let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
    parts.map(|part| part.error_code).chain([answer.error_code]).filter(|code| *code != 0).collect()
}

#[tokio::test]
async fn r03_nothing_of_the_old_topic_shows_up_in_the_new_one() {
    for order in ["none", "key"] {
        for restarts in [false, true] {
            let setup = Setup::new(order).await;
            let mut client = Client::new(&setup.server).await;
            // Everything that is kept of a partition.
            assert_eq!(
                produce(&setup.server, &mut client, "t", numbered(Codec::None, (7, 3), 0, 10)).await.short(),
                (0, 0)
            );
            let open = edited(&batch(Codec::None, 2), |bytes| bytes[43..57].fill(0));
            append(&setup.server, with_attributes(&open, 0x10)).await;
            let mut code = commit(&mut client, 5).await;
            for _ in 0..10_000 {
                if code == 0 {
                    break;
                }
                code = commit(&mut client, 5).await;
            }
            assert_eq!(code, 0);
            let old = setup.topic;
            let opened = client.call(15, &by_id(old, 0).with_session_epoch(0)).await;
            assert!(opened.session_id > 0);
            let mut member = setup.joined("a").await;
            let acquired = member.fetch(PATIENT).await.acquired();
            assert!(!acquired.is_empty());
            let (first, ..) = acquired[0];
            member.fetch(Fetch { acks: &[(first, first, &[ACCEPT])], ..ALL }).await;

            let catalog = &setup.server.running.broker().catalog;
            let topic = catalog.image().topic("t").unwrap().id;
            catalog.delete(topic).await.unwrap();
            assert_eq!(codes(&mut client, &by_id(old, 0)).await, [100].into());
            assert_eq!(member.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), []);
            catalog.ensure("t").await.unwrap();

            let setup = if restarts { setup.restarted().await } else { Setup::on(setup.server).await };
            let mut client = Client::new(&setup.server).await;
            assert_ne!(setup.topic, old);
            assert_eq!(offset_for(&mut client, "t", -2).await, (0, 0, -1));
            assert_eq!(end(&mut client, "t").await, 0);
            // The same batch of the same producer is no duplicate, and an older epoch of it is not fenced.
            for (base, epoch) in [(0, 2), (3, 3)] {
                let sent = numbered(Codec::None, (7, epoch), 0, 3);
                let said = produce(&setup.server, &mut client, "t", sent).await;
                assert_eq!(said.short(), (0, base));
            }
            let batches = stored(&mut client, "t", 0).await;
            assert_eq!(BatchView::parse(&batches[0]).unwrap().record_count(), 3);
            // No open transaction holds readers of committed records back.
            let new = by_id(setup.topic, 0).with_isolation_level(1);
            let answer = client.call(15, &new).await;
            assert_eq!(answer.responses[0].partitions[0].last_stable_offset, 6);
            // The old id is unknown, in sessions and outside.
            assert!(codes(&mut client, &by_id(old, 0)).await.iter().all(|code| matches!(code, 100 | 103)));
            let mut again = FetchRequest::default().with_min_bytes(1).with_session_epoch(1);
            again.session_id = opened.session_id;
            let code = codes(&mut client, &again).await;
            assert!(code.len() == 1 && code.iter().all(|code| matches!(code, 70 | 100 | 103)), "{code:?}");
            assert_eq!(committed(&mut client).await, -1, "offsets go with their topic");
            // The group takes all of it, for the first time.
            let mut member = setup.joined("b").await;
            let (mut seen, mut rounds) = (Vec::new(), 0);
            while seen.len() < 6 {
                let acquired = member.fetch(PATIENT).await.acquired();
                assert!(acquired.iter().all(|(_, _, count)| *count == 1), "{acquired:?}");
                seen.extend(acquired.iter().flat_map(|(first, last, _)| *first..=*last));
                let acks: Vec<_> =
                    acquired.iter().map(|(first, last, _)| (*first, *last, &[ACCEPT][..])).collect();
                assert_eq!(member.acknowledge(false, &acks).await, (0, vec![(0, 0)]));
                rounds += 1;
                assert!(rounds < 20, "{seen:?}");
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5], "{order}, restart: {restarts}");
        }
    }
}
