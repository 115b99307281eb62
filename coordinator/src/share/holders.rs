//! Who holds what: members of one share-partition, and the locks under which they hold records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::offset_set::OffsetSet;
use crate::time::{Micros, Mono};

/// Members and locks of a share-partition.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    by_name: BTreeMap<Arc<str>, u32>,
    list: BTreeMap<u32, Holder>,
    locks: BTreeMap<u32, Lock>,
    timers: BTreeSet<(Mono, u32)>,
    holder_next: u32,
    lock_last: u32,
    /// Locks that ended, for the case that the events which say so cannot be stored.
    ended: Vec<(u64, Survivor)>,
}

/// What members know of a lock, whatever became of this memory.
#[derive(Clone, Debug)]
pub(crate) struct Survivor {
    pub(crate) holder: Arc<str>,
    /// Its holder's session is over: nobody knows of it any more.
    pub(crate) over: bool,
    pub(crate) since: Mono,
    pub(crate) ends: Option<Mono>,
    /// The broker was restarted since it was granted.
    pub(crate) restarted: bool,
    lock_ms: i64,
}

impl Survivor {
    fn of(lock: &Lock, holder: &Arc<str>) -> Self {
        Self {
            holder: Arc::clone(holder),
            over: false,
            since: lock.since,
            ends: lock.ends,
            restarted: lock.restarted,
            lock_ms: lock.lock_ms,
        }
    }

    /// A member's session is over.
    pub(crate) fn end_session(&mut self, member: &str) {
        self.over |= *self.holder == *member;
    }

    /// Its answer was written whole while the state is being read: its lock starts, unless its holder's session ended
    /// before.
    pub(crate) fn written(&mut self, now: Mono) {
        if self.ends.is_none() && !self.over {
            (self.since, self.ends) = (now, Some(now + Micros::from_ms(self.lock_ms)));
        }
    }
}

/// A member that holds records, or asked for some.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) name: Arc<str>,
    /// Offsets in its hands, recalled ones included.
    pub(crate) out: OffsetSet,
    /// Deliveries and their offsets that were taken from it without its asking, not told to it yet (delivery numbers
    /// only).
    pub(crate) untold: Vec<(u64, i64)>,
}

/// What was granted, or renewed, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) holder: u32,
    /// The delivery's number; a renewal keeps it.
    pub(crate) delivery: u64,
    /// Its holder acknowledges with delivery numbers.
    pub(crate) numbered: bool,
    /// Wall clock at its begin, milliseconds, and length: what survives a restart.
    pub(crate) wall_ms: i64,
    pub(crate) lock_ms: i64,
    /// When the records went out.
    pub(crate) since: Mono,
    /// When it runs out; `None` while the answer is not written whole.
    pub(crate) ends: Option<Mono>,
    /// Records under it.
    pub(crate) records: u32,
    /// The broker was restarted since: its end is nobody's failure.
    pub(crate) restarted: bool,
}

