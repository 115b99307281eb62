//! All logs at a glance, for operators: sums over all of them, and some of them one by one.

use records::ids::{Offset, PartitionId};

use crate::cleaner::CleaningFacts;
use crate::key_index::KeyIndexFacts;
use crate::logs::{Logs, OpenLog};

/// What opening the logs cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryFacts {
    /// Logs whose end was checked, since they were not closed in order.
    pub logs: u64,
    /// Bytes of log that were read for it.
    pub bytes: u64,
    /// Stretches of offsets that were missing between the segments of logs, as far as that can be told.
    pub gaps: usize,
}

/// One log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogView {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Bytes of record data.
    pub bytes: u64,
    /// Segments.
    pub segments: usize,
    /// The first offset there is.
    pub log_start: Offset,
    /// The offset behind the last record.
    pub end: Offset,
    /// Bytes of records that compaction has not seen yet over all that it has or will see, 0 to 1; `None` where the log
    /// is not compacted.
    pub dirty_ratio: Option<f64>,
    /// What compaction did since the start.
    pub cleaning: CleaningFacts,
    /// Its key index, where it is on.
    pub key_index: Option<KeyIndexFacts>,
}

/// All logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// How many.
    pub logs: usize,
    /// Bytes of record data.
    pub bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Logs whose key index is on.
    pub key_indexes: usize,
    /// Those of them of which every record is indexed.
    pub key_indexes_complete: usize,
    /// Bytes of key index files.
    pub key_index_bytes: u64,
    /// What opening them cost.
    pub recovery: RecoveryFacts,
    /// The largest ones, those with most bytes first.
    pub largest: Vec<LogView>,
}

impl Logs {
    /// A look at all open logs, of which `count` at most are told one by one. Reads nothing from the disk.
    #[must_use]
    pub fn overview(&self, count: usize) -> Overview {
        let mut overview = Overview { logs: self.logs.len(), recovery: self.recovery, ..Overview::default() };
        let mut sizes: Vec<(u64, PartitionId)> = Vec::with_capacity(self.logs.len());
        for (id, open) in &self.logs {
            let bytes = open.log.facts().bytes;
            sizes.push((bytes, *id));
            overview.bytes += bytes;
            overview.segments += open.log.segment_count();
            if let Some(keys) = open.log.key_facts() {
                overview.key_indexes += 1;
                overview.key_indexes_complete += usize::from(keys.is_complete());
                overview.key_index_bytes += keys.file_bytes;
            }
        }
        // Of equals the same ones each time.
        sizes.sort_unstable_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
        sizes.truncate(count);
        overview.largest = sizes.iter().map(|(_, id)| self.view(&self.logs[id])).collect();
        overview
    }

    fn view(&self, open: &OpenLog) -> LogView {
        let facts = open.log.facts();
        let cleaned_to = self.cleaned.get(&open.name).copied();
        let mut cleaning = open.cleaning.clone();
        cleaning.cleaned_to = cleaned_to;
        LogView {
            topic: open.name.0.clone(),
            partition: open.name.1,
            bytes: facts.bytes,
            segments: open.log.segment_count(),
            log_start: facts.log_start,
            end: facts.end,
            dirty_ratio: open.log.dirty_ratio(cleaned_to),
            cleaning,
            key_index: open.log.key_facts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use records::Codec;
    use records::ids::Offset;

    use crate::LogConfig;
    use crate::testing::{NOW, World, batch_of, partition};

    fn fill(world: &mut World) {
        for round in 0..60 {
            world.append(batch_of(Codec::None, &[NOW + round, NOW + round])).unwrap();
        }
    }

    #[test]
    fn sums_and_the_largest_logs() {
        let config = LogConfig { segment_bytes: 2000, compact: true, ..LogConfig::default() };
        let mut world = World::with(1, config.clone());
        fill(&mut world);
        world.logs().open_partition(partition(1), "t", config).unwrap();
        world.logs().enable_key_index(partition(0)).unwrap();
        let overview = world.logs().overview(1);
        assert_eq!((overview.logs, overview.key_indexes, overview.key_indexes_complete), (2, 1, 0));
        assert_eq!(overview.bytes, world.facts().bytes);
        assert_eq!(overview.largest.len(), 1);
        let view = &overview.largest[0];
        assert_eq!((view.topic.as_str(), view.partition, view.bytes), ("t", 0, overview.bytes));
        assert_eq!((view.log_start, view.end), (Offset(0), Offset(120)));
        assert!(view.segments > 2 && view.segments == overview.segments);
        assert_eq!(view.dirty_ratio, Some(1.0), "nothing was compacted");
        while world.logs().build_key_index(partition(0), 100_000).unwrap().more {}
        let overview = world.logs().overview(5);
        assert_eq!((overview.key_indexes_complete, overview.largest.len()), (1, 2));
        assert!(overview.key_index_bytes > 0);
        assert_eq!(overview.largest[1].dirty_ratio, Some(0.0), "an empty log is clean");
    }

    #[test]
    fn compaction_makes_a_log_less_dirty() {
        let config = LogConfig { segment_bytes: 2000, compact: true, ..LogConfig::default() };
        let mut world = World::with(1, config);
        fill(&mut world);
        let mut job = world.logs().clean_job(NOW);
        while let Some(next) = job {
            let step = next.run(1 << 20);
            job = world.logs().clean_done(step);
        }
        let view = world.logs().overview(1).largest.remove(0);
        assert_eq!((view.cleaning.runs, view.cleaning.last_run_ms), (1, Some(NOW)));
        assert!(view.cleaning.read_bytes > 0 && view.cleaning.cleaned_to > Some(Offset(0)));
        assert_eq!(view.dirty_ratio, Some(0.0));
    }

    #[test]
    fn a_start_after_a_kill_tells_what_it_read() {
        let mut world = World::with(1, LogConfig::default());
        fill(&mut world);
        let bytes = world.facts().bytes;
        assert_eq!(world.logs().overview(0).recovery, super::RecoveryFacts::default());
        world.kill();
        assert_eq!(world.logs().overview(0).recovery, super::RecoveryFacts { logs: 1, bytes, gaps: 0 });
        world.clean_restart();
        assert_eq!(world.logs().overview(0).recovery, super::RecoveryFacts::default());
    }
}
