//! What a stored batch does to the groups: recovery, and the one way in which durable state changes.

use std::sync::Arc;

use records::batch::{BatchView, Batches};

use super::{Group, GroupPartition};
use crate::group::classic::ClassicGroup;
use crate::group::limits::REPLAY_BATCH_BYTES_MAX;
use crate::group::share::ShareGroup;
use crate::group::stored::Change;

impl GroupPartition {
    /// Takes over one stored batch, or several in a row, in log order. What cannot be read is passed over: one damaged
    /// record must not keep every group of the partition away.
    pub fn replay(&mut self, bytes: &[u8]) {
        for batch in Batches::new(bytes).map_while(Result::ok) {
            self.replay_batch(&batch);
        }
    }

    fn replay_batch(&mut self, batch: &BatchView<'_>) {
        let Ok(records) = batch.records(REPLAY_BATCH_BYTES_MAX) else { return };
        let attributes = batch.attributes();
        let mut changes = Vec::new();
        for record in records.iter().map_while(Result::ok) {
            let Some(key) = record.key else { continue };
            if attributes.is_control() {
                let staged = self.transactions.remove(&batch.producer_id()).unwrap_or_default();
                changes.extend(if is_commit(key) { staged } else { Vec::new() });
            } else if let Ok(Some(change)) = Change::decode(key, record.value) {
                changes.push(change);
            }
        }
        if attributes.is_transactional() && !attributes.is_control() {
            self.transactions.entry(batch.producer_id()).or_default().extend(changes);
        } else {
            changes.into_iter().for_each(|change| self.apply(change));
        }
    }

    /// Takes over one change.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Offset { group, topic, partition, value } => {
                if value.is_some() && !self.groups.contains_key(&group) {
                    let wall_ms = value.as_ref().map_or(0, |value| value.commit_ms);
                    let classic = ClassicGroup::new(Arc::clone(&group), wall_ms);
                    self.groups.insert(Arc::clone(&group), Group::Classic(classic));
                }
                self.offsets.apply(group, topic, partition, value);
            }
            Change::Group { group, value: Some(value) } => {
                let classic = ClassicGroup::from_stored(Arc::clone(&group), value);
                self.groups.insert(group, Group::Classic(classic));
            }
            Change::Group { group, value: None } => {
                // After compaction a tombstone may stand behind the records of a share group of the same name.
                if let Some(Group::Classic(_)) = self.groups.get(&group) {
                    self.groups.remove(&group);
                }
            }
            Change::ShareMember { ref group, .. }
            | Change::ShareGroup { ref group, .. }
            | Change::ShareTargets { ref group, .. }
            | Change::ShareTarget { ref group, .. }
            | Change::ShareCurrent { ref group, .. }
            | Change::ShareState { ref group, .. } => {
                let group = Arc::clone(group);
                self.apply_share(&group, change);
            }
        }
    }

    fn apply_share(&mut self, id: &Arc<str>, change: Change) {
        if !matches!(self.groups.get(id), Some(Group::Share(_))) {
            if change.is_tombstone() {
                return;
            }
            self.groups.insert(Arc::clone(id), Group::Share(ShareGroup::new(Arc::clone(id))));
        }
        if let Some(Group::Share(group)) = self.groups.get_mut(id)
            && !group.apply(change)
        {
            self.groups.remove(id);
        }
    }
}

/// Whether a marker's key (version and type, i16 each) says commit.
fn is_commit(key: &[u8]) -> bool {
    key.get(2..4) == Some(&[0, 1])
}
