//! What has to be read for an operator's word. What it is about may rest in a page of the share state: the page is looked
//! for, and what is in it comes back before its time; of what is only asked about, it is told from the page. And a redrive
//! needs a record of its key that is in the log still.

use records::ids::Offset;

use super::admin::Source;
use super::{Op, ShareMachine};
use crate::io::{IoError, OpId, READ_RECORDS_MAX, ReadRecord, Slice, StoredState, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::share::ShareError;
use crate::share::admin::AdminError;
use crate::share::paging::{find_in_page, why_at_rest};
use crate::time::Now;

impl<S: Slice> ShareMachine<S> {
    /// Goes on behind this page. Of several requests one searches at a time; the others wait for it.
    pub(super) fn search(
        &mut self,
        now: Now,
        admin: u64,
        id: u32,
        behind: u64,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        let (generation, store) = (part.generation, part.store);
        let Some(pages) = part.open_mut().and_then(|open| open.pages_to_search(behind)) else { return };
        let Some(state) = store.filter(|_| !pages.is_empty()) else {
            // In none of them: what there is to say of it is said without.
            self.searched(admin);
            return self.serve_admin(now, admin, id, logs, out);
        };
        let wanted = pages.clone();
        let op = out.submit(Owner::Share, |op| Submission::ReadPages { op, state, pages: wanted });
        self.ops.insert(op, Op::Search { part: id, generation, admin, pages });
    }

    pub(super) fn search_read(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Vec<StoredState>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Search { part: id, generation, admin, pages }) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get_mut(&id).filter(|part| part.generation == generation) else {
            // It is read anew, and searched anew then.
            self.pending_admins.insert(admin);
            return;
        };
        let Some(open) = part.open_mut() else { return };
        pages.first().into_iter().for_each(|&page| open.page_failed(page));
        self.dirty.insert(id);
        self.wake_admins();
        let Some((wanted, is_asked)) = self.sought(admin) else { return };
        let found = result.map_err(|_| ShareError::Unavailable).and_then(|stored| {
            let find = |stored: &StoredState| find_in_page(&stored.bytes, stored.void_from.get(), wanted);
            let found = pages.iter().zip(stored).try_fold(None, |found, (&page, stored)| {
                Ok(if found.is_some() { found } else { find(&stored)?.map(|one| (page, stored, one)) })
            });
            found.map_err(|_: crate::share::codec::DecodeError| ShareError::Unavailable)
        });
        match found {
            Ok(None) => self.search(now, admin, id, pages.last().copied().unwrap_or(0), logs, out),
            Ok(Some((page, _, one))) if is_asked => {
                let known = self.open_part(id).and_then(|open| open.pages.get(page).copied());
                // `None`: it has come back meanwhile.
                self.answered(admin, known.map(|page| why_at_rest(&one, &page, now)));
            }
            Ok(Some((page, stored, _))) => {
                let read = self
                    .open_part(id)
                    .map(|open| open.page_read(page, &stored.bytes, stored.void_from.get(), now));
                if matches!(read, Some(Ok(()))) {
                    self.searched(admin);
                } else {
                    self.refuse_admin(admin, ShareError::Unavailable.into(), out);
                }
            }
            Err(error) => self.refuse_admin(admin, error.into(), out),
        }
    }

    /// Reads these records up to the first that is there.
    pub(super) fn look_for_source(&mut self, admin: u64, id: u32, sources: &[i64], out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&id) else { return };
        let (partition, generation) = (part.id, part.generation);
        let offsets: Vec<Offset> = sources.iter().copied().map(Offset).collect();
        let next = offsets.iter().copied().take(READ_RECORDS_MAX).collect();
        let op = out.submit(Owner::Share, |op| Submission::ReadRecords {
            op,
            partition,
            offsets: next,
            bytes_max: 1,
        });
        self.ops.insert(op, Op::Sources { part: id, generation, admin, offsets });
    }

    pub(super) fn sources_read(
        &mut self,
        (id, generation, admin): (u32, u32, u64),
        offsets: &[Offset],
        result: Result<Vec<ReadRecord>, IoError>,
        out: &mut Outbox<S>,
    ) {
        if self.parts.get(&id).is_none_or(|part| part.generation != generation) {
            self.source_is(admin, Source::Unknown);
            self.pending_admins.insert(admin);
            return;
        }
        let Ok(read) = result else {
            return self.refuse_admin(admin, ShareError::Unavailable.into(), out);
        };
        let left = &offsets[read.len().min(offsets.len())..];
        if read.iter().any(|read| read.record.is_some()) {
            self.source_is(admin, Source::There(0));
            self.pending_admins.insert(admin);
        } else if read.is_empty() || left.is_empty() {
            let offset = offsets.first().copied().unwrap_or_default();
            self.refuse_admin(admin, AdminError::SourceGone { offset, by_start: false }, out);
        } else {
            let left: Vec<i64> = left.iter().map(|offset| offset.get()).collect();
            self.look_for_source(admin, id, &left, out);
        }
    }
}
