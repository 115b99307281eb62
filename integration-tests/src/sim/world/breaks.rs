//! Makes the broker lie, in the one way that a run was told.

use broker::executor::Data;
use coordinator::command::{AckRange, Command, Fact};
use coordinator::io::{Completion, EventsAppended, ScannedKind, Submission};
use coordinator::reply::{AcquiredRange, Output, Reply, SharePart};
use coordinator::shard::Input;
use coordinator::share::{ShareAssignment, ShareOrder};
use records::ids::{KeyHash, Offset, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sim::breakage::Breakage;
use crate::sim::random::Random;

/// Stored events: the place of their kind, and the kinds that are meant here.
const KIND_AT: usize = 1;
const GRANTED: u8 = 2;
const SETTLED: u8 = 3;
const STOPPED: u8 = 8;
const KEY_STOPPED: u8 = 10;

/// See the module. Without a breakage it changes nothing.
#[derive(Debug)]
pub(super) struct Breaker {
    breakage: Option<Breakage>,
    random: Random,
    /// What was granted last, and with which data.
    granted: Option<(PartitionId, AcquiredRange)>,
    data: Option<Data>,
    /// The last epoch of each member's session.
    sessions: BTreeMap<Arc<str>, i32>,
}

impl Breaker {
    pub(super) fn new(breakage: Option<Breakage>, random: &mut Random) -> Self {
        Self { breakage, random: random.fork(), granted: None, data: None, sessions: BTreeMap::new() }
    }

    pub(super) fn is(&mut self, breakage: Breakage) -> bool {
        self.breakage == Some(breakage)
    }

    /// What the shard is told, instead of the truth.
    pub(super) fn inputs(&mut self, mut inputs: Vec<Input<Data>>) -> Vec<Input<Data>> {
        for input in &mut inputs {
            match (self.breakage, input) {
                (Some(Breakage::LostAnswerTakenAsWritten), Input::Fact(fact)) => {
                    if let Fact::AnswerLost(ticket) = *fact {
                        *fact = Fact::AnswerWritten(ticket);
                    }
                }
                (Some(Breakage::OrderForgotten), Input::Fact(Fact::ShareConfigured(_, config))) => {
                    Arc::make_mut(config).order = ShareOrder::None;
                }
                (Some(Breakage::RecallForgotten), Input::Command(_, Command::ShareFetch(fetch))) => {
                    fetch.key_share.get_or_insert_default();
                }
                (Some(Breakage::RangesForgotten), Input::Command(_, Command::StandaloneFetch(request))) => {
                    request.ranges.iter_mut().for_each(|part| part.1.truncate(1));
                    let range = request.ranges.iter_mut().flat_map(|part| part.1.first_mut());
                    range.for_each(|range| range.first = KeyHash(0));
                }
                (Some(Breakage::CommitForgotten), Input::Command(_, Command::StandaloneCommit(commit))) => {
                    commit.parts.iter_mut().for_each(|part| part.1.clear());
                }
                (Some(Breakage::HomesForgotten), Input::Fact(Fact::ShareConfigured(_, config))) => {
                    Arc::make_mut(config).assignment = ShareAssignment::Dynamic;
                }
                (Some(Breakage::LeaveForgotten), Input::Command(_, Command::ShareFetch(fetch))) => {
                    self.sessions.insert(Arc::clone(&fetch.member), fetch.epoch);
                }
                (Some(Breakage::LeaveForgotten), Input::Command(_, Command::ShareAcknowledge(request))) => {
                    let epoch = self.sessions.entry(Arc::clone(&request.member)).or_default();
                    if request.epoch == -1 {
                        request.epoch = *epoch + 1;
                    }
                    *epoch = request.epoch;
                }
                (Some(Breakage::LocksTooShort), Input::Fact(Fact::ShareConfigured(_, config))) => {
                    Arc::make_mut(config).lock_ms /= 2;
                }
                (Some(Breakage::AcceptTakenAsRelease), Input::Command(_, command)) => match command {
                    Command::ShareFetch(fetch) => {
                        fetch.parts.iter_mut().flat_map(|part| &mut part.acks).for_each(release);
                    }
                    Command::ShareAcknowledge(request) => {
                        request.parts.iter_mut().flat_map(|part| &mut part.1).for_each(release);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        inputs
    }

    /// What comes out, instead of the truth.
    pub(super) fn outputs(&mut self, outputs: Vec<Output<Data>>, _: &[Input<Data>]) -> Vec<Output<Data>> {
        if self.breakage.is_none() {
            return outputs;
        }
        let mut told = Vec::with_capacity(outputs.len());
        for mut output in outputs {
            if let Output::Reply(_, Reply::ShareFetched(Ok(fetched))) = &mut output {
                for part in &mut fetched.parts {
                    self.falsify(part);
                }
            }
            let is_empty = matches!(&output, Output::Reply(_, Reply::ShareFetched(Ok(fetched)))
                if fetched.parts.iter().all(|part| part.acquired.is_empty() && part.ack_results.is_empty()));
            let is_ack = matches!(output, Output::Reply(_, Reply::ShareAcknowledged(_) | Reply::Produced(_)));
            match self.breakage {
                Some(Breakage::AnsweredTwice) if is_ack => told.push(output.clone()),
                Some(Breakage::NotAnswered) if is_ack && self.random.one_in(10) => continue,
                Some(Breakage::WaitForgotten) if is_empty && self.random.one_in(10) => continue,
                _ => {}
            }
            told.push(output);
        }
        told
    }

    fn falsify(&mut self, part: &mut SharePart<Data>) {
        if part.acquired.is_empty() {
            return;
        }
        match self.breakage {
            Some(Breakage::GrantedToTwo) => {
                let first = part.acquired[0];
                if let Some((partition, range)) = self.granted.replace((part.partition, first))
                    && partition == part.partition
                    && part.acquired.iter().all(|other| other.last < range.first || other.first > range.last)
                {
                    part.acquired.push(range);
                    part.acquired.sort_by_key(|range| range.first);
                }
            }
            Some(Breakage::CountTooHigh) => {
                part.acquired.iter_mut().filter(|range| range.count > 1).for_each(|range| range.count += 1);
            }
            Some(Breakage::WrongData) => {
                let true_data = part.data.clone();
                if let Some(data) = std::mem::replace(&mut self.data, true_data) {
                    part.data = Some(data);
                }
            }
            _ => {}
        }
    }

    /// A completion without the work.
    pub(super) fn instead_of_serving(&mut self, submission: &Submission) -> Option<Completion<Data>> {
        match submission {
            Submission::AppendEvents { op, .. }
                if matches!(self.breakage, Some(Breakage::EventsFaked | Breakage::EventsLate)) =>
            {
                Some(Completion::EventsAppended(*op, Ok(EventsAppended { bytes_since_snapshot: 0 })))
            }
            _ => None,
        }
    }

    /// What the disk is asked for, instead of what was meant.
    pub(super) fn submitted(&mut self, mut submission: Submission) -> Submission {
        if self.breakage == Some(Breakage::AbortedShown)
            && let Submission::Scan { committed, .. } | Submission::FindKey { committed, .. } =
                &mut submission
        {
            *committed = false;
        }
        submission
    }

    /// What the disk is said to have found, instead of the truth.
    pub(super) fn served(&mut self, mut completion: Completion<Data>) -> Completion<Data> {
        match (self.breakage, &mut completion) {
            (Some(Breakage::SettlingForgotten), Completion::ShareStateOpened(_, Ok(state))) => {
                let last = state.events.iter().rposition(|event| event.bytes.get(KIND_AT) == Some(&SETTLED));
                if let Some(last) = last {
                    state.events.remove(last);
                }
            }
            (Some(Breakage::StopsForgotten), Completion::ShareStateOpened(_, Ok(state))) => {
                let stops = |kind: Option<&u8>| matches!(kind, Some(&KEY_STOPPED | &STOPPED));
                state.events.retain(|event| !stops(event.bytes.get(KIND_AT)));
            }
            (Some(Breakage::GrantsForgotten), Completion::ShareStateOpened(_, Ok(state))) => {
                state.events.retain(|event| event.bytes.get(KIND_AT) != Some(&GRANTED));
            }
            (Some(Breakage::PageForgotten), Completion::PagesRead(_, Ok(pages))) => {
                for page in pages {
                    page.void_from = Offset::ZERO;
                }
            }
            (Some(Breakage::SpanRecordSkipped), Completion::KeyFound(_, Ok(found)))
                if found.records.len() > 1 =>
            {
                found.records.remove(0);
            }
            (Some(Breakage::UndecidedShown), Completion::Appended(_, Ok(appended))) => {
                appended.facts.last_stable = appended.facts.end;
            }
            (Some(Breakage::RecordHidden), Completion::Scanned(_, Ok(scanned))) => {
                for batch in &mut scanned.batches {
                    if let ScannedKind::Data(records) = &mut batch.kind
                        && !records.is_empty()
                        && self.random.one_in(5)
                    {
                        records.remove(0);
                    }
                }
            }
            (Some(Breakage::KeysSwapped), Completion::Scanned(_, Ok(scanned))) => {
                let mut keys = Vec::new();
                for batch in &mut scanned.batches {
                    if let ScannedKind::Data(records) = &mut batch.kind {
                        keys.extend(records.iter_mut().map(|record| &mut record.key));
                    }
                }
                for pair in keys.chunks_mut(2) {
                    if let [first, second] = pair {
                        std::mem::swap(*first, *second);
                    }
                }
            }
            _ => {}
        }
        completion
    }
}

fn release(range: &mut AckRange) {
    range.types.iter_mut().filter(|kind| **kind == 1).for_each(|kind| *kind = 2);
}
