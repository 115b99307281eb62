//! Which segments become one (Kafka's `Cleaner.groupSegmentsBySize`).

use std::collections::VecDeque;
use std::ops::Range;

use crate::log::Source;
use crate::options::LogConfig;

/// Neighbours that fit into one segment together, by file, index and offset range.
pub(crate) fn groups(sources: &[Source], config: &LogConfig) -> VecDeque<Range<usize>> {
    let mut groups = VecDeque::new();
    let mut start = 0;
    while start < sources.len() {
        let first = sources[start];
        let (mut bytes, mut index, mut times) = (first.bytes, first.index_bytes, first.time_index_bytes);
        let mut end = start + 1;
        while let Some(next) = sources.get(end) {
            bytes += next.bytes;
            index += next.index_bytes;
            times += next.time_index_bytes;
            let in_reach = next.bytes == 0 || next.behind - first.base - 1 <= i64::from(i32::MAX);
            let fits = bytes <= config.segment_limit()
                && index <= config.segment_index_bytes
                && times <= config.segment_index_bytes;
            if !fits || !in_reach {
                break;
            }
            end += 1;
        }
        groups.push_back(start..end);
        start = end;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::ids::Offset;

    fn source(base: i64, behind: i64, bytes: u64) -> Source {
        let (base, behind) = (Offset(base), Offset(behind));
        let index_bytes = bytes / 100;
        Source { base, bytes, behind, index_bytes, time_index_bytes: index_bytes, has_txn_index: false }
    }

    #[test]
    fn small_neighbours_become_one() {
        let config = LogConfig { segment_bytes: 2000, segment_index_bytes: 15, ..LogConfig::default() };
        let sources = [
            source(0, 10, 1900),
            source(10, 20, 500),
            source(20, 30, 600),
            source(30, 40, 300),
            source(40, 50, 200),
            source(50, 60, 5000),
        ];
        let by_size = LogConfig { segment_index_bytes: 1 << 20, ..config.clone() };
        assert_eq!(groups(&sources, &by_size), [0..1, 1..5, 5..6]);
        assert_eq!(groups(&sources, &config), [0..1, 1..4, 4..5, 5..6], "indexes have their bound too");
        assert!(groups(&[], &config).is_empty());
    }

    #[test]
    fn offsets_stay_within_reach_of_the_base() {
        let far = i64::from(i32::MAX);
        let sources = [source(0, 10, 1), source(10, far + 1, 1), source(far + 1, far + 2, 1)];
        assert_eq!(groups(&sources, &LogConfig::default()), [0..2, 2..3]);
        let emptied = [source(0, 10, 1), source(10, far * 2, 0), source(far * 2, far * 2 + 5, 1)];
        assert_eq!(groups(&emptied, &LogConfig::default()), [0..2, 2..3]);
    }
}
