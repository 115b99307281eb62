//! What happens next.

use records::ids::Offset;
use storage::FlushPolicy;

use super::World;
use crate::model::{Ending, LogModel, topic_id};
use crate::report::{Checked, ensure};

/// One thing that can happen.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Produce,
    Sync,
    TakeSync,
    FinishSync,
    Events,
    Snapshot,
    DropEvents,
    DeleteRecords,
    Retention,
    Remove,
    Checkpoint,
    Clean,
    Keys,
    Configure,
    Read,
    Check,
    Recreate,
    Time,
    End,
}

impl World {
    /// Does the next thing, perhaps with a fault on its way.
    pub(super) fn step(&mut self) -> Checked {
        self.let_loose();
        let index = self.random.index(self.models.len());
        let step = self.draw();
        match step {
            Step::Append => self.append(index, false)?,
            Step::Produce => self.append(index, true)?,
            Step::Sync => self.sync(index)?,
            Step::TakeSync => self.take_sync(index)?,
            Step::FinishSync => self.finish_sync()?,
            Step::Events => self.append_events(index)?,
            Step::Snapshot => self.write_snapshot(index)?,
            Step::DropEvents => self.delete_events(index)?,
            Step::DeleteRecords => self.delete_records(index)?,
            Step::Retention => self.enforce_retention()?,
            Step::Remove => self.remove_retired()?,
            Step::Checkpoint => self.checkpoint()?,
            Step::Clean => self.clean()?,
            Step::Keys => self.use_keys(index)?,
            Step::Configure => self.configure(index)?,
            Step::Read => self.hold_slice(index)?,
            Step::Check => self.check(index)?,
            Step::Recreate => self.recreate(index)?,
            Step::Time => self.pass_time()?,
            Step::End => {
                let (cuts, kills) = (self.plan.cuts, self.plan.kills);
                let ending = match self.random.below(100) {
                    drawn if drawn < cuts => Ending::Cut,
                    drawn if drawn < cuts + kills => Ending::Kill,
                    _ => Ending::Clean,
                };
                self.end(ending)?;
            }
        }
        self.check_slices()
    }

    fn draw(&mut self) -> Step {
        let plan = &self.plan;
        let when = |is_on: bool, weight: u64| if is_on { weight } else { 0 };
        let weights = [
            (22, Step::Append),
            (when(plan.producers, 14), Step::Produce),
            (6, Step::Sync),
            (4, Step::TakeSync),
            (5, Step::FinishSync),
            (when(plan.events, 8), Step::Events),
            (when(plan.events, if plan.pages { 5 } else { 2 }), Step::Snapshot),
            (when(plan.events, 1), Step::DropEvents),
            (when(plan.deletes, 2), Step::DeleteRecords),
            (when(plan.deletes, 3), Step::Retention),
            (2, Step::Remove),
            (3, Step::Checkpoint),
            (when(plan.compacts, 10), Step::Clean),
            (when(plan.keys, 5), Step::Keys),
            (when(plan.reconfigures, 2), Step::Configure),
            (3, Step::Read),
            (1, Step::Check),
            (when(plan.topics_come_and_go, 1), Step::Recreate),
            (3, Step::Time),
            (6, Step::End),
        ];
        self.random.weighed(&weights)
    }

