//! What a log remembers of epochs and producers, and what its event logs may still say.

use records::ids::Offset;

use crate::model::Stored;
use crate::report::{Checked, ensure};
use crate::world::World;

impl World {
    pub(super) fn check_state(&mut self, index: usize) -> Checked {
        self.check_epochs(index)?;
        self.check_outlives(index)?;
        self.check_producers(index)
    }

    /// Each record has the epoch that it was written under, and each epoch ends where it did.
    fn check_epochs(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        let (id, name, end) = (model.id, model.directory(), model.end);
        let is_compacted = model.compacted() > 0;
        let batches: Vec<(i64, i64, i32)> = model
            .live()
            .iter()
            .map(|batch| (batch.base.max(model.start), batch.next(), batch.epoch))
            .collect();
        let (compacted, epochs_from) = (model.compacted(), model.epochs_from);
        let is_forgotten = model.start < epochs_from;
        for (base, next, epoch) in &batches {
            if *next <= compacted || *base < epochs_from {
                continue;
            }
            let found = self.logs().leader_epoch_at(id, Offset(*base));
            let is_same = found.as_ref().is_ok_and(|found| found == epoch);
            ensure!(is_same, Epoch, "{name}: {base} was written under {epoch}, not {found:?}");
        }
        if is_compacted || is_forgotten || batches.is_empty() {
            return Ok(());
        }
        for epoch in 0..=self.epoch {
            let behind = batches.iter().find(|(_, _, of)| *of > epoch);
            let floor = batches.iter().rev().find(|(_, _, of)| *of <= epoch);
            let ends = behind.map_or(end, |(base, ..)| *base);
            let expected = match (epoch == self.epoch, floor) {
                (true, _) => (epoch, Offset(end)),
                (false, Some((_, _, of))) => (*of, Offset(ends)),
                (false, None) => (epoch, Offset(ends)),
            };
            let found = self.logs().epoch_end_offset(id, epoch);
            let is_same = matches!(found, Ok(Some(found)) if found == expected);
            ensure!(is_same, Epoch, "{name}: epoch {epoch} ends at {found:?} instead of {expected:?}");
        }
        let to_come = self.epoch + 1;
        let found = self.logs().epoch_end_offset(id, to_come);
        ensure!(matches!(found, Ok(None)), Epoch, "{name}: an epoch to come ends at {found:?}");
        Ok(())
    }

    /// State never outlives its log: an event is void from its epoch's end offset on, and not before.
    fn check_outlives(&mut self, index: usize) -> Checked {
        let (id, name) = (self.models[index].id, self.models[index].directory());
        let events: Vec<_> =
            self.models[index].events.values().flat_map(|events| events.list.iter().cloned()).collect();
        for event in events {
            let found = self.logs().epoch_end_offset(id, event.epoch);
            ensure!(matches!(found, Ok(Some(_))), Outlives, "{name}: epoch {} is not known", event.epoch);
            let Ok(Some((_, ends))) = found else { continue };
            let model = &self.models[index];
            if event.batch == 0 || event.offset < model.start.max(model.epochs_from) {
                continue;
            }
            let is_valid = event.epoch == self.epoch || event.offset < ends.0;
            let is_there = model.batch_at(event.offset).is_some_and(|batch| batch.serial == event.batch);
            ensure!(
                is_valid == is_there,
                Outlives,
                "{name}: {event:?} counts: {is_valid}; its batch is there: {is_there}; its epoch ends at {ends}"
            );
        }
        Ok(())
    }

    /// The last batches of each producer are known.
    fn check_producers(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        if model.is_poisoned {
            return Ok(());
        }
        let from = model.knows_five_from.max(model.compacted());
        let mut sure: Vec<Stored> = Vec::new();
        for client in model.clients.iter().filter(|client| client.is_known) {
            let known = model.remembered(client);
            let last = known.len().saturating_sub(1);
            let is_sure = |(number, batch): &(usize, &&Stored)| batch.base >= from || *number == last;
            sure.extend(known.iter().enumerate().filter(is_sure).map(|(_, batch)| (*batch).clone()));
        }
        for batch in sure {
            self.send_again(index, &batch)?;
            if self.sim.is_dead() {
                return Ok(());
            }
        }
        Ok(())
    }
}
