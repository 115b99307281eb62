//! Settled offsets at and beyond the start offset: a set in chunks of 64 Ki offsets.
//!
//! Each chunk is stored as whichever of *all*, *runs*, *array* or *bitmap* is smallest, so that a share-partition
//! with millions of settled offsets behind one that is stuck costs 8 KiB a chunk at most.

use std::collections::BTreeMap;

/// Offsets a chunk.
const CHUNK: i64 = 1 << 16;
/// Bytes of a bitmap chunk: no other form may be larger.
const BITMAP_BYTES: usize = (CHUNK / 8) as usize;
const WORDS: usize = (CHUNK / 64) as usize;

/// A set of offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    chunks: BTreeMap<i64, Chunk>,
}

#[derive(Clone, Debug)]
struct Chunk {
    form: Form,
    /// The form is looked at again when it has this many elements.
    review_at: usize,
}

/// Two chunks are equal when they hold the same offsets, whatever their form.
impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        self.runs() == other.runs()
    }
}
impl Eq for Chunk {}

#[derive(Clone, Debug)]
enum Form {
    All,
    /// Inclusive, ascending, neither touching nor overlapping.
    Runs(Vec<(u16, u16)>),
    Array(Vec<u16>),
    Bitmap(Box<[u64; WORDS]>),
}

impl Settled {
    /// Adds `first..=last`.
    pub(crate) fn insert(&mut self, first: i64, last: i64) {
        let mut from = first;
        while from <= last {
            let number = from.div_euclid(CHUNK);
            let end = last.min(number * CHUNK + CHUNK - 1);
            let chunk = self
                .chunks
                .entry(number)
                .or_insert_with(|| Chunk { form: Form::Runs(Vec::new()), review_at: 16 });
            chunk.insert(within(from), within(end));
            from = end + 1;
        }
    }

    /// Whether `offset` is in the set.
    pub(crate) fn contains(&self, offset: i64) -> bool {
        self.chunks.get(&offset.div_euclid(CHUNK)).is_some_and(|chunk| chunk.contains(within(offset)))
    }

    /// The first offset at or after `from` that is not in the set.
    pub(crate) fn next_absent(&self, from: i64) -> i64 {
        let mut at = from;
        loop {
            let number = at.div_euclid(CHUNK);
            let Some(chunk) = self.chunks.get(&number) else { return at };
            match chunk.next_absent(within(at)) {
                Some(absent) => return number * CHUNK + i64::from(absent),
                None => at = (number + 1) * CHUNK,
            }
        }
    }

    /// Forgets everything below `start`.
    pub(crate) fn remove_below(&mut self, start: i64) {
        let number = start.div_euclid(CHUNK);
        if self.chunks.first_key_value().is_some_and(|(&first, _)| first < number) {
            self.chunks = self.chunks.split_off(&number);
        }
        if within(start) > 0
            && let Some(chunk) = self.chunks.get_mut(&number)
            && chunk.remove_below(within(start))
        {
            self.chunks.remove(&number);
        }
    }

    /// Maximal runs (inclusive) at or after `from`, ascending.
    pub(crate) fn runs_from(&self, from: i64) -> Vec<(i64, i64)> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (&number, chunk) in self.chunks.range(from.div_euclid(CHUNK)..) {
            let base = number * CHUNK;
            for (first, last) in chunk.runs() {
                let (first, last) = (base + i64::from(first), base + i64::from(last));
                if last < from {
                    continue;
                }
                let first = first.max(from);
                match runs.last_mut() {
                    Some(run) if run.1 + 1 == first => run.1 = last,
                    _ => runs.push((first, last)),
                }
            }
        }
        runs
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let per_chunk = std::mem::size_of::<(i64, Chunk)>() as u64 + 16;
        self.chunks.values().map(|chunk| per_chunk + chunk.bytes() as u64).sum()
    }
}

/// An offset's place in its chunk.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn within(offset: i64) -> u16 {
    offset.rem_euclid(CHUNK) as u16
}

