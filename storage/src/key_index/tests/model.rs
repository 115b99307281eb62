//! Random appends, deletions, building steps, damage and crashes, checked against a list of what is in the log.

use proptest::prelude::*;
use records::Codec;
use records::ids::{KeyHash, Offset};

use super::super::{KeyFilter, KeyJob, KeyWork, KeyedRecord};
use super::{TINY, check, control_batch, hash};
use crate::testing::{NOW, World, partition};
use crate::{LogConfig, Origin};

#[derive(Clone, Debug)]
enum Step {
    Append { keys: Vec<u32>, codec: usize, hashed: bool },
    Control,
    Enable,
    Drop,
    Build { bytes: u64 },
    BuildFails,
    Work,
    Finish { job: usize },
    Sync,
    DeleteRecords { part: i64 },
    Retention,
    Checkpoint,
    Spoil { file: usize, at: u64, how: u8 },
    Check,
    Kill,
    PowerCut,
    CleanRestart,
}

/// A key out of few that are frequent and many that are not; 0 is none.
fn key() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1_u32..3, 3 => 3_u32..12, 3 => 12_u32..2000, 1 => Just(0)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (proptest::collection::vec(key(), 1..40), 0_usize..5, any::<bool>())
            .prop_map(|(keys, codec, hashed)| Step::Append { keys, codec, hashed }),
        2 => Just(Step::Control),
        3 => Just(Step::Enable),
        1 => Just(Step::Drop),
        6 => (1_u64..3000).prop_map(|bytes| Step::Build { bytes }),
        1 => Just(Step::BuildFails),
        6 => Just(Step::Work),
        4 => any::<usize>().prop_map(|job| Step::Finish { job }),
        4 => Just(Step::Sync),
        2 => (0_i64..4).prop_map(|part| Step::DeleteRecords { part }),
        1 => Just(Step::Retention),
        2 => Just(Step::Checkpoint),
        3 => (any::<usize>(), any::<u64>(), 0_u8..3).prop_map(|(file, at, how)| Step::Spoil { file, at, how }),
        4 => Just(Step::Check),
        2 => Just(Step::Kill),
        3 => Just(Step::PowerCut),
        2 => Just(Step::CleanRestart),
    ]
}

struct Model {
    world: World,
    records: Vec<KeyedRecord>,
    filters: Vec<KeyFilter>,
    /// Begun, and ended at whatever time and in whatever order.
    jobs: Vec<KeyJob>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let config = LogConfig {
            segment_bytes: 4000,
            index_interval_bytes: 300,
            retention_bytes: 20_000,
            ..LogConfig::default()
        };
        let mut filters: Vec<KeyFilter> =
            [1, 2, 7, 50, 5000].into_iter().filter_map(hash).map(KeyFilter::key).collect();
        filters.extend(
            [(0, 1), (1, 2), (2, 3), (9, 16), (777, 1024)].map(|(lane, of)| KeyFilter::lane(lane, of)),
        );
        filters.push(KeyFilter::range(KeyHash(1 << 60), KeyHash(3 << 61)));
        Self { world: World::with(seed, config), records: Vec::new(), filters, jobs: Vec::new() }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append { keys, codec, hashed } => {
                let codec = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd][*codec];
                let appended = self.world.append_keys(codec, keys, *hashed);
                let offsets = appended.base_offset.0..;
                self.records.extend(
                    keys.iter()
                        .zip(offsets)
                        .map(|(&key, offset)| KeyedRecord { offset: Offset(offset), key: hash(key) }),
                );
            }
            Step::Control => {
                let appended =
                    self.world.logs().append(partition(0), control_batch(), Origin::Coordinator, NOW);
                appended.unwrap();
            }
            Step::Enable => self.world.enable_keys(TINY),
            Step::Drop => {
                self.world.logs().drop_key_index(partition(0)).unwrap();
                assert_eq!(self.world.key_files(), []);
            }
            Step::Build { bytes } => {
                self.world.build_keys(*bytes);
            }
            Step::BuildFails => {
                self.world.sim.fail_writes(1);
                let _built = self.world.logs().build_key_index(partition(0), 1000);
                self.world.sim.fail_writes(0);
            }
            Step::Work => {
                match self.world.logs().key_work(partition(0)) {
                    Ok(KeyWork::Run(job)) => self.jobs.push(job),
                    Ok(KeyWork::Nothing | KeyWork::Stepped(_)) => {}
                    // As a step of building.
                    Err(_) => drop(self.world.logs().key_work(partition(0)).unwrap()),
                }
            }
            Step::Finish { job } => {
                if !self.jobs.is_empty() {
                    let job = self.jobs.swap_remove(job % self.jobs.len());
                    // A file that was removed meanwhile reads as it was, or not at all.
                    let _taken = self.world.logs().key_job_done(job.run());
                }
            }
            Step::Sync => {
                self.world.sync();
            }
            Step::DeleteRecords { part } => {
                let to = Offset(self.world.facts().synced.0 * part / 4);
                self.world.logs().delete_records(partition(0), to).unwrap();
                self.cut_start();
            }
            Step::Retention => {
                self.world.logs().enforce_retention(NOW).unwrap();
                self.cut_start();
            }
            Step::Checkpoint => self.world.logs().checkpoint().unwrap(),
            Step::Spoil { file, at, how } => self.spoil(*file, *at, *how),
            Step::Check => check(&mut self.world, &self.records, &self.filters),
            Step::Kill => {
                self.world.kill();
                self.restarted();
            }
            Step::PowerCut => {
                self.world.power_cut();
                self.restarted();
            }
            Step::CleanRestart => {
                self.world.clean_restart();
                self.restarted();
            }
        }
    }

    fn spoil(&mut self, file: usize, at: u64, how: u8) {
        let files = self.world.key_files();
        let Some((path, len)) = files.get(file % files.len().max(1)) else { return };
        let file = self.world.disk().open(path).unwrap();
        match how {
            0 => self.world.disk().remove_file(path).unwrap(),
            1 => file.set_len(at % (len + 1)).unwrap(),
            _ => file.write_all_at(&at.to_le_bytes(), at % (len + 1)).unwrap(),
        }
    }

    fn cut_start(&mut self) {
        let start = self.world.facts().log_start;
        self.records.retain(|record| record.offset >= start);
    }

    fn restarted(&mut self) {
        self.jobs.clear();
        let end = self.world.facts().end;
        self.records.retain(|record| record.offset < end);
        self.cut_start();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn every_look_up_is_as_in_a_list(
        seed in any::<u64>(),
        enabled in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut model = Model::new(seed);
        if enabled {
            model.run(&Step::Enable);
        }
        for step in &steps {
            model.run(step);
        }
        model.run(&Step::Check);
        model.run(&Step::Enable);
        model.world.build_all_keys();
        model.run(&Step::Check);
    }
}

/// `SLUICE_SIM_CASES` asks for more runs than the tests of every day take.
fn cases() -> u32 {
    std::env::var("SLUICE_SIM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20)
}
