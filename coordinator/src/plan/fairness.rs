//! O7: how much a member may hold, so that work spreads and nothing waits behind a slow one.

use crate::time::{Micros, Mono};

/// What a member of unknown speed may hold at first; it doubles with each answer that it settles.
const RECORDS_AT_FIRST: usize = 4;
/// A member's speed is known after this many settled answers …
const ANSWERS_TO_KNOW: u32 = 3;
/// … or this many settled records.
const RECORDS_TO_KNOW: u64 = 20;

/// A member's measured speed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    /// Smoothed time per record, microseconds; `None` before the first.
    per_record: Option<f64>,
    records: u64,
    answers: u32,
    last: Mono,
}

impl Speed {
    /// It settled `records` records; the youngest answer among them was written at `written`. `answers` answers are
    /// worked off by it.
    ///
    /// Its work on them began when it had them and was done with what it settled before.
    pub(crate) fn observe(&mut self, now: Mono, records: u32, written: Mono, answers: u32) {
        if records == 0 {
            return;
        }
        #[allow(clippy::cast_precision_loss)]
        let sample = (now - self.last.max(written)).0 as f64 / f64::from(records);
        // Many records at once say more than one.
        let weight = 1.0 - 0.8_f64.powi(i32::try_from(records).unwrap_or(i32::MAX));
        self.per_record = Some(match self.per_record {
            None => sample,
            Some(old) => old + (sample - old) * weight,
        });
        self.records += u64::from(records);
        self.answers = self.answers.saturating_add(answers);
        self.last = now;
    }

    /// How many records of ordered keys it may hold, for a target of `hold` of work.
    pub(crate) fn records_max(&self, hold: Micros) -> usize {
        let ramp = RECORDS_AT_FIRST << self.answers.min(16);
        let Some(per_record) = self.per_record else { return ramp };
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let measured = ((hold.0 as f64 / per_record.max(1.0)) as usize).max(1);
        if self.answers >= ANSWERS_TO_KNOW || self.records >= RECORDS_TO_KNOW {
            measured
        } else {
            measured.min(ramp)
        }
    }
}

/// How many keys a member may hold: its share of those that are ready or leased.
pub(crate) fn keys_max(keys: usize, live_members: usize) -> usize {
    keys.div_ceil(live_members.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Micros = Micros(100_000);

    #[test]
    fn k59_a_member_of_unknown_speed_starts_at_four_and_doubles() {
        let mut speed = Speed::default();
        for expected in [4, 8, 16] {
            assert_eq!(speed.records_max(HOLD), expected);
            let records = u32::try_from(expected).unwrap();
            speed.observe(
                Mono(u64::from(speed.answers) * 1_000 + 100),
                records,
                Mono(u64::from(speed.answers) * 1_000),
                1,
            );
        }
        assert!(speed.records_max(HOLD) > 1_000);
    }

    #[test]
    fn k59_a_slow_member_gets_one_and_grows_when_it_becomes_fast() {
        let mut speed = Speed::default();
        for second in 1..=20 {
            speed.observe(Mono(second * 1_000_000), 1, Mono(0), 0);
        }
        assert_eq!(speed.records_max(HOLD), 1);
        let mut grown = 0;
        for step in 1..=30 {
            let at = 20_000_000 + step * 10_000;
            speed.observe(Mono(at), 1, Mono(at - 1_000), 1);
            grown = speed.records_max(HOLD);
        }
        assert!(grown >= 10, "{grown}");
    }

    #[test]
    fn a_share_of_the_keys_is_rounded_up_and_never_none() {
        assert_eq!(keys_max(5_000, 5), 1_000);
        assert_eq!(keys_max(12, 5), 3);
        assert_eq!(keys_max(0, 5), 1);
        assert_eq!(keys_max(7, 0), 7);
    }
}
