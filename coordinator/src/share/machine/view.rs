//! What operators, metrics and tests see of share groups. Looking changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use super::{PartState, ShareMachine, upper};
use crate::io::Slice;
use crate::outbox::LogTable;
use crate::share::ShareCounters;
use crate::share::admin::KeyLine;
use crate::share::observe::Bound;
use crate::share::partition::SharePartition;

/// Where a share-partition stands, for operators and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharePartitionView {
    /// Everything below is done.
    pub start: Offset,
    /// How far the log was read.
    pub scan: Offset,
    /// Records in members' hands.
    pub out: usize,
    /// Records that could go out now, about.
    pub ready: usize,
    /// Keys with records in members' hands.
    pub leased_keys: usize,
    /// Records in memory that wait for a retry.
    pub delayed: usize,
    /// Keys that are parked or followed.
    pub stopped_keys: usize,
    /// Records that wait for the dead-letter topic.
    pub dead_letters: usize,
    /// Keys that wait for a retry, those included that rest in pages of the share state.
    pub waiting_keys: usize,
    /// Of these, those that rest in pages.
    pub resting_keys: usize,
    /// Keys of which only a span is known of a part of their records.
    pub spilled_keys: usize,
    /// Records of which only the span of their key tells, about.
    pub spilled: u64,
    /// Why it grants less than the log holds, where a bound is the reason.
    pub bound: Option<Bound>,
    /// About how many bytes of memory it takes.
    pub heap_bytes: u64,
    /// What happened since it was loaded.
    pub counters: ShareCounters,
}

/// Where a share group stands: sums over its share-partitions that are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareGroupView {
    /// Share-partitions in memory.
    pub partitions: usize,
    /// Share-partitions that grant less than the log holds, since a bound is hit.
    pub bound: usize,
    /// Share-partitions whose state the disk refuses.
    pub broken: usize,
    /// Members that heartbeat.
    pub members: usize,
    /// Records that are not done.
    pub lag: i64,
    /// Records in members' hands.
    pub out: usize,
    /// Records, about, that could be delivered now.
    pub ready: usize,
    /// Keys that are leased to a member.
    pub leased_keys: usize,
    /// Keys that are parked.
    pub parked_keys: usize,
    /// Keys whose rest goes to the dead-letter topic.
    pub followed_keys: usize,
    /// Records that wait for the dead-letter topic.
    pub dead_letters: usize,
    /// Share-partitions whose dead letters cannot be copied.
    pub dead_letter_troubles: usize,
    /// Share-partitions of which retention will soon take records that are not done.
    pub retention_warnings: usize,
    /// Timestamp of the oldest record that is not done, milliseconds, or of one that was the oldest a few seconds ago.
    pub oldest_ms: Option<i64>,
    /// Keys that wait for a retry, in memory or in pages of the share state.
    pub waiting_keys: usize,
    /// Keys of which only a span is known of a part of their records.
    pub spilled_keys: usize,
    /// Records of which only the span of their key tells, about.
    pub spilled: u64,
    /// Memory, about, in bytes.
    pub heap_bytes: u64,
    /// The keys that have most unsettled records, among those that were looked at.
    pub by_backlog: Vec<ShareKeyView>,
    /// The keys whose next record lies farthest behind the end of its log.
    pub by_age: Vec<ShareKeyView>,
    /// The keys whose next record failed most often.
    pub by_deliveries: Vec<ShareKeyView>,
    /// What happened since each came into memory.
    pub counters: ShareCounters,
}

/// One of a group's worst keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareKeyView {
    /// The partition.
    pub partition: PartitionId,
    /// The key, and where it stands.
    pub line: KeyLine,
    /// Offsets from its first unsettled record to the end of what the group may see.
    pub behind: i64,
}

/// Keys of a list of a [`ShareGroupView`].
const VIEW_KEYS_MAX: usize = 10;
/// Records that a [`ShareGroupView`] passes over for its lists, in all share-partitions of its group together.
const VIEW_LOOK_MAX: usize = 16_384;

