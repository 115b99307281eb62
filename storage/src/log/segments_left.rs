//! Whether a log's segments are those that the last orderly stop left.

use std::collections::BTreeSet;

use records::ids::Offset;

use super::PartitionLog;
use crate::disk::join;
use crate::segment::{Found, Segment, file_name};
use crate::segment_list::Noted;

impl PartitionLog {
    /// The segments as they are left, together with those that are missing in the log: as long as the log start has not
    /// passed them, each start tells of them.
    pub(crate) fn noted_segments(&self) -> Vec<Noted> {
        let there =
            self.segments.iter().map(|segment| Noted { base: segment.base(), found: segment.found() });
        let is_due = |noted: &&Noted| noted.base >= self.log_start && self.index_of(noted.base).is_err();
        let mut noted: Vec<Noted> = there.chain(self.missing.iter().filter(is_due).copied()).collect();
        noted.sort_unstable_by_key(|noted| noted.base);
        noted
    }

    /// How many stretches of offsets are missing in the log's middle, as far as the start could tell.
    pub(crate) fn gaps(&self) -> usize {
        self.gaps
    }

    /// Compares the segments with those that were left, tells what is missing, and has indexes made anew that are not as
    /// long as they were.
    pub(super) fn compare_segments(&mut self, left: &[Noted]) {
        let last = left.last().map(|noted| noted.base);
        for (number, noted) in left.iter().enumerate() {
            let path = join(&self.directory, &file_name(noted.base, ".log"));
            let Ok(index) = self.index_of(noted.base) else {
                // Below the log start it was on its way out; of the last ones the log's end tells.
                let is_inside = self.segments.last().is_some_and(|segment| segment.base() > noted.base);
                if noted.base >= self.log_start && is_inside {
                    let next = left.get(number + 1).map_or(self.end, |next| next.base);
                    tracing::error!(
                        log = self.directory, file = path, from = %noted.base, to = %next,
                        "a segment is missing: readers of its offsets get an error, share groups take them for damaged; \
                         stop the broker and put the file back, or delete records up to its end"
                    );
                    self.missing.push(*noted);
                    self.gaps += 1;
                }
                continue;
            };
            let segment = &mut self.segments[index];
            let is_sealed = last != Some(noted.base);
            if is_sealed && segment.size() != noted.found.log {
                tracing::error!(
                    log = self.directory,
                    file = path,
                    was = noted.found.log,
                    is = segment.size(),
                    "a segment is not as long as the last stop left it: `sluice log verify` tells what is wrong with it"
                );
            }
            segment.compare_indexes(&noted.found);
        }
    }

    /// Without a list of what was left: indexes without a log between two segments tell of one that is gone. Where compaction
    /// has been they do not.
    pub(super) fn note_orphans(&mut self, orphans: &BTreeSet<Offset>) {
        for base in orphans {
            let file = join(&self.directory, &file_name(*base, ".log"));
            tracing::error!(
                log = self.directory, file, from = %base,
                "a segment is missing, its index is there: readers of its offsets get an error, share groups take them for \
                 damaged; stop the broker and put the file back, or delete records up to its end"
            );
            self.gaps += 1;
            self.missing.push(Noted { base: *base, found: Found::default() });
        }
    }

    fn index_of(&self, base: Offset) -> Result<usize, usize> {
        self.segments.binary_search_by_key(&base, Segment::base)
    }
}