    /// Arms a fault, now and then.
    fn let_loose(&mut self) {
        if self.plan.dies_within && self.random.percent(5) {
            let calls = self.random.below(16);
            self.note(|| format!("to die after {calls} calls"));
            self.sim.fail_syncs(0);
            self.sim.fail_directory_syncs(0);
            self.sim.die_after(calls);
        } else if self.plan.faults && self.random.percent(4) {
            let calls = self.random.below(8);
            self.note(|| format!("to fail after {calls} calls"));
            self.is_faulty = true;
            // One at a time: where a sync fails, and then what would tell of it, nothing can be done.
            self.sim.disarm();
            self.sim.fail_syncs(0);
            self.sim.fail_directory_syncs(0);
            match self.random.below(8) {
                0 => self.sim.fail_syncs(1),
                1 => self.sim.fail_directory_syncs(1),
                _ => self.sim.fail_after(calls),
            }
        } else if self.is_full && self.random.percent(25) {
            self.note(|| "room again".to_owned());
            self.sim.set_capacity(u64::MAX);
            self.is_full = false;
        } else if self.plan.full && !self.is_full && self.random.percent(4) {
            let room = self.random.below(600);
            self.note(|| format!("{room} bytes of room"));
            self.sim.set_capacity(self.sim.used() + room);
            self.is_full = true;
            // What is put off for want of room stays put off when there is room again.
            self.is_faulty = true;
        }
    }

    fn pass_time(&mut self) -> Checked {
        self.time_ms += self.random.between(1, 4_000);
        let now = self.now_ms();
        let due: Vec<usize> = {
            let ids: Vec<_> = self.logs().due_flushes(now).collect();
            ids.into_iter().filter_map(|id| self.index_of(id)).collect()
        };
        for index in due {
            self.sync(index)?;
            if self.sim.is_dead() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn configure(&mut self, index: usize) -> Checked {
        let plan = self.plan.clone();
        let config = plan.config(&mut self.random);
        let model = &mut self.models[index];
        model.interval_max = model.interval_max.max(config.index_interval_bytes);
        model.delete_retention_ms = model.delete_retention_ms.min(config.delete_retention_ms);
        model.config = config.clone();
        let (id, name) = (model.id, model.directory());
        self.note(|| format!("configure {name} {config:?}"));
        let changed = self.logs().configure(id, config.clone());
        ensure!(changed.is_ok(), Fails, "{name}: settings are refused: {changed:?}");
        let asked = self.logs().syncs_when_asked(id);
        if let Ok(asked) = asked {
            ensure!(
                asked == (config.flush == FlushPolicy::Acks),
                Fails,
                "{name}: flush policy is not followed"
            );
        }
        Ok(())
    }

    /// Deletes a topic, and creates one of the same name.
    pub(super) fn recreate(&mut self, index: usize) -> Checked {
        let name = self.models[index].name.clone();
        self.note(|| format!("recreate {name}"));
        let (gone, kept): (Vec<LogModel>, Vec<LogModel>) =
            std::mem::take(&mut self.models).into_iter().partition(|model| model.name == name);
        self.models = kept;
        let topic = topic_id(self.number());
        let deletes = self.random.percent(80);
        for model in gone {
            self.outstanding.retain(|outstanding| outstanding.id != model.id);
            let mut id = model.id;
            if deletes {
                let deleted = self.logs().delete_partition(id);
                ensure!(deleted.is_ok() || self.may_fail(), Fails, "{name}: cannot be deleted: {deleted:?}");
            }
            id.topic = topic;
            self.models.push(LogModel::new(name.clone(), id, model.config));
        }
        self.slices.clear();
        if !deletes {
            // The process dies before it has come to that; the next one finds what no topic is of any more.
            return self.end(Ending::Kill);
        }
        for index in 0..self.models.len() {
            if self.models[index].name != name || self.sim.is_dead() {
                continue;
            }
            let (id, config) = (self.models[index].id, self.models[index].config.clone());
            match self.logs().open_partition(id, &name, config) {
                Ok(facts) => {
                    self.models[index].was_open = true;
                    let is_empty = facts.log_start == Offset::ZERO && facts.end == Offset::ZERO;
                    ensure!(is_empty, Phantom, "{name}: a new log has {facts:?}");
                }
                Err(error) => {
                    ensure!(self.may_fail(), Fails, "{name}: cannot be created: {error}");
                    if !self.sim.is_dead() {
                        return self.end(Ending::Kill);
                    }
                }
            }
        }
        Ok(())
    }
}