impl<S: Slice> ShareMachine<S> {
    /// Where a share-partition stands; `None` while it is not loaded.
    #[must_use]
    pub fn view(&self, group: &str, partition: PartitionId) -> Option<SharePartitionView> {
        let known = self.known_part(group, partition)?.1;
        let part = known.open()?;
        Some(SharePartitionView {
            start: Offset(part.window.start()),
            scan: Offset(part.window.scan()),
            out: part.in_hands(),
            ready: part.queue().ready_len(),
            leased_keys: part.queue().leased_keys(),
            delayed: part.waits.len(),
            waiting_keys: part.waiting_keys(),
            resting_keys: part.resting_keys(),
            spilled_keys: part.queue().spans().len(),
            spilled: part.queue().spans().records(),
            stopped_keys: part.stops.keys_len(),
            dead_letters: part.letters(),
            bound: part.bound(),
            heap_bytes: part.heap_bytes(),
            counters: known.counted,
        })
    }

    /// How many groups take memory: those that are shown, and those that were until their members are forgotten.
    #[must_use]
    pub fn groups_in_memory(&self) -> usize {
        self.groups.len()
    }

    /// Where every share group stands that has members or share-partitions.
    pub fn group_views(&self, logs: &LogTable) -> impl Iterator<Item = (Arc<str>, ShareGroupView)> {
        self.groups.values().filter(|group| group.is_shown()).map(|group| {
            let mut view = ShareGroupView {
                members: group.live.as_ref().map_or(0, BTreeSet::len),
                ..ShareGroupView::default()
            };
            let mut keys = Vec::new();
            let mut look_left = VIEW_LOOK_MAX;
            for part in group.parts.iter().filter_map(|part| self.parts.get(part)) {
                view.broken += usize::from(matches!(part.state, PartState::Broken(_)));
                let Some(open) = part.open() else { continue };
                let end = upper(logs, &group.config, part.id);
                view.partitions += 1;
                view.bound += usize::from(open.bound().is_some());
                view.lag += open.lag(end);
                view.out += open.in_hands();
                view.ready += open.queue().ready_len();
                view.leased_keys += open.queue().leased_keys();
                view.waiting_keys += open.waiting_keys();
                view.spilled_keys += open.queue().spans().len();
                view.spilled += open.queue().spans().records();
                view.followed_keys += open.stops.following_len();
                view.parked_keys += open.parked_keys();
                view.dead_letters += open.letters();
                view.dead_letter_troubles += usize::from(part.copying.trouble().is_some());
                let oldest = open.oldest(end);
                let warning = oldest.and_then(|offset| part.watched.warning(offset));
                view.retention_warnings += usize::from(warning.is_some());
                let oldest = oldest.and_then(|offset| part.watched.timestamp_of(offset));
                view.oldest_ms = view.oldest_ms.into_iter().chain(oldest).min();
                view.heap_bytes += open.heap_bytes();
                view.counters.add(&part.counted);
                let looked = look_left.min(open.window.len());
                look_left -= looked;
                keys.extend(open.keys_at_hand(looked).0.into_iter().map(|line| ShareKeyView {
                    partition: part.id,
                    line,
                    behind: end - line.offset.get(),
                }));
            }
            view.by_backlog = worst(&keys, |key| key.line.backlog);
            view.by_age = worst(&keys, |key| key.behind);
            view.by_deliveries = worst(&keys, |key| key.line.deliveries);
            view.by_deliveries.retain(|key| key.line.deliveries > 0);
            (Arc::clone(&group.name), view)
        })
    }

    /// Who holds what of a share-partition: offset, member, and whether it was recalled from it.
    #[must_use]
    pub fn holders(&self, group: &str, partition: PartitionId) -> Vec<(Offset, Arc<str>, bool)> {
        let open = self.known_part(group, partition).and_then(|part| part.1.open());
        open.map_or(Vec::new(), SharePartition::holders)
    }

    /// Whether a record of a share-partition is known and not settled.
    #[must_use]
    pub fn is_unsettled(&self, group: &str, partition: PartitionId, offset: Offset) -> bool {
        let open = self.known_part(group, partition).and_then(|part| part.1.open());
        let offset = offset.get();
        open.is_some_and(|open| open.window.is_unsettled(offset) || open.replay_of(offset).is_some())
    }
}

/// The keys that rank highest.
fn worst<K: Ord>(keys: &[ShareKeyView], rank: impl Fn(&ShareKeyView) -> K) -> Vec<ShareKeyView> {
    let mut keys = keys.to_vec();
    keys.sort_by_key(|key| std::cmp::Reverse(rank(key)));
    keys.truncate(VIEW_KEYS_MAX);
    keys
}
