//! Where assignment is sticky a key has its home among the members at work, by rendezvous hashing: of two members a key
//! prefers the same one always. So a key that went to one while another was there, and had nothing in flight, never goes
//! to the other while the one is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator::share::{ShareAssignment, ShareOrder};
use coordinator::time::Mono;
use records::ids::KeyHash;

use super::grants::Terms;
use super::readers::is_reader;
use super::state::Tri;
use super::{Model, Rule, ShareId, Violation};

/// A key, and of two members the one that it prefers, and the other.
type Preference = (KeyHash, Arc<str>, Arc<str>);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    known: BTreeSet<Preference>,
}

impl Homes {
    fn prefers(&self, key: KeyHash, one: &Arc<str>, other: &Arc<str>) -> bool {
        self.known.contains(&(key, Arc::clone(one), Arc::clone(other)))
    }
}

impl Model {
    /// A record goes to a member: its key is at home there.
    pub(super) fn check_home(
        &mut self,
        now: Mono,
        terms: &Terms,
        id: &ShareId,
        offset: i64,
    ) -> Result<(), Violation> {
        let (Some(share), Some(log)) = (self.shares.get(id), self.logs.of(id)) else { return Ok(()) };
        let sticky =
            share.config.assignment == ShareAssignment::Sticky && share.config.order == ShareOrder::Key;
        let settled = terms.since > share.hand.settings_since && now >= share.ghosts_until;
        let Some(key) = log.records.get(&offset).and_then(|seen| seen.key) else { return Ok(()) };
        if !sticky || !settled || is_reader(&terms.member) {
            return Ok(());
        }
        // What may have something in flight stays where it is.
        let in_flight = |other: &i64| {
            let record = share.record(*other);
            record.hold.is_some() || (record.unknown && record.settled != Tri::Yes)
        };
        if log.keys.get(&key).into_iter().flatten().any(in_flight) {
            return Ok(());
        }
        let others: Vec<Arc<str>> = self
            .members
            .keys()
            .filter(|(group, name)| *group == id.0 && *name != terms.member)
            .filter(|(group, name)| self.is_resident(now, group, name, terms.since))
            .map(|(_, name)| Arc::clone(name))
            .collect();
        for other in others {
            if self.homes.prefers(key, &other, &terms.member) {
                let text =
                    format!("{offset} of {} goes to {}, its key lives with {other}", id.0, terms.member);
                return Err(Violation::new(Rule::Home, text));
            }
            self.homes.known.insert((key, Arc::clone(&terms.member), other));
        }
        Ok(())
    }

    /// Whether a ready record has its home with this member for sure, or needs none.
    pub(super) fn is_home(&self, id: &ShareId, key: Option<KeyHash>, member: &Arc<str>) -> bool {
        let sticky = self.shares.get(id).is_some_and(|share| {
            share.config.assignment == ShareAssignment::Sticky && share.config.order == ShareOrder::Key
        });
        let Some(key) = key.filter(|_| sticky) else { return true };
        self.may_be_homes(id).filter(|name| *name != member).all(|name| self.homes.prefers(key, member, name))
    }

    /// The members of a group that may be at work.
    pub(super) fn may_be_homes(&self, id: &ShareId) -> impl Iterator<Item = &Arc<str>> {
        let of_group = self.members.iter().filter(|((group, _), _)| *group == id.0);
        of_group.filter(|(_, view)| view.may_be_resident()).map(|((_, name), _)| name)
    }
}
