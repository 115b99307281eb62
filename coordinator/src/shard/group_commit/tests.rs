//! Whoever asks is covered by one sync that began after the asking, and by no earlier one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use records::ids::{PartitionId, TopicId};

use super::GroupCommit;
use crate::io::{OpId, Submission};

fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([1; 16]), index }
}

fn begun(commit: &mut GroupCommit) -> Vec<(OpId, PartitionId)> {
    let begun = commit.begin().into_iter();
    begun
        .map(|submission| match submission {
            Submission::Sync { op, partition } => (op, partition),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_next_sync_serves_all_that_waited_for_the_last() {
    let mut commit = GroupCommit::default();
    commit.ask(partition(0), OpId(1));
    assert_eq!(begun(&mut commit), [(OpId(1), partition(0))]);
    commit.ask(partition(0), OpId(2));
    commit.ask(partition(0), OpId(3));
    commit.ask(partition(1), OpId(4));
    assert_eq!(begun(&mut commit), [(OpId(4), partition(1))], "partitions do not wait for each other");
    assert_eq!(commit.finish(OpId(1)), [OpId(1)]);
    assert_eq!(begun(&mut commit), [(OpId(2), partition(0))]);
    assert_eq!(commit.finish(OpId(2)), [OpId(2), OpId(3)]);
    assert_eq!(commit.finish(OpId(2)), [], "once");
    assert_eq!(begun(&mut commit), []);
}

proptest! {
    #[test]
    fn one_in_flight_and_everybody_covered_once(acts in proptest::collection::vec((0..3_u8, 0..3_i32), 1..200)) {
        let mut commit = GroupCommit::default();
        let mut op_next = 0;
        let mut turn = 0_u64;
        let mut asked: BTreeMap<OpId, u64> = BTreeMap::new();
        let mut in_flight: BTreeMap<PartitionId, (OpId, u64)> = BTreeMap::new();
        let finish = |commit: &mut GroupCommit, asked: &mut BTreeMap<OpId, u64>, op: OpId, began: u64| {
            for covered in commit.finish(op) {
                let when = asked.remove(&covered).expect("covered once");
                assert!(when <= began, "asked after the sync began");
            }
        };
        for (act, index) in acts {
            turn += 1;
            match act {
                0 => {
                    op_next += 1;
                    asked.insert(OpId(op_next), turn);
                    commit.ask(partition(index), OpId(op_next));
                }
                1 => {
                    for (op, partition) in begun(&mut commit) {
                        prop_assert!(in_flight.insert(partition, (op, turn)).is_none(), "one at a time");
                    }
                }
                _ => {
                    if let Some((op, began)) = in_flight.remove(&partition(index)) {
                        finish(&mut commit, &mut asked, op, began);
                    }
                }
            }
        }
        // Nobody waits for more than the one in flight and one of its own.
        for _ in 0..2 {
            for (_, (op, began)) in std::mem::take(&mut in_flight) {
                finish(&mut commit, &mut asked, op, began);
            }
            turn += 1;
            in_flight.extend(begun(&mut commit).into_iter().map(|(op, partition)| (partition, (op, turn))));
        }
        prop_assert!(in_flight.is_empty());
        prop_assert!(asked.is_empty());
    }
}
