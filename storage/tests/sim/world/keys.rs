//! The key index.

use super::World;
use crate::report::{Checked, ensure};

impl World {
    /// Turns the index on or off, or builds on it.
    pub(super) fn use_keys(&mut self, index: usize) -> Checked {
        let (id, name) = (self.models[index].id, self.models[index].directory());
        if self.models[index].has_keys && self.random.percent(8) {
            let dropped = self.logs().drop_key_index(id);
            self.note(|| format!("drop keys of {name}: {dropped:?}"));
            ensure!(dropped.is_ok() || self.may_fail(), Keys, "{name}: keys cannot be dropped: {dropped:?}");
            self.models[index].has_keys = false;
            return Ok(());
        }
        let enabled = self.logs().enable_key_index(id);
        ensure!(enabled.is_ok(), Keys, "{name}: keys cannot be indexed: {enabled:?}");
        self.models[index].has_keys = true;
        for _ in 0..self.random.between(0, 40) {
            let bytes_max = self.random.pick(&[1, 300, 1 << 20]);
            let built = self.logs().build_key_index(id, bytes_max);
            ensure!(built.is_ok() || self.may_fail(), Keys, "{name}: keys cannot be built: {built:?}");
            if !built.is_ok_and(|built| built.more) {
                break;
            }
        }
        let facts = self.logs().key_index_facts(id);
        self.note(|| format!("keys of {name}: {facts:?}"));
        Ok(())
    }
}
