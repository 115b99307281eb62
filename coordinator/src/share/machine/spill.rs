//! What is not in memory comes back: records of keys that were too long for the window, and pages of the share state.

use super::{Op, Part, PartState, ShareMachine, upper};
use crate::io::{IoError, KeyFound, OpId, Slice, StoredState, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::share::spill::LookUp;
use crate::time::Now;

impl<S: Slice> ShareMachine<S> {
    /// Looks up the records of keys that have hardly any left in memory, and reads back pages that are due, where someone
    /// is interested.
    pub(super) fn bring_back(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&number).filter(|part| !part.interested.is_empty()) else { return };
        let committed = self.group(part.group).config.read_committed;
        let upper = upper(logs, &self.group(part.group).config, part.id);
        let look_ups_max = self.limits.window.look_ups_max;
        let Some(part) = self.parts.get_mut(&number) else { return };
        let (partition, generation, store) = (part.id, part.generation, part.store);
        let PartState::Open(open) = &mut part.state else { return };
        while part.look_ups < look_ups_max && open.may_grant(upper) {
            let Some(look_up) = open.next_look_up() else { break };
            let LookUp { key, from, upper, max, .. } = look_up;
            part.look_ups += 1;
            let op = out.submit(Owner::Share, |op| Submission::FindKey {
                op,
                partition,
                key,
                from,
                upper,
                committed,
                max,
            });
            self.ops.insert(op, Op::Find { part: number, generation, look_up });
        }
        if let Some(state) = store
            && let Some(page) = open.next_page(now)
        {
            let op = out.submit(Owner::Share, |op| Submission::ReadPages { op, state, pages: vec![page] });
            self.ops.insert(op, Op::Page { part: number, generation, page });
        }
    }

    pub(super) fn key_found(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<KeyFound, IoError>,
        logs: &LogTable,
    ) {
        let Some(Op::Find { part: number, generation, look_up }) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        part.look_ups -= 1;
        let log_start = logs.get(&part.id).map(|facts| facts.log_start.get());
        let Some(open) = part.open_mut() else { return };
        match result {
            Ok(found) => {
                open.refilled(&look_up, &found);
                self.dirty.insert(number);
            }
            Err(error) => {
                open.look_up_failed(&look_up);
                let overtaken = log_start.filter(|&start| start > look_up.from.get());
                if let (IoError::OutOfRange, Some(start)) = (error, overtaken) {
                    open.log_started(start);
                    self.dirty.insert(number);
                } else {
                    self.scan_later(now, number);
                }
            }
        }
    }

    pub(super) fn pages_read(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Vec<StoredState>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        if let Some(Op::Search { .. }) = self.ops.get(&op) {
            return self.search_read(now, op, result, logs, out);
        }
        match self.ops.remove(&op) {
            Some(Op::Page { part, generation, page }) => {
                self.page_read(now, part, generation, page, result.as_deref().map_err(|error| *error));
            }
            Some(Op::LoadPages(number, generation)) => {
                self.load_pages_read(now, number, generation, result, logs, out);
            }
            _ => {}
        }
    }

    fn page_read(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        page: u64,
        result: Result<&[StoredState], IoError>,
    ) {
        let part = self.parts.get_mut(&number).filter(|part| part.generation == generation);
        let Some(open) = part.and_then(Part::open_mut) else { return };
        let read = match result {
            Ok([stored]) => {
                open.page_read(page, &stored.bytes, stored.void_from.get(), now).map_err(|_| IoError::Corrupt)
            }
            Ok(_) => Err(IoError::Corrupt),
            Err(error) => Err(error),
        };
        self.wake_admins();
        let Some(open) = self.open_part(number) else { return };
        if read.is_ok() {
            self.dirty.insert(number);
        } else {
            open.page_failed(page);
            self.scan_later(now, number);
        }
    }
}