impl Holders {
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn find_or_add(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&number) = self.by_name.get(name) {
            return number;
        }
        self.holder_next += 1;
        let number = self.holder_next;
        self.by_name.insert(Arc::clone(name), number);
        self.list
            .insert(number, Holder { name: Arc::clone(name), out: OffsetSet::default(), untold: Vec::new() });
        number
    }

    pub(crate) fn get(&self, number: u32) -> &Holder {
        self.list.get(&number).expect("a lock's holder is known while the lock lives")
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Holder {
        self.list.get_mut(&number).expect("a lock's holder is known while the lock lives")
    }

    /// Forgets a member that holds nothing; says whether it did.
    pub(crate) fn forget(&mut self, number: u32) -> bool {
        let idle = self.list.get(&number).is_some_and(|holder| holder.out.is_empty());
        if idle && let Some(holder) = self.list.remove(&number) {
            self.by_name.remove(&holder.name);
        }
        idle
    }

    /// The first offset of `first..=last` in a holder's hands.
    pub(crate) fn held_in(&self, number: u32, first: i64, last: i64) -> Option<i64> {
        self.list.get(&number)?.out.range(first, last).next()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Holder)> {
        self.list.iter().map(|(&number, holder)| (number, holder))
    }

    pub(crate) fn lock(&self, number: u32) -> Option<&Lock> {
        self.locks.get(&number)
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = (u32, &Lock)> {
        self.locks.iter().map(|(&number, lock)| (number, lock))
    }

    pub(crate) fn open(&mut self, lock: Lock) -> u32 {
        self.lock_last = self.lock_last.checked_add(1).unwrap_or(1);
        let number = self.lock_last;
        if let Some(ends) = lock.ends {
            self.timers.insert((ends, number));
        }
        self.locks.insert(number, lock);
        number
    }

    /// Sets when a lock runs out.
    pub(crate) fn ends(&mut self, number: u32, ends: Option<Mono>) {
        if let Some(lock) = self.locks.get_mut(&number) {
            if let Some(old) = std::mem::replace(&mut lock.ends, ends) {
                self.timers.remove(&(old, number));
            }
            if let Some(ends) = ends {
                self.timers.insert((ends, number));
            }
        }
    }

    /// Its answer was written whole.
    pub(crate) fn begin(&mut self, number: u32, since: Mono, ends: Mono) {
        self.ends(number, Some(ends));
        if let Some(lock) = self.locks.get_mut(&number) {
            lock.since = since;
        }
    }

    pub(crate) fn set_restarted(&mut self, number: u32) {
        if let Some(lock) = self.locks.get_mut(&number) {
            lock.restarted = true;
        }
    }

    /// A record comes under a lock.
    pub(crate) fn put(&mut self, number: u32, offset: i64) -> u32 {
        let lock = self.locks.get_mut(&number).expect("a lock is opened before records come under it");
        lock.records += 1;
        let holder = lock.holder;
        self.get_mut(holder).out.insert(offset);
        holder
    }

    /// A record leaves its lock; the last one closes it. Says whose it was.
    pub(crate) fn take(&mut self, number: u32, offset: i64) -> u32 {
        let lock = self.locks.get_mut(&number).expect("a record that is out has a lock");
        lock.records -= 1;
        let (holder, ends, empty) = (lock.holder, lock.ends, lock.records == 0);
        if empty {
            let name = &self.list.get(&holder).expect("a lock's holder is known while the lock lives").name;
            self.ended.push((lock.delivery, Survivor::of(lock, name)));
            self.locks.remove(&number);
            if let Some(ends) = ends {
                self.timers.remove(&(ends, number));
            }
        }
        self.get_mut(holder).out.remove(offset);
        holder
    }

    /// A lock under which nothing came.
    pub(crate) fn drop_empty(&mut self, number: u32) {
        if self.locks.get(&number).is_some_and(|lock| lock.records == 0)
            && let Some(Lock { ends: Some(ends), .. }) = self.locks.remove(&number)
        {
            self.timers.remove(&(ends, number));
        }
    }

    /// Locks that ended since this was asked last.
    pub(crate) fn take_ended(&mut self) -> Vec<(u64, Survivor)> {
        std::mem::take(&mut self.ended)
    }

    /// These ended, too, with what they belonged to.
    pub(crate) fn keep_ended(&mut self, mut ended: Vec<(u64, Survivor)>) {
        self.ended.append(&mut ended);
    }

    /// Locks that members know of: those that live, and those that ended since it was asked last.
    pub(crate) fn survivors(&mut self) -> Vec<(u64, Survivor)> {
        let mut survivors = self.take_ended();
        survivors.extend(self.locks.values().map(|lock| {
            let name = &self.get(lock.holder).name;
            (lock.delivery, Survivor::of(lock, name))
        }));
        survivors
    }

    /// A member's session is over: of the locks that ended it knows no more, either.
    pub(crate) fn end_session(&mut self, member: &str) {
        self.ended.iter_mut().for_each(|(_, lock)| lock.end_session(member));
    }

    /// The lock that runs out first.
    pub(crate) fn first_end(&self) -> Option<(Mono, u32)> {
        self.timers.first().copied()
    }

    /// The first lock of a delivery whose answer is not written yet.
    pub(crate) fn unwritten(&self, delivery: u64) -> Option<u32> {
        self.locks
            .iter()
            .find(|(_, lock)| lock.delivery == delivery && lock.ends.is_none())
            .map(|(&number, _)| number)
    }

    /// How long ago `holder` got the oldest of what it holds.
    pub(crate) fn oldest(&self, holder: u32) -> Option<Mono> {
        self.locks.values().filter(|lock| lock.holder == holder).map(|lock| lock.since).min()
    }
}
