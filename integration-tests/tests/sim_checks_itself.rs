//! Each way in which the broker is made to lie is found by the model: a check that finds nothing checks nothing.

use integration_tests::sim::breakage::Breakage;
use integration_tests::sim::model::Rule;
use integration_tests::sim;

/// A breakage is found within so many seeds.
const SEEDS_MAX: u64 = 60;

/// What each breakage may be found as.
fn rules(breakage: Breakage) -> &'static [Rule] {
    match breakage {
        Breakage::LostAnswerTakenAsWritten => &[Rule::Redelivery],
        Breakage::GrantedToTwo => &[Rule::Exclusive, Rule::Forgotten, Rule::Limit, Rule::Redelivery, Rule::Order],
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
    }
}

fn is_found(breakage: Breakage) {
    for seed in 0..SEEDS_MAX {
        let report = sim::run(seed, Some(breakage));
        if let Some(violation) = report.violation {
            assert!(rules(breakage).contains(&violation.rule), "seed {seed}, {breakage:?}: {violation}");
            return;
        }
    }
    panic!("{breakage:?} is not found within {SEEDS_MAX} seeds");
}

#[test]
fn every_breakage_is_found() {
    for breakage in Breakage::ALL {
        is_found(breakage);
    }
}
