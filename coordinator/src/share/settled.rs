//! Settled offsets at and beyond the start offset: a set in chunks of 64 Ki offsets.
//!
//! Each chunk is kept as whichever of *all*, *runs*, *array* or *bitmap* is smallest, so that a share-partition
//! with millions of settled offsets behind one that is stuck costs 8 KiB a chunk at most. A snapshot stores a chunk in a
//! page of its own, or in itself where it is small; one that has not changed since stays in the page that it is in.

use std::collections::BTreeMap;

use super::codec::DecodeError;

/// Offsets a chunk.
const CHUNK: i64 = 1 << 16;
/// Bytes of a bitmap chunk: no other form may be larger, in memory or stored.
pub(crate) const BITMAP_BYTES: usize = (CHUNK / 8) as usize;
const WORDS: usize = (CHUNK / 64) as usize;
/// About what a chunk costs beside its form, tree included.
const CHUNK_BYTES: u64 = 2 * std::mem::size_of::<(i64, Chunk)>() as u64;

/// A set of offsets.
///
/// What it says of offsets below the last [`Settled::remove_below`] may be wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    chunks: BTreeMap<i64, Chunk>,
    /// Of all forms.
    bytes: u64,
    /// Pages of chunks that have changed since, or are gone.
    stale: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Chunk {
    form: Form,
    /// The form is looked at again when it has this many elements.
    review_at: usize,
    /// Offsets in it.
    count: u32,
    /// The page that holds it as it is.
    page: Option<u64>,
}

#[derive(Clone, Debug)]
enum Form {
    All,
    /// Inclusive, ascending, neither touching nor overlapping.
    Runs(Vec<(u16, u16)>),
    Array(Vec<u16>),
    Bitmap(Box<[u64; WORDS]>),
}

/// How a snapshot tells of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredChunk {
    /// In a page, which holds it as it is.
    Page(u64),
    /// In its smallest form: not in a page yet, or too small for one.
    Bytes(Vec<u8>),
}

impl Settled {
    /// Adds `first..=last`.
    pub(crate) fn insert(&mut self, first: i64, last: i64) {
        let mut from = first;
        while from <= last {
            let number = from.div_euclid(CHUNK);
            let end = last.min(number * CHUNK + CHUNK - 1);
            let chunk = self.chunks.entry(number).or_insert_with(Chunk::empty);
            let before = chunk.bytes() as u64;
            if chunk.insert(within(from), within(end)) {
                self.stale.extend(chunk.page.take());
            }
            self.bytes = self.bytes + chunk.bytes() as u64 - before;
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

    /// Nobody asks for offsets below `start` any more: chunks with no others go.
    pub(crate) fn remove_below(&mut self, start: i64) {
        let number = start.div_euclid(CHUNK);
        let is_gone =
            |at: i64, chunk: &Chunk| at < number || (at == number && chunk.ends_before(within(start)));
        while let Some(first) = self.chunks.first_entry().filter(|first| is_gone(*first.key(), first.get())) {
            let chunk = first.remove();
            self.bytes -= chunk.bytes() as u64;
            self.stale.extend(chunk.page);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for chunk in std::mem::take(&mut self.chunks).into_values() {
            self.stale.extend(chunk.page);
        }
        self.bytes = 0;
    }

    /// How many offsets of `first..=last` are in the set.
    pub(crate) fn count_in(&self, first: i64, last: i64) -> i64 {
        if first > last {
            return 0;
        }
        let (low, high) = (first.div_euclid(CHUNK), last.div_euclid(CHUNK));
        let counts = self.chunks.range(low..=high).map(|(&number, chunk)| {
            let from = if number == low { within(first) } else { 0 };
            let to = if number == high { within(last) } else { u16::MAX };
            i64::from(chunk.count_in(from, to))
        });
        counts.sum()
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES + self.bytes
    }

    /// Every chunk, ascending, for a snapshot.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (i64, StoredChunk)> {
        self.chunks.iter().map(|(&number, chunk)| {
            let stored = match chunk.page {
                Some(page) => StoredChunk::Page(page),
                None => StoredChunk::Bytes(chunk.encode()),
            };
            (number, stored)
        })
    }

    /// Chunk `number` is in this page now, as it is.
    pub(crate) fn set_page(&mut self, number: i64, page: u64) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            self.stale.extend(chunk.page.replace(page));
        }
    }

