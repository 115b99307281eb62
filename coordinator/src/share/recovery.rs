//! The loading of a share-partition: its snapshot, then the pages that the snapshot names, then the events behind it.
//!
//! Pages of resting keys are read for their hashes only, and forgotten again: what waits is not in memory after a restart
//! either.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use records::ids::KeyHash;

use super::ShareConfig;
use super::codec::DecodeError;
use super::event::Event;
use super::limits::WindowLimits;
use super::partition::SharePartition;
use super::snapshot::{Manifest, PageUse};
use crate::io::{PAGES_READ_MAX, StoredState};
use crate::time::Now;

/// A share-partition that is being loaded.
#[derive(Debug)]
pub(crate) struct Recovery {
    partition: SharePartition,
    snapshot: Option<StoredState>,
    manifest: Manifest,
    events: Vec<StoredState>,
    /// Pages that are not there yet.
    wanted: VecDeque<(u64, PageUse)>,
    /// Keys of pages that an event brings back. What of a page is void may have been told otherwise when it came back: since
    /// then the log may have begun anew behind the place where it was cut.
    come_back: BTreeMap<u64, Vec<KeyHash>>,
}

impl Recovery {
    /// Begins with what is stored beside the pages.
    ///
    /// # Errors
    /// The stored state is damaged or of a version that this code does not know.
    pub(crate) fn begin(
        config: Arc<ShareConfig>,
        limits: Arc<WindowLimits>,
        snapshot: Option<StoredState>,
        events: Vec<StoredState>,
    ) -> Result<Self, DecodeError> {
        let mut partition = SharePartition::new(config, limits);
        let mut manifest = Manifest::default();
        if let Some(StoredState { bytes, void_from }) = &snapshot {
            manifest = partition.restore_window(bytes, void_from.get())?;
        }
        let wanted = manifest.pages.iter().copied().collect();
        let pages = events.iter().filter_map(|event| Event::page_of(&event.bytes));
        let come_back = pages.map(|page| (page, Vec::new())).collect();
        Ok(Self { partition, snapshot, manifest, events, wanted, come_back })
    }

    /// The pages to read next; none when all are there.
    pub(crate) fn wanted(&self) -> Vec<u64> {
        self.wanted.iter().take(PAGES_READ_MAX).map(|page| page.0).collect()
    }

    /// Pages were read, in the order in which they were wanted.
    ///
    /// # Errors
    /// One is damaged or of a version that this code does not know.
    pub(crate) fn supply(&mut self, pages: &[StoredState], now: Now) -> Result<(), DecodeError> {
        let end = self.snapshot.as_ref().map_or(i64::MAX, |snapshot| snapshot.void_from.get());
        for StoredState { bytes, void_from } in pages {
            let Some((id, used)) = self.wanted.pop_front() else { return Err(DecodeError) };
            let end = void_from.get().min(end);
            match used {
                PageUse::Settled(number) => {
                    self.partition.window.settled_mut().restore(number, bytes, Some(id), end)?;
                }
                PageUse::Resting => {
                    let keys = self.partition.restore_page(id, bytes, end, now)?;
                    self.come_back.entry(id).and_modify(|of_page| *of_page = keys);
                }
                PageUse::Marks => self.partition.restore_list(id, bytes)?,
            }
        }
        Ok(())
    }

    /// Ends with the events. Locks have no end yet, and nothing may be granted, before [`SharePartition::recovered`].
    ///
    /// # Errors
    /// The stored state is damaged or of a version that this code does not know.
    pub(crate) fn finish(mut self, now: Now) -> Result<SharePartition, DecodeError> {
        if let Some(StoredState { bytes, void_from }) = &self.snapshot {
            self.partition.restore_records(bytes, &self.manifest, void_from.get(), now)?;
        }
        for StoredState { bytes, void_from } in &self.events {
            if let Some(event) = Event::decode(bytes)?.below(void_from.get()) {
                if let Event::Unpaged { page, .. } = &event {
                    self.partition.forget_resting(&self.come_back.remove(page).unwrap_or_default());
                }
                self.partition.apply(&event, now);
            }
        }
        // That they ended is stored.
        self.partition.take_ended_locks();
        self.partition.forget_counted();
        Ok(self.partition)
    }
}
