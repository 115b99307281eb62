//! What a run is about: each seed leaves out some of what can happen, so that the rest comes together in other ways.

use records::TimestampType;
use storage::{CleanerOptions, FlushPolicy, LogConfig, Options};

use crate::random::Random;

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) topics: usize,
    pub(crate) partitions: i32,
    pub(crate) steps: u64,
    pub(crate) codecs: bool,
    pub(crate) producers: bool,
    pub(crate) events: bool,
    pub(crate) pages: bool,
    pub(crate) keys: bool,
    pub(crate) compacts: bool,
    pub(crate) deletes: bool,
    pub(crate) faults: bool,
    pub(crate) full: bool,
    /// The process dies within a call, not only between two.
    pub(crate) dies_within: bool,
    pub(crate) damages: bool,
    pub(crate) topics_come_and_go: bool,
    pub(crate) reconfigures: bool,
    pub(crate) slow: bool,
    /// Percent of the ends that are power cuts, and that are kills; the rest is orderly.
    pub(crate) cuts: u64,
    pub(crate) kills: u64,
    pub(crate) options: Options,
    /// `file.delete.delay.ms` of all logs.
    pub(crate) delete_delay_ms: i64,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let cleaner = CleanerOptions {
            jobs_max: 1,
            dedupe_bytes: random.pick(&[1024, 2048, 65_536]),
            dedupe_load: 0.9,
            io_bytes: random.pick(&[256, 4096]),
            backoff_ms: 15_000,
            seed: random.below(1 << 32),
        };
        Self {
            topics: random.between(1, 2) as usize,
            partitions: random.between(1, 2) as i32,
            steps: random.between(40, 110) as u64,
            codecs: random.percent(35),
            producers: random.percent(75),
            events: random.percent(70),
            pages: random.percent(60),
            keys: random.percent(45),
            compacts: random.percent(40),
            deletes: random.percent(60),
            faults: random.percent(40),
            full: random.percent(20),
            dies_within: random.percent(60),
            damages: random.percent(35),
            topics_come_and_go: random.percent(35),
            reconfigures: random.percent(40),
            slow: random.percent(20),
            cuts: random.pick(&[100, 50, 50, 34, 20]),
            kills: random.pick(&[0, 25, 33, 50]),
            options: Options {
                batch_cache_bytes: random.pick(&[2_000, 100_000]),
                inflated_bytes_max: 1 << 20,
                producer_expiry_ms: i64::MAX / 4,
                cleaner,
                ..Options::default()
            },
            delete_delay_ms: random.pick(&[0, 60_000, 60_000]),
        }
    }

    /// Settings of a log.
    pub(crate) fn config(&self, random: &mut Random) -> LogConfig {
        LogConfig {
            segment_bytes: random.pick(&[1024, 1024, 1400, 2500, 6000]),
            segment_index_bytes: random.pick(&[48, 120, 10_000]),
            segment_ms: random.pick(&[2_000, 604_800_000, 604_800_000]),
            segment_jitter_ms: random.pick(&[0, 0, 500]),
            index_interval_bytes: random.pick(&[0, 150, 400, 4096]),
            retention_bytes: if self.deletes { random.pick(&[-1, 1500, 5000]) } else { -1 },
            retention_ms: if self.deletes { random.pick(&[-1, 3_000, 20_000]) } else { -1 },
            delete: true,
            compact: self.compacts && random.percent(70),
            min_cleanable_dirty_ratio: random.pick(&[0.0, 0.3]),
            delete_retention_ms: random.pick(&[0, 2_000]),
            min_compaction_lag_ms: random.pick(&[0, 0, 1_000]),
            max_compaction_lag_ms: random.pick(&[i64::MAX, 5_000]),
            file_delete_delay_ms: self.delete_delay_ms,
            flush: random.pick(&[
                FlushPolicy::Acks,
                FlushPolicy::Acks,
                FlushPolicy::Interval(1_000),
                FlushPolicy::Os,
            ]),
            timestamp_type: random.pick(&[
                TimestampType::Create,
                TimestampType::Create,
                TimestampType::LogAppend,
            ]),
        }
    }
}
