//! Share groups without order answer as Apache Kafka 4.4 does: the same scripts, as bytes, against both.
//!
//! A step's answer must be the same at both brokers, and be what the table says. `SLUICE_SCENARIO=s12` plays only those
//! whose names contain that.

mod scenario;
mod table;

use std::sync::Mutex;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::ApacheKafka;

use scenario::{Outcome, Scenario, Step, play};
use table::SCENARIOS;

/// Scenarios that are played at a time: most of their time they wait.
const AT_A_TIME: usize = 6;

/// Makes the brokers ready: a first group makes Kafka create the topic of its share coordinator.
const FIRST: Scenario = Scenario {
    name: "the-first-group",
    group: &[("share.auto.offset.reset", "earliest")],
    data: false,
    steps: &[(Step::Produce(&[1]), ""), (Step::Join("a"), ""), (Step::Drain("a", -1), "")],
    differs: &[],
};

#[test]
fn share_groups_without_order_answer_as_apache_kafka_does() {
    let Some(kafka) = ApacheKafka::start("") else { return };
    let sluice = BrokerProcess::start();
    let brokers = [sluice.bootstrap().to_owned(), kafka.bootstrap()];
    for broker in &brokers {
        play(broker, &FIRST);
    }
    let wanted = std::env::var("SLUICE_SCENARIO").unwrap_or_default();
    let chosen: Vec<&Scenario> =
        SCENARIOS.iter().filter(|scenario| scenario.name.contains(&wanted)).collect();
    assert!(!chosen.is_empty(), "no scenario's name contains {wanted}");
    let queue = Mutex::new(chosen.iter().rev().copied().collect::<Vec<_>>());
    let complaints = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(chosen.len()) {
            scope.spawn(|| {
                while let Some(scenario) = take(&queue) {
                    let [ours, theirs] = std::thread::scope(|scope| {
                        let playing =
                            brokers.each_ref().map(|broker| scope.spawn(move || play(broker, scenario)));
                        playing.map(|player| player.join().expect("a scenario that was played"))
                    });
                    let found = compare(scenario, &ours, &theirs);
                    complaints.lock().expect("nobody panics with it").extend(found);
                }
            });
        }
    });
    let complaints = complaints.into_inner().expect("nobody panics with it");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn take(queue: &Mutex<Vec<&'static Scenario>>) -> Option<&'static Scenario> {
    queue.lock().expect("nobody panics with it").pop()
}

/// What differs between the brokers, or from the table.
fn compare(scenario: &Scenario, ours: &[Outcome], theirs: &[Outcome]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, ((step, expected), (ours, theirs))) in
        scenario.steps.iter().zip(ours.iter().zip(theirs)).enumerate()
    {
        let place = || format!("{} step {index} {step:?}", scenario.name);
        match scenario.differs.iter().find(|difference| difference.step == index) {
            None if ours == theirs => {}
            None => {
                complaints.push(format!("{}\n  Sluice: {ours:?}\n  Kafka:  {theirs:?}", place()));
            }
            Some(known) if known.ours == ours.text && ours.text != theirs.text => {
                println!("{}: {} instead of {}: {}", place(), ours.text, theirs.text, known.why);
            }
            Some(known) => complaints.push(format!(
                "{}\n  Sluice: {ours:?}\n  Kafka:  {theirs:?}\n  not the difference that is known: {}",
                place(),
                known.ours
            )),
        }
        if theirs.text != *expected {
            complaints.push(format!("{}\n  Kafka:  {}\n  table:  {expected}", place(), theirs.text));
        }
    }
    complaints
}

#[test]
fn a_difference_is_told() {
    let scenario =
        Scenario { steps: &[(Step::Wait(0), "[0]x1")], name: "x", group: &[], data: false, differs: &[] };
    let answer = |text: &str| [Outcome { text: text.to_owned(), detail: String::new() }];
    assert!(compare(&scenario, &answer("[0]x1"), &answer("[0]x1")).is_empty());
    assert_eq!(compare(&scenario, &answer("[0]x2"), &answer("[0]x1")).len(), 1);
    assert_eq!(compare(&scenario, &answer("[0]x2"), &answer("[0]x2")).len(), 1);
    assert_eq!(compare(&scenario, &answer("nothing"), &answer("[0]x2")).len(), 2);
    let known = Scenario { differs: &[scenario::Difference { step: 0, ours: "[0]x2", why: "" }], ..scenario };
    assert!(compare(&known, &answer("[0]x2"), &answer("[0]x1")).is_empty());
    assert_eq!(compare(&known, &answer("[0]x1"), &answer("[0]x1")).len(), 1, "there is none any more");
    assert_eq!(compare(&known, &answer("nothing"), &answer("[0]x1")).len(), 1, "there is another one");
}
