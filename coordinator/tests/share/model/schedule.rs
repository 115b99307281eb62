//! What a run is drawn from, and the runs: schedules of steps that shrink.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use coordinator::share::admin::KeyAction;
use coordinator::share::{Poison, WindowLimits};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use records::ids::Offset;

use super::readers::{ReaderStep, reader_steps};
use super::{KEYS, MEMBERS, Run};
use crate::common::{ACCEPT, GAP, REJECT, RELEASE, RENEW};

/// Steps of a long run that has no number.
const STEPS: u64 = 20_000;
/// Schedules that one seed stands for.
const CASES_OF_SEED: u32 = 50;

/// How little memory there is, and how much waits.
#[derive(Clone, Debug)]
pub(super) struct Scarce {
    pub(super) snapshot_after: u64,
    pub(super) backoff_ms: i64,
    pub(super) window_bytes_max: u64,
    pub(super) stuck_keys_max: u64,
    pub(super) find_records_max: usize,
    pub(super) limits: WindowLimits,
}

impl Scarce {
    /// As much as anyone needs.
    fn plenty() -> Self {
        Self {
            snapshot_after: 1 << 20,
            backoff_ms: 0,
            window_bytes_max: 16 << 20,
            stuck_keys_max: 1_000_000,
            find_records_max: 1_000,
            limits: WindowLimits::default(),
        }
    }
}

fn scarce() -> impl Strategy<Value = Scarce> {
    let pick = |of: &[u32]| prop::sample::select(of.to_vec());
    let window = (pick(&[1, 2, 3]), pick(&[1, 1, 4]), pick(&[0, 1, 3]), pick(&[1, 2, 5]), pick(&[0, 500]));
    let limits = (window, pick(&[0, 10, 512]), pick(&[0, 2, 8_000])).prop_map(
        |((queued, look_ups, waits, page_keys, lead), inline, marks)| WindowLimits {
            spill_from_parts: u64::MAX,
            read_far_bytes: u64::MAX,
            key_queued_max: [queued + 1, queued, 1],
            look_ups_max: look_ups as usize,
            waits_max: waits as usize,
            page_keys_max: page_keys as usize,
            page_lead_ms: i64::from(lead),
            chunk_inline_bytes_max: inline as usize,
            marks_max: marks as usize,
        },
    );
    let amounts = (
        pick(&[50, 50, 1 << 20]),
        pick(&[0, 1_000, 3_000, 20_000]),
        pick(&[1_000, 3_000, 16 << 20]),
        pick(&[1, 3, 1_000_000]),
        pick(&[1, 3, 1_000]),
    );
    let scarce = (amounts, limits).prop_map(
        |((snapshot_after, backoff_ms, window_bytes_max, stuck_keys_max, find_records_max), limits)| Scarce {
            snapshot_after: snapshot_after.into(),
            backoff_ms: backoff_ms.into(),
            window_bytes_max: window_bytes_max.into(),
            stuck_keys_max: stuck_keys_max.into(),
            find_records_max: find_records_max as usize,
            limits,
        },
    );
    prop_oneof![1 => Just(Scarce::plenty()), 5 => scarce]
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Produce(Vec<usize>),
    Fetch {
        member: usize,
        max: i32,
        bytes: i32,
    },
    Ack {
        member: usize,
        pick: usize,
        kind: i8,
    },
    /// The whole range from the lowest to the highest held offset, with one type.
    AckAll {
        member: usize,
        kind: i8,
    },
    Pass(i64),
    Close(usize),
    Leave(usize),
    TimeOut(usize),
    Lose {
        member: usize,
        parked: bool,
    },
    Reopen(usize),
    LoseAnswer(usize),
    FailDisk(usize),
    Retention(i64),
    Restart(i64),
    Control,
    /// What an operator does to a key.
    Alter {
        key: usize,
        action: KeyAction,
    },
    /// The dead-letter topic takes letters, or does not.
    Topic(bool),
    /// The group keeps order, or none, from now on.
    Order(bool),
    /// Keys have homes from now on, or none.
    Sticky(bool),
    /// What becomes of poison from now on.
    Poison(Poison),
    /// All members end, readers without membership come, and go.
    Readers(Vec<ReaderStep>),
}

impl Step {
    /// Whether the members at work may be others after it, at once or later: keys may have other homes then.
    pub(super) fn may_move_homes(&self) -> bool {
        !matches!(
            self,
            Self::Produce(_)
                | Self::Control
                | Self::Fetch { .. }
                | Self::Ack { .. }
                | Self::AckAll { .. }
                | Self::Alter { .. }
                | Self::Topic(_)
                | Self::Poison(_)
                | Self::Retention(_)
                | Self::Order(_)
        )
    }
}

