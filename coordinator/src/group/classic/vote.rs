//! Which protocol a generation uses, and what its members consume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ClassicGroup, State};

impl ClassicGroup {
    /// Whether one who offers these could be a member (`ClassicGroup.supportsProtocols`).
    pub(super) fn accepts_protocols<'a>(
        &self,
        protocol_type: &str,
        mut names: impl Iterator<Item = &'a Arc<str>>,
    ) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && names.next().is_some();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && names.any(|name| self.members.values().all(|member| member.supports(name)))
    }

    /// The protocol with the most votes: each member votes for the first of its own that all support. A tie goes as
    /// it does in Kafka, which counts votes in a Java hash map and takes the first of the highest that it meets.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let mut votes: BTreeMap<(u32, Arc<str>), usize> = BTreeMap::new();
        for member in self.members.values() {
            let choice = member
                .protocols
                .iter()
                .map(|(name, _)| name)
                .find(|name| self.members.values().all(|other| other.supports(name)));
            if let Some(name) = choice {
                *votes.entry((java_bucket(name), Arc::clone(name))).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|((_, name), _)| name)
    }

    /// The topics of all members, as their metadata says; `None` where it cannot be read
    /// (`ClassicGroup.computeSubscribedTopics`).
    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<Arc<str>>> {
        if !self.is_consumer() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut all = BTreeSet::new();
        for member in self.members.values() {
            read_topics(&member.metadata(protocol), &mut all)?;
        }
        Some(all)
    }
}

/// Where a short string stands in a `java.util.HashMap` of 16 buckets.
fn java_bucket(text: &str) -> u32 {
    let hash =
        text.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ (hash >> 16)) & 15
}

/// The topic names of a consumer's subscription: version (i16), then an array of strings, in every version
/// (`ConsumerProtocolSubscription`). `None` where the bytes are something else.
fn read_topics(bytes: &[u8], into: &mut BTreeSet<Arc<str>>) -> Option<()> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    for _ in 0..u32::try_from(i32::from_be_bytes(*count)).ok()? {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (name, tail) = tail.split_at_checked(usize::try_from(i16::from_be_bytes(*len)).ok()?)?;
        into.insert(Arc::from(std::str::from_utf8(name).ok()?));
        rest = tail;
    }
    Some(())
}
