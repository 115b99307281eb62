//! Deliberate breakages of the broker, put between the shard and those who look at it: each must be found, or the
//! model looks at nothing.

/// One way in which the broker is made to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The shard hears that an answer was written which was lost.
    LostAnswerTakenAsWritten,
    /// An answer also grants what another member holds.
    GrantedToTwo,
    /// At a restart the last settling that was written is not read back.
    SettlingForgotten,
    /// At a restart the grants that were written are not read back.
    GrantsForgotten,
    /// A scan leaves a record out.
    RecordHidden,
    /// A scan says two keys for each other.
    KeysSwapped,
    /// A sync ends well without one.
    SyncFaked,
    /// A command is answered twice.
    AnsweredTwice,
    /// A command is not answered.
    NotAnswered,
    /// Locks last half as long as members are told.
    LocksTooShort,
    /// An accept reaches the shard as a release.
    AcceptTakenAsRelease,
    /// Appends of share events end well before they are made, and then are not.
    EventsFaked,
    /// Failed deliveries are told with a count that is one too high.
    CountTooHigh,
    /// A share answer carries the data of another record.
    WrongData,
}

impl Breakage {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::LostAnswerTakenAsWritten,
        Self::GrantedToTwo,
        Self::SettlingForgotten,
        Self::GrantsForgotten,
        Self::RecordHidden,
        Self::KeysSwapped,
        Self::SyncFaked,
        Self::AnsweredTwice,
        Self::NotAnswered,
        Self::LocksTooShort,
        Self::AcceptTakenAsRelease,
        Self::EventsFaked,
        Self::CountTooHigh,
        Self::WrongData,
    ];
}
