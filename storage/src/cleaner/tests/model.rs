//! Random records, compactions and clock steps against a map of the last value of each key.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Options;

type Batch = Vec<(u8, bool)>;

#[derive(Clone, Debug)]
enum Step {
    Append { codec: usize, records: Batch },
    Roll,
    Clean { later_ms: i64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0_u8..12, proptest::bool::weighted(0.2));
    prop_oneof![
        8 => (0_usize..5, proptest::collection::vec(record, 1..6))
            .prop_map(|(codec, records)| Step::Append { codec, records }),
        2 => Just(Step::Roll),
        3 => (0_i64..900).prop_map(|later_ms| Step::Clean { later_ms }),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_last_record_of_each_key_is_there_and_below_the_checkpoint_nothing_else(
        steps in proptest::collection::vec(step(), 1..80),
        dedupe_bytes in 400_usize..4000,
    ) {
        let mut options = Options::default();
        options.cleaner.dedupe_bytes = dedupe_bytes;
        let mut world = World::with_options(1, compacted(), options);
        let mut written: Vec<Seen> = Vec::new();
        let mut now = NOW;
        // When each tombstone was first seen by a compaction at the latest.
        let mut seen_at: BTreeMap<i64, i64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Append { codec, records } => {
                    let records: Vec<(String, Option<String>)> = records
                        .iter()
                        .map(|(key, gone)| (format!("k{key}"), (!gone).then(|| format!("v{}", written.len()))))
                        .collect();
                    let borrowed: Vec<_> =
                        records.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                    let base = world.append(batch_of(Codec::ALL[codec], &borrowed)).unwrap().base_offset.0;
                    written.extend((base..).zip(records).map(|(offset, (key, value))| (offset, key, value)));
                }
                Step::Roll => roll(&mut world),
                Step::Clean { later_ms } => {
                    now += later_ms;
                    clean(&mut world, now);
                    for (offset, _, value) in read(&mut world) {
                        if value.is_none() {
                            seen_at.entry(offset).or_insert(now);
                        }
                    }
                }
                Step::Restart => world.kill(),
            }
            let left = read(&mut world);
            prop_assert!(left.is_sorted());
            let cleaned_to = world.logs().cleaning_facts(partition(0)).unwrap().cleaned_to.map_or(0, |at| at.0);
            let mut last: BTreeMap<&str, &Seen> = BTreeMap::new();
            for record in &written {
                last.insert(&record.1, record);
            }
            for record in &left {
                prop_assert_eq!(record, &written[record.0 as usize], "what is there was written there");
            }
            for record in last.values() {
                let since = seen_at.get(&record.0).copied();
                let may_be_gone = record.2.is_none() && since.is_some_and(|since| now >= since + 1000);
                prop_assert!(left.contains(record) || may_be_gone, "{:?} of {:?}", record, left);
            }
            for record in &written[cleaned_to as usize..] {
                prop_assert!(left.contains(record), "{record:?} was not compacted so far {:?}", world.logs().cleaning_facts(partition(0)));
            }
            let below: Vec<&str> =
                left.iter().filter(|(at, ..)| *at < cleaned_to).map(|(_, key, _)| key.as_str()).collect();
            let mut once = below.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), below.len(), "each key once: {:?}", below);
            prop_assert_eq!(world.facts().end.0, written.len() as i64);
        }
    }
}
