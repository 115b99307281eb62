//! What people change while the broker is at work: topics and settings.

use std::sync::Arc;

use coordinator::command::Fact;
use coordinator::shard::Input;
use coordinator::share::{ShareAssignment, ShareConfig, ShareOrder};
use coordinator::time::Micros;

use super::World;
use crate::sim::event::Event;
use crate::sim::model::{Rule, Violation};
use crate::sim::node;
use crate::sim::plan::POISON;

impl World {
    /// What is planned for the topic of dead letters.
    pub(super) fn plan_letters(&mut self) {
        let plan = self.plan.dead_letters;
        for (ms, enabled) in [(plan.made_after_ms, false), (plan.enabled_after_ms, true)] {
            match (ms, enabled) {
                (0, false) => self.letters.made = true,
                (0, true) => self.letters.enabled = true,
                _ => self.clock.after(Micros::from_ms(ms.cast_signed()), Event::Letters { enabled }),
            }
        }
    }

    /// The topic of dead letters is made, or share groups may write to it from now on.
    pub(super) fn change_letters(&mut self, enabled: bool) -> Result<(), Violation> {
        let before = self.letters;
        if enabled {
            self.letters.enabled = true;
        } else {
            self.letters.made = true;
        }
        if before == self.letters || self.node.as_ref().is_none_or(|node| node.stopping) {
            return Ok(());
        }
        self.trace.note(self.clock.mono(), format_args!("dead letters: {:?}", self.letters));
        if let Some(node) = self.node.as_mut().filter(|_| !before.made && !enabled) {
            let opened = node
                .make_letters(&self.plan)
                .map_err(|error| Violation::new(Rule::Life, format!("no topic is made: {error}")))?;
            opened.into_iter().for_each(|input| self.tell(input));
        }
        self.tell(Input::Fact(node::topics(&self.plan, self.letters)));
        Ok(())
    }

    /// Some group gets other settings.
    pub(super) fn change_settings(&mut self) {
        let place = self.random.index(self.configs.len());
        let random = &mut self.random;
        let (group, before) = &self.configs[place];
        let mut config = ShareConfig::clone(before);
        match random.below(7) {
            0 | 1 => {
                config.order = match config.order {
                    ShareOrder::Key => ShareOrder::None,
                    ShareOrder::None => ShareOrder::Key,
                }
            }
            2 => config.poison = random.pick(&POISON),
            3 => config.key_inflight_max = random.pick(&[1, 2, 5]),
            6 => {
                config.assignment = match config.assignment {
                    ShareAssignment::Dynamic => ShareAssignment::Sticky,
                    ShareAssignment::Sticky => ShareAssignment::Dynamic,
                }
            }
            4 => config.delivery_count_max = random.pick(&[2, 3, 5, 10]),
            _ => config.record_locks_max = random.pick(&[100, 2_000]),
        }
        config.dead_letter_topic = Some(Arc::from(node::DEAD_LETTERS));
        let group = Arc::clone(group);
        self.configure(place, group, config);
    }

    /// Readers without membership can go on only where there is an order again.
    pub(super) fn order_for_readers(&mut self) {
        for place in 0..self.configs.len() {
            let (group, before) = &self.configs[place];
            if before.order == ShareOrder::None && !self.plan.groups[place].standalone.is_empty() {
                let config = ShareConfig { order: ShareOrder::Key, ..ShareConfig::clone(before) };
                self.configure(place, Arc::clone(group), config);
            }
        }
    }

    fn configure(&mut self, place: usize, group: Arc<str>, config: ShareConfig) {
        let config = Arc::new(config);
        self.trace.note(self.clock.mono(), format_args!("settings of {group}: {config:?}"));
        self.configs[place].1 = Arc::clone(&config);
        self.tell(Input::Fact(Fact::ShareConfigured(group, config)));
    }
}