    /// Takes in a stored chunk, but for offsets from `end` on; `page` is where it came from.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub(crate) fn restore(
        &mut self,
        number: i64,
        bytes: &[u8],
        page: Option<u64>,
        end: i64,
    ) -> Result<(), DecodeError> {
        let base = number.checked_mul(CHUNK).ok_or(DecodeError)?;
        let chunk = Chunk::decode(bytes)?;
        let whole = end.saturating_sub(base) >= CHUNK;
        if whole && !self.chunks.contains_key(&number) {
            self.bytes += chunk.bytes() as u64;
            self.chunks.insert(number, Chunk { page, ..chunk });
            return Ok(());
        }
        for (first, last) in chunk.runs() {
            self.insert(base + i64::from(first), (base + i64::from(last)).min(end - 1));
        }
        self.stale.extend(page);
        Ok(())
    }

    /// Pages that nothing here names any more, since this was asked last.
    pub(crate) fn take_stale(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.stale)
    }

    /// Maximal runs (inclusive) at or after `from`, ascending.
    #[cfg(test)]
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
}

/// An offset's place in its chunk.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn within(offset: i64) -> u16 {
    offset.rem_euclid(CHUNK) as u16
}

/// Offsets of an inclusive run.
fn width(run: (u16, u16)) -> u32 {
    u32::from(run.1 - run.0) + 1
}

/// First byte of a stored chunk that is no bitmap.
const ALL: u8 = 0;
const RUNS: u8 = 1;
const ARRAY: u8 = 2;

impl Chunk {
    fn empty() -> Self {
        Self { form: Form::Runs(Vec::new()), review_at: 16, count: 0, page: None }
    }

    /// The smallest stored form: a bitmap is known by its length, which no other has.
    fn encode(&self) -> Vec<u8> {
        if self.count == 1 << 16 {
            return vec![ALL];
        }
        let runs = self.runs();
        let (as_runs, as_array) = (1 + runs.len() * 4, 1 + self.count as usize * 2);
        let mut bytes = Vec::with_capacity(as_runs.min(as_array).min(BITMAP_BYTES));
        if as_runs.min(as_array) >= BITMAP_BYTES {
            let mut words = Box::new([0; WORDS]);
            runs.into_iter().for_each(|(first, last)| {
                set_bits(&mut words, first, last);
            });
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        } else if as_array < as_runs {
            bytes.push(ARRAY);
            let array = runs.iter().flat_map(|&(first, last)| first..=last);
            array.for_each(|at| bytes.extend_from_slice(&at.to_le_bytes()));
        } else {
            bytes.push(RUNS);
            for (first, last) in runs {
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&last.to_le_bytes());
            }
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let pair = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let form = if bytes.len() == BITMAP_BYTES {
            let mut words = Box::new([0; WORDS]);
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            Form::Bitmap(words)
        } else {
            let (&tag, rest) = bytes.split_first().ok_or(DecodeError)?;
            match tag {
                ALL if rest.is_empty() => Form::All,
                RUNS if rest.len() % 4 == 0 => {
                    let runs: Vec<(u16, u16)> =
                        rest.chunks_exact(4).map(|run| (pair(run), pair(&run[2..]))).collect();
                    let apart = runs.windows(2).all(|two| u32::from(two[0].1) + 1 < u32::from(two[1].0));
                    if !apart || runs.iter().any(|run| run.0 > run.1) {
                        return Err(DecodeError);
                    }
                    Form::Runs(runs)
                }
                ARRAY if rest.len() % 2 == 0 => {
                    let array: Vec<u16> = rest.chunks_exact(2).map(pair).collect();
                    if !array.is_sorted_by(|a, b| a < b) {
                        return Err(DecodeError);
                    }
                    Form::Array(array)
                }
                _ => return Err(DecodeError),
            }
        };
        let mut chunk = Self { form, review_at: 0, count: 0, page: None };
        chunk.count = chunk.runs().into_iter().map(width).sum();
        chunk.review();
        Ok(chunk)
    }

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