impl Chunk {
    fn contains(&self, at: u16) -> bool {
        match &self.form {
            Form::All => true,
            Form::Runs(runs) => {
                let index = runs.partition_point(|run| run.1 < at);
                runs.get(index).is_some_and(|run| run.0 <= at)
            }
            Form::Array(array) => array.binary_search(&at).is_ok(),
            Form::Bitmap(words) => words[usize::from(at) / 64] >> (at % 64) & 1 == 1,
        }
    }

    fn insert(&mut self, first: u16, last: u16) {
        match &mut self.form {
            Form::All => return,
            Form::Runs(runs) => insert_run(runs, first, last),
            Form::Array(array) if first == last => {
                if let Err(index) = array.binary_search(&first) {
                    array.insert(index, first);
                }
            }
            Form::Array(array) => {
                let mut runs = runs_of_array(array);
                insert_run(&mut runs, first, last);
                self.form = Form::Runs(runs);
                self.review_at = 0;
            }
            Form::Bitmap(words) => set_bits(words, first, last),
        }
        self.review();
    }

    /// Takes the smallest form, when the present one has grown enough for it to be worth a look.
    fn review(&mut self) {
        let elements = match &self.form {
            Form::All => return,
            Form::Runs(runs) if runs.len() == 1 && runs[0] == (0, u16::MAX) => {
                self.form = Form::All;
                return;
            }
            Form::Runs(runs) => runs.len(),
            Form::Array(array) => array.len(),
            // A bitmap only ever fills up; full is the one thing worth noticing.
            Form::Bitmap(words) => {
                if words.iter().all(|&word| word == u64::MAX) {
                    self.form = Form::All;
                }
                return;
            }
        };
        if elements < self.review_at && self.bytes() <= BITMAP_BYTES {
            return;
        }
        let runs = self.runs();
        let count: usize = runs.iter().map(|run| usize::from(run.1 - run.0) + 1).sum();
        let (as_runs, as_array) = (runs.len() * 4, count * 2);
        self.form = if as_runs.min(as_array) > BITMAP_BYTES {
            let mut words = Box::new([0; WORDS]);
            for (first, last) in runs {
                set_bits(&mut words, first, last);
            }
            Form::Bitmap(words)
        } else if as_array < as_runs {
            Form::Array(runs.iter().flat_map(|&(first, last)| first..=last).collect())
        } else {
            Form::Runs(runs)
        };
        self.review_at = (elements * 2).max(16);
    }

    fn next_absent(&self, from: u16) -> Option<u16> {
        match &self.form {
            Form::All => None,
            Form::Runs(runs) => {
                let index = runs.partition_point(|run| run.1 < from);
                match runs.get(index) {
                    Some(run) if run.0 <= from => run.1.checked_add(1),
                    _ => Some(from),
                }
            }
            Form::Array(_) => {
                let mut at = from;
                while self.contains(at) {
                    at = at.checked_add(1)?;
                }
                Some(at)
            }
            Form::Bitmap(words) => {
                let mut word = usize::from(from) / 64;
                let mut absent = !words[word] & (u64::MAX << (from % 64));
                while absent == 0 {
                    word += 1;
                    absent = !*words.get(word)?;
                }
                u16::try_from(word * 64 + absent.trailing_zeros() as usize).ok()
            }
        }
    }

    /// Whether nothing is left.
    fn remove_below(&mut self, start: u16) -> bool {
        match &mut self.form {
            Form::All => self.form = Form::Runs(vec![(start, u16::MAX)]),
            Form::Runs(runs) => {
                let gone = runs.partition_point(|run| run.1 < start);
                runs.drain(..gone);
                if let Some(run) = runs.first_mut() {
                    run.0 = run.0.max(start);
                }
                return runs.is_empty();
            }
            Form::Array(array) => {
                let gone = array.partition_point(|&at| at < start);
                array.drain(..gone);
                return array.is_empty();
            }
            Form::Bitmap(words) => {
                let word = usize::from(start) / 64;
                words[..word].fill(0);
                words[word] &= u64::MAX << (start % 64);
                return words.iter().all(|&word| word == 0);
            }
        }
        false
    }

