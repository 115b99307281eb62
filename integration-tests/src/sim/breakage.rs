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
    /// A fetch whose wait is over with nothing to give is not answered.
    WaitForgotten,
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
    /// Appends of share events end well at once and are made only a while later: who comes next is served before the
    /// acknowledgement that made room is stored.
    EventsLate,
    /// A member's last word does not end its session: what it holds stays with it.
    LeaveForgotten,
    /// The shard keeps no order in a group that has one: what comes back goes out behind what follows it.
    OrderForgotten,
    /// The shard is not called when its deadlines have come.
    WakeUpDropped,
    /// The sync of a dead letter ends well without one: its record is archived before it is safe.
    LetterSyncFaked,
    /// At a restart it is not read back which keys are stopped.
    StopsForgotten,
    /// Stock clients are taken for ones that drop what is recalled.
    RecallForgotten,
    /// Of what stands in a page of the share state nothing is read back.
    PageForgotten,
    /// A look-up of a key leaves a record out.
    SpanRecordSkipped,
    /// Scans and look-ups do not tell which records were taken back.
    AbortedShown,
    /// The shard hears that all of a log is decided.
    UndecidedShown,
    /// A reader without membership is taken for one of other keys than it names.
    RangesForgotten,
    /// What such a reader commits is answered, and not noted.
    CommitForgotten,
    /// Keys have no homes in a group whose assignment is sticky.
    HomesForgotten,
}

impl Breakage {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::LostAnswerTakenAsWritten,
        Self::GrantedToTwo,
        Self::SettlingForgotten,
        Self::GrantsForgotten,
        Self::RecordHidden,
        Self::KeysSwapped,
        Self::SyncFaked,
        Self::AnsweredTwice,
        Self::NotAnswered,
        Self::WaitForgotten,
        Self::LocksTooShort,
        Self::AcceptTakenAsRelease,
        Self::EventsFaked,
        Self::CountTooHigh,
        Self::WrongData,
        Self::EventsLate,
        Self::LeaveForgotten,
        Self::OrderForgotten,
        Self::WakeUpDropped,
        Self::LetterSyncFaked,
        Self::StopsForgotten,
        Self::RecallForgotten,
        Self::PageForgotten,
        Self::SpanRecordSkipped,
        Self::AbortedShown,
        Self::UndecidedShown,
        Self::RangesForgotten,
        Self::CommitForgotten,
        Self::HomesForgotten,
    ];
}
