//! Ids that every crate shares: newtypes, so that an offset is never taken for a count.

use std::fmt;
use std::ops::{Add, Sub};

/// A record's place in its partition log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// The first offset of a log that nothing was deleted from.
    pub const ZERO: Self = Self(0);
    /// The highest offset there can be.
    pub const MAX: Self = Self(i64::MAX);

    /// The offset behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl Add<i64> for Offset {
    type Output = Self;
    fn add(self, count: i64) -> Self {
        Self(self.0 + count)
    }
}

impl Sub<i64> for Offset {
    type Output = Self;
    fn sub(self, count: i64) -> Self {
        Self(self.0 - count)
    }
}

impl Sub for Offset {
    type Output = i64;
    fn sub(self, other: Self) -> i64 {
        self.0 - other.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic's 16-byte id (KIP-516). All zero means "no id".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// No id.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is "no id".
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// One partition of one topic, by topic id: a deleted and re-created topic is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition's index in its topic, from 0.
    pub index: i32,
}

/// XXH3-64 (seed 0) of a record's key bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// An idempotent producer's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);
