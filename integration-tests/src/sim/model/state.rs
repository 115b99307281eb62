//! What the model knows of one record of a share-partition. Where it cannot know, it says so: doubt allows more, and
//! ends when the record is granted again.

use std::sync::Arc;

use coordinator::command::Ticket;
use coordinator::share::Poison;
use coordinator::time::Mono;

/// A thing that is known, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tri {
    /// It is not so.
    #[default]
    No,
    /// It may be so.
    Maybe,
    /// It is so.
    Yes,
}

impl Tri {
    /// What holds where either may.
    #[must_use]
    pub(super) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Maybe }
    }

    /// The thing may happen now.
    #[must_use]
    pub(super) fn at_least_maybe(self) -> Self {
        if self == Self::Yes { Self::Yes } else { Self::Maybe }
    }
}

/// A record of a share-partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// It is done.
    pub(super) settled: Tri,
    /// Failed deliveries that count: at least, at most.
    pub(super) fails: (u16, u16),
    /// In whose hands it is.
    pub(super) hold: Option<Hold>,
    /// It waits for a retry until then.
    pub(super) not_before: Option<Mono>,
    /// Nothing is known of hands and counts.
    pub(super) unknown: bool,
    /// It goes to nobody: it waits for the dead-letter topic, or for an operator.
    pub(super) stop: Tri,
    /// For an operator.
    pub(super) by_hand: bool,
    /// It may be delivered again although it is done.
    pub(super) may_return: bool,
    /// It came again beside the window: the start offset does not wait for it.
    pub(super) replayed: bool,
}

/// A record in a member's hands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hold {
    /// Whose.
    pub(super) member: Arc<str>,
    /// The answer that brought it.
    pub(super) ticket: Ticket,
    /// The delivery's number.
    pub(super) delivery: u64,
    /// Its holder acknowledges with delivery numbers.
    pub(super) numbered: bool,
    /// It may have come back already.
    pub(super) doubt: bool,
    /// The doubt was looked at already.
    pub(super) doubted: bool,
    /// That its end may count is in the record's count already.
    pub(super) failed: bool,
    /// An earlier record of its key came back.
    pub(super) recalled: Tri,
    /// Its answer was written whole.
    pub(super) written: bool,
    /// It was granted, or renewed, then at the earliest.
    pub(super) since: Mono,
    /// When its lock runs out, where that is known exactly.
    pub(super) lock_end: Option<Mono>,
    /// From here on it may have come back.
    pub(super) sure_until: Mono,
    /// The broker was restarted since: its end does not count.
    pub(super) restarted: bool,
}

impl Record {
    /// It may be done, or is: an obstacle to nobody.
    #[must_use]
    pub(super) fn may_be_settled(&self) -> bool {
        self.settled != Tri::No
    }

    /// Its deliveries are over: what becomes of it is the group's poison way.
    pub(super) fn poison(&mut self, surely: bool, poison: Poison) {
        let to = |known: Tri| if surely { Tri::Yes } else { known.at_least_maybe() };
        match poison {
            // Whether this is a replay is not known for certain, nor whether that has ended meanwhile.
            Poison::Park if self.replayed => {
                self.settled = self.settled.at_least_maybe();
                (self.stop, self.by_hand) = (self.stop.at_least_maybe(), true);
            }
            Poison::Skip => self.settled = to(self.settled),
            Poison::DeadLetter | Poison::Follow => {
                self.by_hand &= !surely && self.stop != Tri::No;
                self.stop = to(self.stop);
            }
            Poison::Park => (self.stop, self.by_hand) = (to(self.stop), true),
        }
    }

    /// A delivery failed: it counts, or may count.
    pub(super) fn fail(&mut self, counts: Tri, limit: i16, poison: Poison) {
        let limit = u16::try_from(limit).unwrap_or(0);
        match counts {
            Tri::No => {}
            Tri::Maybe => self.fails.1 += 1,
            Tri::Yes => {
                self.fails.0 += 1;
                self.fails.1 += 1;
            }
        }
        // One whose end counts for nothing comes back, whatever its count.
        if counts != Tri::No && self.fails.1 >= limit {
            self.poison(counts == Tri::Yes && self.fails.0 >= limit, poison);
        }
    }

    /// Either this state or that one.
    #[must_use]
    pub(super) fn merged(&self, other: &Self) -> Self {
        let hold = match (&self.hold, &other.hold) {
            (None, None) => None,
            (Some(hold), None) | (None, Some(hold)) => Some(Hold { doubt: true, ..hold.clone() }),
            (Some(mine), Some(other)) if mine.member == other.member && mine.delivery == other.delivery => {
                Some(Hold {
                    doubt: mine.doubt || other.doubt,
                    recalled: mine.recalled.or(other.recalled),
                    since: mine.since.min(other.since),
                    lock_end: None,
                    sure_until: mine.sure_until.min(other.sure_until),
                    ..mine.clone()
                })
            }
            (Some(mine), Some(_)) => Some(Hold { doubt: true, ..mine.clone() }),
        };
        Self {
            settled: self.settled.or(other.settled),
            fails: (self.fails.0.min(other.fails.0), self.fails.1.max(other.fails.1)),
            not_before: None,
            unknown: self.unknown || other.unknown || self.hold.is_some() != other.hold.is_some(),
            stop: self.stop.or(other.stop),
            by_hand: self.by_hand || other.by_hand,
            may_return: self.may_return || other.may_return,
            replayed: self.replayed || other.replayed,
            hold,
        }
    }
}
