//! The executor of the simulation: the production code over the simulated disk, with virtual delays.
//!
//! Submissions of one partition are served in order, those of different ones in any; completions of one partition
//! reach the shard in order; reads and syncs end whenever they like.

use broker::executor::Data;
use broker::executor::serve;
use coordinator::io::{Completion, Submission};
use coordinator::shard::Input;
use coordinator::time::{Micros, Mono};
use records::ids::PartitionId;

use super::World;
use crate::sim::breakage::Breakage;
use crate::sim::content;
use crate::sim::event::Event;
use crate::sim::model::{self, Violation};
use crate::sim::node::{DEAD_LETTERS, TOPIC, letter_partition, offsets_partition};
use coordinator::limits::CONSUMER_OFFSETS;

/// How late events are written where they are.
const EVENTS_LATE: Micros = Micros(2_000_000);
/// One disk operation in so many takes a hundred times as long.
const SLOW_ONE_IN: u64 = 200;

impl World {
    /// The shard hands work to the disk.
    pub(super) fn submit(&mut self, submission: Submission) {
        self.trace.note(self.clock.mono(), format_args!("  submit {}", describe_submission(&submission)));
        let concerned = self.concerned(&submission);
        let wait = self.disk_wait();
        let Some(node) = &mut self.node else { return };
        let busy = concerned.iter().filter_map(|id| node.busy_until.get(id)).max().copied();
        let at = (self.clock.mono() + wait).max(busy.unwrap_or_default());
        for id in concerned {
            node.busy_until.insert(id, at);
        }
        node.under_way += 1;
        self.clock.at(at, Event::Serve { life: self.life, submission: Box::new(submission) });
    }

    /// The disk serves what was said to be done.
    pub(super) fn serve_late(&mut self, submission: Submission) {
        if let Some(node) = &mut self.node {
            drop(serve::serve(submission, &mut node.logs, &node.metadata, self.clock.now().wall_ms));
        }
    }

    fn disk_wait(&mut self) -> Micros {
        let slow = if self.random.one_in(SLOW_ONE_IN) { 100 } else { 1 };
        Micros(self.random.between(1, self.plan.disk_us_max) * slow)
    }

    /// The partitions in whose order a submission stands.
    fn concerned(&self, submission: &Submission) -> Vec<PartitionId> {
        match submission {
            Submission::Append { partition, .. }
            | Submission::Sync { partition, .. }
            | Submission::FindOffset { partition, .. }
            | Submission::DeleteRecords { partition, .. }
            | Submission::Load { partition, .. }
            | Submission::Scan { partition, .. }
            | Submission::FindKey { partition, .. }
            | Submission::SyncNow { partition, .. }
            | Submission::ReadRecords { partition, .. }
            | Submission::NextRetention { partition, .. }
            | Submission::OpenShareState { partition, .. } => vec![*partition],
            Submission::AppendEvents { state, .. }
            | Submission::WriteSnapshot { state, .. }
            | Submission::ReadPages { state, .. } => vec![state.partition],
            Submission::Read { parts, .. } => parts.iter().map(|part| part.partition).collect(),
            Submission::Build { parts, .. } => parts.iter().map(|part| part.0).collect(),
            Submission::DeleteShareState { .. } | Submission::ListShareStates { .. } => {
                let users = (0..self.plan.partitions).map(crate::sim::node::partition);
                users.chain([offsets_partition()]).collect()
            }
        }
    }

    /// The disk serves.
    pub(super) fn serve(&mut self, submission: &Submission) -> Result<(), Violation> {
        let concerned = self.concerned(submission);
        if let &(Submission::Sync { op, partition } | Submission::SyncNow { op, partition }) = submission {
            let Some(node) = &mut self.node else { return Ok(()) };
            node.under_way -= 1;
            let of_letters = matches!(submission, Submission::SyncNow { .. });
            if self.breaker.is(Breakage::SyncFaked)
                || (of_letters && self.breaker.is(Breakage::LetterSyncFaked))
            {
                self.complete(&concerned, Completion::Synced(op, Ok(())), true);
                return Ok(());
            }
            let (done, job) = node.begin_sync(op, partition);
            done.into_iter().for_each(|done| self.complete(&[partition], done, false));
            self.start_sync(job, partition);
            return Ok(());
        }
        let fails = self.arm_faults(submission);
        let now_ms = self.clock.now().wall_ms;
        let Some(node) = &mut self.node else { return Ok(()) };
        node.under_way -= 1;
        let completion = match self.breaker.instead_of_serving(submission) {
            Some(faked) => {
                if self.breaker.is(Breakage::EventsLate) {
                    let submission = Box::new(submission.clone());
                    self.clock.after(EVENTS_LATE, Event::ServeLate { life: self.life, submission });
                }
                faked
            }
            None => serve::serve(
                self.breaker.submitted(submission.clone()),
                &mut node.logs,
                &node.metadata,
                now_ms,
            ),
        };
        if fails {
            self.disk.fail_writes(0);
            self.disk.fail_reads(None);
        }
        let completion = self.breaker.served(completion);
        self.trace.note(self.clock.mono(), format_args!("served {}", describe_completion(&completion)));
        self.observe(submission, &completion)?;
        let in_order = !matches!(completion, Completion::Read(..) | Completion::Built(..));
        self.complete(&concerned, completion, in_order);
        Ok(())
    }