    fn runs(&self) -> Vec<(u16, u16)> {
        match &self.form {
            Form::All => vec![(0, u16::MAX)],
            Form::Runs(runs) => runs.clone(),
            Form::Array(array) => runs_of_array(array),
            Form::Bitmap(words) => {
                let mut runs: Vec<(u16, u16)> = Vec::new();
                for (index, &word) in words.iter().enumerate() {
                    let mut left = word;
                    while left != 0 {
                        let at = within((index * 64) as i64 + i64::from(left.trailing_zeros()));
                        match runs.last_mut() {
                            Some(run) if run.1.checked_add(1) == Some(at) => run.1 = at,
                            _ => runs.push((at, at)),
                        }
                        left &= left - 1;
                    }
                }
                runs
            }
        }
    }

    fn bytes(&self) -> usize {
        match &self.form {
            Form::All => 0,
            Form::Runs(runs) => runs.len() * 4,
            Form::Array(array) => array.len() * 2,
            Form::Bitmap(_) => BITMAP_BYTES,
        }
    }
}

fn insert_run(runs: &mut Vec<(u16, u16)>, first: u16, last: u16) {
    // The runs that overlap or touch the new one, which takes them in.
    let from = runs.partition_point(|run| u32::from(run.1) + 1 < u32::from(first));
    let to = runs.partition_point(|run| run.0 <= last.saturating_add(1));
    if from >= to {
        runs.insert(from, (first, last));
        return;
    }
    let merged = (first.min(runs[from].0), last.max(runs[to - 1].1));
    runs.splice(from..to, [merged]);
}

fn runs_of_array(array: &[u16]) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &at in array {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == at => run.1 = at,
            _ => runs.push((at, at)),
        }
    }
    runs
}

fn set_bits(words: &mut [u64; WORDS], first: u16, last: u16) {
    let (low, high) = (usize::from(first) / 64, usize::from(last) / 64);
    for (word, bits) in words.iter_mut().enumerate().take(high + 1).skip(low) {
        let mut mask = u64::MAX;
        if word == low {
            mask &= u64::MAX << (first % 64);
        }
        if word == high {
            mask &= u64::MAX >> (63 - last % 64);
        }
        *bits |= mask;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_second_offset_costs_one_bitmap_a_chunk() {
        let mut settled = Settled::default();
        for offset in (0..3 * CHUNK).step_by(2) {
            settled.insert(offset, offset);
        }
        assert!(settled.heap_bytes() < 3 * (BITMAP_BYTES as u64 + 128), "{}", settled.heap_bytes());
        for offset in (1..3 * CHUNK).step_by(2) {
            settled.insert(offset, offset);
        }
        assert!(settled.heap_bytes() < 3 * 128);
        assert_eq!(settled.runs_from(5), [(5, 3 * CHUNK - 1)]);
        assert_eq!(settled.next_absent(0), 3 * CHUNK);
    }

    proptest! {
        #[test]
        fn behaves_as_a_plain_set(
            steps in prop::collection::vec((0_i64..200_000, 0_i64..400, 0_u8..16), 1..300),
            probes in prop::collection::vec(0_i64..201_000, 20),
        ) {
            let mut settled = Settled::default();
            let mut model = BTreeSet::new();
            let mut start = 0;
            for (first, length, kind) in steps {
                if kind == 0 {
                    start = start.max(first / 4);
                    settled.remove_below(start);
                    model = model.split_off(&start);
                } else {
                    let length = if kind < 10 { 0 } else { length };
                    let first = first.max(start);
                    settled.insert(first, first + length);
                    model.extend(first..=first + length);
                }
            }
            for probe in probes {
                prop_assert_eq!(settled.contains(probe), model.contains(&probe));
                let mut absent = probe;
                while model.contains(&absent) { absent += 1; }
                prop_assert_eq!(settled.next_absent(probe), absent);
            }
            let listed: Vec<i64> = settled.runs_from(start).into_iter().flat_map(|(a, b)| a..=b).collect();
            prop_assert_eq!(listed, model.into_iter().collect::<Vec<_>>());
        }
    }
}
