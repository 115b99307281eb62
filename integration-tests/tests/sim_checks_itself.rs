//! Each way in which the broker is made to lie is found by the model: a check that finds nothing checks nothing.

use integration_tests::sim;
use integration_tests::sim::breakage::Breakage;
use integration_tests::sim::model::Rule;

/// A breakage is found within so many seeds.
const SEEDS_MAX: u64 = 600;

/// What each breakage may be found as.
fn rules(breakage: Breakage) -> &'static [Rule] {
    match breakage {
        Breakage::LostAnswerTakenAsWritten => &[Rule::Redelivery],
        Breakage::GrantedToTwo => {
            &[Rule::Exclusive, Rule::Forgotten, Rule::Limit, Rule::Redelivery, Rule::Order]
        }
        Breakage::SettlingForgotten => &[Rule::Forgotten],
        Breakage::GrantsForgotten => &[Rule::Exclusive, Rule::Order, Rule::Redelivery],
        Breakage::RecordHidden => &[Rule::Lost, Rule::Order],
        Breakage::KeysSwapped => &[Rule::Order, Rule::Exclusive],
        Breakage::SyncFaked => &[Rule::Produce],
        Breakage::AnsweredTwice | Breakage::NotAnswered => &[Rule::Reply],
        Breakage::LocksTooShort => &[Rule::Exclusive, Rule::Redelivery],
        Breakage::AcceptTakenAsRelease => &[Rule::Forgotten, Rule::Redelivery],
        Breakage::EventsFaked => &[Rule::Forgotten, Rule::Exclusive, Rule::Order, Rule::Redelivery],
        Breakage::CountTooHigh => &[Rule::Redelivery],
        Breakage::WrongData => &[Rule::Content],
        Breakage::EventsLate => &[Rule::Forgotten, Rule::Exclusive, Rule::Order, Rule::Redelivery],
        // What a session held when it ended counts as failed: it comes later than it should, or with a count too low.
        Breakage::LeaveForgotten => &[Rule::WakeUp, Rule::Redelivery],
        Breakage::WakeUpDropped => &[Rule::WakeUp],
        Breakage::OrderForgotten => &[Rule::Order, Rule::Exclusive],
        Breakage::LetterSyncFaked => &[Rule::Lost, Rule::Order],
        Breakage::StopsForgotten => &[Rule::Parked, Rule::DeadLetter],
        Breakage::PageForgotten => &[Rule::Lost, Rule::Forgotten, Rule::Order],
        Breakage::SpanRecordSkipped => &[Rule::Lost, Rule::Order],
        Breakage::AbortedShown | Breakage::UndecidedShown => &[Rule::Isolation],
        Breakage::RangesForgotten => &[Rule::Ranges],
        Breakage::CommitForgotten => &[Rule::Forgotten],
        Breakage::HomesForgotten => &[Rule::Home],
        Breakage::RecallForgotten => &[Rule::Exclusive, Rule::Redelivery, Rule::Limit],
    }
}

/// A lie may also be found by what follows from it, before it is found for what it is: then another seed must show it.
fn is_found(breakage: Breakage) {
    let mut followed = Vec::new();
    for seed in 0..SEEDS_MAX {
        match sim::run(seed, Some(breakage)).violation {
            Some(violation) if rules(breakage).contains(&violation.rule) => return,
            Some(violation) => followed.push(format!("seed {seed}: {violation}")),
            None => {}
        }
    }
    panic!("{breakage:?} is not found for what it is within {SEEDS_MAX} seeds, only by {followed:#?}");
}

#[test]
fn every_breakage_is_found() {
    for breakage in Breakage::ALL {
        is_found(breakage);
    }
}