fn step() -> impl Strategy<Value = Step> {
    let member = 0..MEMBERS.len();
    let kind = prop::sample::select(vec![ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW, GAP]);
    prop_oneof![
        4 => prop::collection::vec(0..KEYS.len(), 1..6).prop_map(Step::Produce),
        1 => (0..KEYS.len(), 3..12_usize).prop_map(|(key, count)| Step::Produce(vec![key; count])),
        8 => (member.clone(), 1..8_i32, prop::sample::select(vec![150, 350, 1 << 20]))
            .prop_map(|(member, max, bytes)| Step::Fetch { member, max, bytes }),
        8 => (member.clone(), 0..8_usize, kind.clone()).prop_map(|(member, pick, kind)| Step::Ack { member, pick, kind }),
        2 => (member.clone(), kind).prop_map(|(member, kind)| Step::AckAll { member, kind }),
        3 => prop::sample::select(vec![1, 50, 1_000, 4_000, 7_500, 15_000]).prop_map(Step::Pass),
        1 => member.clone().prop_map(Step::Close),
        1 => member.clone().prop_map(Step::Leave),
        1 => member.clone().prop_map(Step::TimeOut),
        1 => (member.clone(), any::<bool>()).prop_map(|(member, parked)| Step::Lose { member, parked }),
        1 => member.clone().prop_map(Step::Reopen),
        1 => member.clone().prop_map(Step::LoseAnswer),
        1 => member.prop_map(Step::FailDisk),
        1 => (0..6_i64).prop_map(Step::Retention),
        1 => prop::sample::select(vec![0, 1_000, 20_000]).prop_map(Step::Restart),
        1 => Just(Step::Control),
        2 => (0..KEYS.len(), prop::sample::select(vec![
            KeyAction::Park, KeyAction::Resume, KeyAction::Resume, KeyAction::Skip, KeyAction::Drop(None),
            KeyAction::Drop(Some(Offset(20))), KeyAction::Redrive, KeyAction::Redrive,
            KeyAction::Replay(Offset(0), Offset(3)), KeyAction::Replay(Offset(2), Offset(20)),
        ])).prop_map(|(key, action)| Step::Alter { key, action }),
        1 => any::<bool>().prop_map(Step::Topic),
        1 => prop::sample::select(vec![true, true, false]).prop_map(Step::Order),
        1 => any::<bool>().prop_map(Step::Sticky),
        1 => prop::sample::select(POISON.to_vec()).prop_map(Step::Poison),
        1 => reader_steps().prop_map(Step::Readers),
    ]
}

const POISON: [Poison; 4] = [Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park];

/// A run.
#[derive(Clone, Debug)]
struct Schedule {
    keyed: bool,
    sticky: bool,
    inflight: u32,
    numbered: [bool; 3],
    scarce: Scarce,
    poison: Poison,
    steps: Vec<Step>,
}

fn schedule() -> impl Strategy<Value = Schedule> {
    (
        prop::sample::select(vec![true, true, true, false]),
        prop::sample::select(vec![true, false, false]),
        prop::sample::select(vec![1_u32, 1, 2, 5]),
        any::<[bool; 3]>(),
        scarce(),
        prop::sample::select(POISON.to_vec()),
        prop::collection::vec(step(), 1..120),
    )
        .prop_map(|(keyed, sticky, inflight, numbered, scarce, poison, steps)| Schedule {
            keyed,
            sticky,
            inflight,
            numbered,
            scarce,
            poison,
            steps,
        })
}

fn run(schedule: &Schedule) -> Run {
    run_with(schedule, false)
}

fn run_with(schedule: &Schedule, shows: bool) -> Run {
    let Schedule { keyed, sticky, inflight, numbered, ref scarce, poison, ref steps } = *schedule;
    let mut run = Run::new(keyed, inflight, numbered, scarce, poison);
    run.shows = shows;
    run.assign(sticky);
    steps.iter().for_each(|step| run.step(step));
    run.finish();
    run
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn o1_to_o5_hold_over_any_schedule(schedule in schedule()) {
        prop_assert_eq!(&run(&schedule).trace, &run(&schedule).trace, "the same schedule, the same trace");
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// `SLUICE_MODEL_STEPS` says how many steps at least, `SLUICE_MODEL_SEED` with which seed it begins (0).
#[test]
fn o1_to_o5_hold_over_many_steps() {
    let wanted = number("SLUICE_MODEL_STEPS").unwrap_or(STEPS);
    let first = number("SLUICE_MODEL_SEED").unwrap_or(0);
    let steps = Cell::new(0);
    let mut seed = first;
    while steps.get() < wanted {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config {
            cases: CASES_OF_SEED,
            max_shrink_iters: 20_000,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let outcome = runner.run(&schedule(), |schedule| {
            steps.set(steps.get() + schedule.steps.len() as u64);
            drop(run(&schedule));
            Ok(())
        });
        if let Err(failure) = outcome {
            if let TestError::Fail(_, schedule) = &failure {
                let again = AssertUnwindSafe(|| drop(run_with(schedule, true)));
                drop(std::panic::catch_unwind(again));
            }
            panic!("seed {seed} (make test-model SEED={seed} STEPS=1 shows it again): {failure}");
        }
        seed += 1;
    }
    println!("{} steps, seeds {first} to {}", steps.get(), seed - 1);
}