    fn count_in(&self, first: u16, last: u16) -> u32 {
        if (first, last) == (0, u16::MAX) {
            return self.count;
        }
        match &self.form {
            Form::All => width((first, last)),
            Form::Runs(runs) => {
                let from = runs.partition_point(|run| run.1 < first);
                let inside = runs[from..].iter().take_while(|run| run.0 <= last);
                inside.map(|run| width((run.0.max(first), run.1.min(last)))).sum()
            }
            Form::Array(array) => {
                let behind = array.partition_point(|&at| at <= last);
                (behind - array.partition_point(|&at| at < first)) as u32
            }
            Form::Bitmap(words) => {
                words_of(first, last).map(|(word, mask)| (words[word] & mask).count_ones()).sum()
            }
        }
    }

    /// Whether there is nothing in it from `at` on.
    fn ends_before(&self, at: u16) -> bool {
        match &self.form {
            Form::All => false,
            Form::Runs(runs) => runs.last().is_none_or(|run| run.1 < at),
            Form::Array(array) => array.last().is_none_or(|&last| last < at),
            Form::Bitmap(words) => words_of(at, u16::MAX).all(|(word, mask)| words[word] & mask == 0),
        }
    }

    /// Says whether anything is new.
    fn insert(&mut self, first: u16, last: u16) -> bool {
        let added = match &mut self.form {
            Form::All => 0,
            Form::Runs(runs) => insert_run(runs, first, last),
            Form::Array(array) if first == last => match array.binary_search(&first) {
                Ok(_) => 0,
                Err(index) => {
                    array.insert(index, first);
                    1
                }
            },
            Form::Array(array) => {
                let mut runs = runs_of_array(array);
                let added = insert_run(&mut runs, first, last);
                self.form = Form::Runs(runs);
                self.review_at = 0;
                added
            }
            Form::Bitmap(words) => set_bits(words, first, last),
        };
        self.count += added;
        if added > 0 {
            self.review();
        }
        added > 0
    }

    /// Takes the smallest form, when the present one has grown enough for it to be worth a look.
    fn review(&mut self) {
        if self.count == 1 << 16 {
            self.form = Form::All;
            return;
        }
        let elements = match &self.form {
            Form::Runs(runs) => runs.len(),
            Form::Array(array) => array.len(),
            // A bitmap only ever fills up; full is the one thing worth noticing.
            Form::All | Form::Bitmap(_) => return,
        };
        if elements < self.review_at && self.bytes() <= BITMAP_BYTES {
            return;
        }
        let runs = self.runs();
        let (as_runs, as_array) = (runs.len() * 4, self.count as usize * 2);
        self.form = if as_runs.min(as_array) > BITMAP_BYTES {
            let mut words = Box::new([0; WORDS]);
            runs.into_iter().for_each(|(first, last)| {
                set_bits(&mut words, first, last);
            });
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
            Form::Runs(runs) => runs.capacity() * 4,
            Form::Array(array) => array.capacity() * 2,
            Form::Bitmap(_) => BITMAP_BYTES,
        }
    }
}

/// Says how many offsets are new.
fn insert_run(runs: &mut Vec<(u16, u16)>, first: u16, last: u16) -> u32 {
    // The runs that overlap or touch the new one, which takes them in.
    let from = runs.partition_point(|run| u32::from(run.1) + 1 < u32::from(first));
    let to = runs.partition_point(|run| run.0 <= last.saturating_add(1));
    if from >= to {
        runs.insert(from, (first, last));
        return width((first, last));
    }
    let merged = (first.min(runs[from].0), last.max(runs[to - 1].1));
    let before: u32 = runs[from..to].iter().copied().map(width).sum();
    if to - from == 1 {
        runs[from] = merged;
    } else {
        runs.splice(from..to, [merged]);
    }
    width(merged) - before
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

/// The words that hold `first..=last`, each with the mask of its bits in there.
fn words_of(first: u16, last: u16) -> impl Iterator<Item = (usize, u64)> {
    let (low, high) = (usize::from(first) / 64, usize::from(last) / 64);
    (low..=high).map(move |word| {
        let mut mask = u64::MAX;
        if word == low {
            mask &= u64::MAX << (first % 64);
        }
        if word == high {
            mask &= u64::MAX >> (63 - last % 64);
        }
        (word, mask)
    })
}

/// Says how many offsets are new.
fn set_bits(words: &mut [u64; WORDS], first: u16, last: u16) -> u32 {
    let mut added = 0;
    for (word, mask) in words_of(first, last) {
        added += (mask & !words[word]).count_ones();
        words[word] |= mask;
    }
    added
}

#[cfg(test)]
mod tests;