    /// Makes this one fail, perhaps.
    fn arm_faults(&mut self, submission: &Submission) -> bool {
        if self.peace_at.is_some() {
            return false;
        }
        let faults = self.plan.faults;
        let (one_in, write) = match submission {
            Submission::Append { .. } => (faults.append_fails, true),
            Submission::AppendEvents { .. } | Submission::WriteSnapshot { .. } => (faults.events_fail, true),
            Submission::Scan { .. }
            | Submission::FindKey { .. }
            | Submission::ReadPages { .. }
            | Submission::Build { .. }
            | Submission::ReadRecords { .. }
            | Submission::OpenShareState { .. }
            | Submission::Load { .. }
            | Submission::Read { .. } => (faults.read_fails, false),
            _ => (0, false),
        };
        if !self.random.one_in(one_in) {
            return false;
        }
        if write {
            let kind = usize::from(!matches!(submission, Submission::Append { .. }));
            self.counts.failed[kind] += 1;
            self.disk.fail_writes(1);
        } else {
            self.disk.fail_reads(Some(""));
        }
        true
    }

    /// What the model learns of the disk.
    fn observe(&mut self, submission: &Submission, completion: &Completion<Data>) -> Result<(), Violation> {
        match (submission, completion) {
            (Submission::Append { op, partition, batch, .. }, Completion::Appended(_, Ok(appended))) => {
                if *partition == offsets_partition() || appended.duplicate {
                    return Ok(());
                }
                if partition.topic == letter_partition(0).topic {
                    let mut letters = content::letters(std::slice::from_ref(batch))
                        .map_err(|text| Violation::new(model::Rule::DeadLetter, text))?;
                    for (at, letter) in (appended.base_offset.get()..).zip(&mut letters) {
                        letter.at = at;
                    }
                    return self.model.letters_appended(*op, *partition, letters);
                }
                let batches = content::batches(std::slice::from_ref(batch)).unwrap_or_default();
                let batch = batches.into_iter().next().map(|batch| batch.at(appended.base_offset.get()));
                batch.map_or(Ok(()), |batch| self.model.appended(*partition, &batch))
            }
            (Submission::Append { partition, .. }, Completion::Appended(_, Err(_)))
                if partition.topic == letter_partition(0).topic =>
            {
                self.model.letters_failed();
                Ok(())
            }
            (_, Completion::EventsAppended(op, Ok(_))) => {
                self.model.events_written(*op);
                Ok(())
            }
            (Submission::OpenShareState { group, .. }, Completion::ShareStateOpened(_, Ok(state))) => {
                self.model.state_opened(state.state.group, group, state.state.partition);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start_sync(&mut self, job: Option<u64>, partition: PartitionId) {
        let Some(job) = job else { return };
        self.model.sync_began(job, partition);
        let wait = Micros(self.random.between(1, self.plan.sync_us_max));
        if self.random.percent(50) {
            self.run_sync(job);
        }
        if let Some(node) = &mut self.node {
            node.under_way += 1;
        }
        self.clock.after(wait, Event::SyncEnds { life: self.life, job });
    }

    fn run_sync(&mut self, job: u64) {
        let Some(node) = &mut self.node else { return };
        if let Some((partition, well)) = node.run_sync(job) {
            self.trace.note(self.clock.mono(), format_args!("synced {} {well}", named(partition)));
            self.model.sync_ran(job, well);
            if !well {
                self.counts.failed[2] += 1;
                self.disk.fail_syncs(0);
            }
        }
    }

    /// The word of a sync.
    pub(super) fn sync_ends(&mut self, job: u64) {
        self.run_sync(job);
        let Some(node) = &mut self.node else { return };
        node.under_way -= 1;
        let Some(partition) = node.partition_of(job) else { return };
        let (done, next) = node.end_sync(job);
        for completion in done {
            self.complete(&[partition], completion, false);
        }
        self.start_sync(next, partition);
    }

    /// A completion is on its way to the shard.
    fn complete(&mut self, concerned: &[PartitionId], completion: Completion<Data>, in_order: bool) {
        let wait = self.random.pick(&[0, 0, 20, 500]);
        let now = self.clock.mono();
        let Some(node) = &mut self.node else { return };
        let mut at = now + Micros(wait);
        if in_order {
            let told: Option<Mono> = concerned.iter().filter_map(|id| node.told_until.get(id)).max().copied();
            at = at.max(told.unwrap_or_default());
            for id in concerned {
                node.told_until.insert(*id, at);
            }
        }
        if at == now {
            self.tell(Input::Completion(completion));
        } else {
            node.under_way += 1;
            self.clock.at(at, Event::Completed { life: self.life, completion: Box::new(completion) });
        }
    }
}

/// A partition as its directory is named.
fn named(partition: PartitionId) -> String {
    let topic = match partition {
        _ if partition == offsets_partition() => CONSUMER_OFFSETS,
        _ if partition.topic == letter_partition(0).topic => DEAD_LETTERS,
        _ => TOPIC,
    };
    format!("{topic}-{}", partition.index)
}

/// A submission in a few words.
fn describe_submission(submission: &Submission) -> String {
    match submission {
        Submission::Append { op, partition, batch, .. } => {
            format!("{} append {} {} bytes", op.0, named(*partition), batch.len())
        }
        Submission::Sync { op, partition } => format!("{} sync {}", op.0, named(*partition)),
        Submission::Scan { op, partition, from, upper, bytes_max, .. } => {
            format!("{} scan {} {from} to {upper}, {bytes_max} bytes", op.0, named(*partition))
        }
        Submission::OpenShareState { op, group, partition } => {
            format!("{} open state of {group} {}", op.0, named(*partition))
        }
        Submission::AppendEvents { op, state, events } => {
            let kinds: Vec<u8> = events.iter().filter_map(|event| event.get(1).copied()).collect();
            format!("{} events of {} {} {kinds:?}", op.0, state.group, state.partition.index)
        }
        Submission::WriteSnapshot { op, state, snapshot, pages, dropped } => {
            let pages: Vec<_> = pages.iter().map(|(id, page)| (id, page.len())).collect();
            format!(
                "{} snapshot of {} {} {} bytes, with {pages:?} and without {dropped:?}",
                op.0,
                state.group,
                state.partition.index,
                snapshot.len()
            )
        }
        Submission::Build { op, parts } => {
            let parts: Vec<_> = parts.iter().map(|(id, ranges)| (id.index, ranges)).collect();
            format!("{} build {parts:?}", op.0)
        }
        other => format!("{other:?}"),
    }
}

/// A completion in a few words.
pub(super) fn describe_completion(completion: &Completion<Data>) -> String {
    match completion {
        Completion::Read(op, parts) => format!("{} read {} parts", op.0, parts.len()),
        Completion::Loaded(op, result) => format!("{} loaded {:?}", op.0, result.as_ref().map(Vec::len)),
        Completion::Built(op, parts) => {
            let parts: Vec<_> =
                parts.iter().map(|part| part.as_ref().map(coordinator::io::Slice::len)).collect();
            format!("{} built {parts:?}", op.0)
        }
        Completion::Scanned(op, Ok(scanned)) => {
            let batches: Vec<_> =
                scanned.batches.iter().map(|batch| (batch.base.get(), batch.last.get())).collect();
            format!("{} scanned {batches:?} next {}", op.0, scanned.next)
        }
        Completion::KeyFound(op, Ok(found)) => {
            let offsets: Vec<_> = found.records.iter().map(|record| record.offset.get()).collect();
            format!("{} found {offsets:?} next {}", op.0, found.next)
        }
        Completion::PagesRead(op, Ok(pages)) => {
            let pages: Vec<_> = pages.iter().map(|page| page.bytes.len()).collect();
            format!("{} read pages of {pages:?} bytes", op.0)
        }
        Completion::ShareStateOpened(op, Ok(state)) => format!(
            "{} opened {} {}: snapshot {} events {}",
            op.0,
            state.state.group,
            state.state.partition.index,
            state.snapshot.is_some(),
            state.events.len()
        ),
        Completion::Appended(op, Ok(appended)) => {
            format!("{} appended at {} end {}", op.0, appended.base_offset, appended.facts.end)
        }
        other => format!("{other:?}"),
    }
}
