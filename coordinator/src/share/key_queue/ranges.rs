//! What is ready within a range of key hashes.

use records::ids::KeyHash;

use super::{KeyQueue, Place, Source};
use crate::command::KeyRange;

impl KeyQueue {
    /// The next record of each key of `range` that `holder` may take now, in the order of the hashes.
    pub(crate) fn ready_in(
        &self,
        holder: u32,
        range: KeyRange,
    ) -> impl Iterator<Item = (KeyHash, i64, Source)> {
        self.keys.range(range.first..=range.last).filter_map(move |(hash, key)| match key.place {
            Place::Free(_, offset) => Some((hash, offset, Source::Free)),
            Place::Tired(_, offset) => Some((hash, offset, Source::Tired)),
            Place::Own(of, offset) if of == holder => Some((hash, offset, Source::Own)),
            Place::Own(..) | Place::Following(_) | Place::Waiting | Place::Nowhere => None,
        })
    }

    /// Keyless records that are ready, in their order.
    pub(crate) fn ready_keyless(&self) -> impl Iterator<Item = i64> {
        self.keyless.iter()
    }
}
