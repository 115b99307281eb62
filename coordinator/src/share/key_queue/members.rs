//! What queues know of members: what each holds, and where it is at home.

use std::sync::Arc;

use records::ids::KeyHash;

use super::keys::Key;
use super::{KeyQueue, Load};
use crate::share::homes::{Home, Homes};
use crate::share::window::Window;

impl KeyQueue {
    /// Where a member belongs.
    pub(crate) fn home_of(&self, member: &str) -> Home {
        self.homes.as_ref().map_or(Home::ANYWHERE, |_| Home::of_member(member))
    }

    pub(crate) fn homes(&self) -> Option<Arc<Homes>> {
        self.homes.clone()
    }

    /// Keys have these homes from now on. Members' own are known again when they ask.
    pub(crate) fn settle_in(&mut self, window: &Window, homes: Option<Arc<Homes>>) {
        if homes == self.homes {
            return;
        }
        if homes.is_none() {
            self.loads.values_mut().for_each(|load| load.home = Home::ANYWHERE);
        }
        self.homes = homes;
        for key in self.keys.iter().map(|(key, _)| key).collect::<Vec<_>>() {
            self.refresh(window, key);
        }
    }

    pub(crate) fn load(&self, holder: u32) -> Load {
        self.loads.get(&holder).copied().unwrap_or_default()
    }

    /// How many records of one key `holder`, who is `member`, may have in flight from now on.
    pub(crate) fn limit(&mut self, window: &Window, holder: u32, member: &str, per_key_max: usize) {
        let home = self.home_of(member);
        let load = self.loads.entry(holder).or_default();
        let before = std::mem::replace(load, Load { per_key_max, home, ..*load });
        if (before.per_key_max, before.home) == (per_key_max, home) || load.records == 0 {
            return;
        }
        let is_its = |key: &Key| !key.out.is_empty() && key.lessee == holder;
        let keys: Vec<KeyHash> =
            self.keys.iter().filter(|(_, key)| is_its(key)).map(|(hash, _)| hash).collect();
        for key in keys {
            self.refresh(window, key);
        }
    }

    /// The member is gone and holds nothing.
    pub(crate) fn forget(&mut self, holder: u32) {
        self.loads.remove(&holder);
    }
}
