//! Each way in which the broker is made to lie is found by the model: a check that finds nothing checks nothing.

use integration_tests::sim;
use integration_tests::sim::breakage::Breakage;
use integration_tests::sim::model::Rule;

/// A breakage is found within so many seeds.
const SEEDS_MAX: u64 = 1_000;

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
        Breakage::WakeUpDropped | Breakage::WaitForgotten => &[Rule::WakeUp],
        Breakage::OrderForgotten => &[Rule::Order, Rule::Exclusive],
        Breakage::LetterSyncFaked => &[Rule::Lost, Rule::Order],
        Breakage::StopsForgotten => &[Rule::Parked, Rule::DeadLetter],
        Breakage::PageForgotten => &[Rule::Lost, Rule::Forgotten, Rule::Order],
        Breakage::SpanRecordSkipped => &[Rule::Lost, Rule::Order],
        Breakage::AbortedShown | Breakage::UndecidedShown => &[Rule::Isolation],
        Breakage::RangesForgotten => &[Rule::Ranges],
        // What is answered and not noted is answered before it is written; or it comes again.
        Breakage::CommitForgotten => &[Rule::Reply, Rule::Forgotten],
        Breakage::HomesForgotten => &[Rule::Home],
        Breakage::RecallForgotten => &[Rule::Exclusive, Rule::Redelivery, Rule::Limit],
    }
}

/// The seed and the rule by which a breakage is found, or what followed from it in place of that. A lie may also be
/// found by what follows from it, before it is found for what it is: then another seed must show it.
fn found(breakage: Breakage) -> Result<String, Vec<String>> {
    let mut followed = Vec::new();
    for seed in 0..SEEDS_MAX {
        match sim::run(seed, Some(breakage)).violation {
            Some(violation) if rules(breakage).contains(&violation.rule) => {
                return Ok(format!("seed {seed}, as {:?}", violation.rule));
            }
            Some(violation) => followed.push(format!("seed {seed}: {violation}")),
            None => {}
        }
    }
    Err(followed)
}

#[test]
fn every_breakage_is_found() {
    let mut missed = Vec::new();
    for breakage in Breakage::ALL {
        match found(breakage) {
            Ok(by) => println!("{breakage:?} is found by {by}"),
            Err(followed) => missed.push((breakage, followed)),
        }
    }
    assert!(missed.is_empty(), "not found for what they are within {SEEDS_MAX} seeds, only by: {missed:#?}");
}
