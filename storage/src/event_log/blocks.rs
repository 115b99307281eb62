//! Which blocks of a file are taken: a bit for each, the lowest free ones are taken first.

/// Blocks that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Run {
    /// The block behind the last one.
    pub(super) fn end(self) -> u32 {
        self.first + self.count
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Ends with a word that is not 0.
    words: Vec<u64>,
    taken: u32,
    /// No word below it has a free block.
    free_from: usize,
}

impl Blocks {
    /// Takes the lowest free blocks.
    pub(super) fn take(&mut self, count: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut left = count;
        while left > 0 {
            if self.free_from == self.words.len() {
                self.words.push(0);
            }
            let bit = (!self.words[self.free_from]).trailing_zeros();
            if bit == u64::BITS {
                self.free_from += 1;
                continue;
            }
            let block = self.free_from as u32 * u64::BITS + bit;
            self.words[self.free_from] |= 1 << bit;
            left -= 1;
            match runs.last_mut() {
                Some(run) if run.end() == block => run.count += 1,
                _ => runs.push(Run { first: block, count: 1 }),
            }
        }
        self.taken += count;
        runs
    }

    /// Takes just these, those of them that are free.
    pub(super) fn take_these(&mut self, run: Run) {
        for block in run.first..run.end() {
            let (word, bit) = place(block);
            if self.words.len() <= word {
                self.words.resize(word + 1, 0);
            }
            self.taken += u32::from(self.words[word] & bit == 0);
            self.words[word] |= bit;
        }
        self.trim();
    }

    /// Takes all free ones below `end`.
    pub(super) fn take_all_below(&mut self, end: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for block in (0..end).filter(|block| !self.is_taken(*block)) {
            match runs.last_mut() {
                Some(run) if run.end() == block => run.count += 1,
                _ => runs.push(Run { first: block, count: 1 }),
            }
        }
        runs.iter().for_each(|run| self.take_these(*run));
        runs
    }

    /// Gives taken blocks back.
    pub(super) fn give(&mut self, run: Run) {
        for block in run.first..run.end() {
            let (word, bit) = place(block);
            debug_assert!(self.is_taken(block), "block {block} is given back twice");
            self.words[word] &= !bit;
            self.free_from = self.free_from.min(word);
        }
        self.taken -= run.count;
        self.trim();
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// The block behind the last one that is taken.
    pub(super) fn end(&self) -> u32 {
        let Some(last) = self.words.last() else { return 0 };
        self.words.len() as u32 * u64::BITS - last.leading_zeros()
    }

    fn is_taken(&self, block: u32) -> bool {
        let (word, bit) = place(block);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        self.free_from = self.free_from.min(self.words.len());
    }
}

fn place(block: u32) -> (usize, u64) {
    ((block / u64::BITS) as usize, 1 << (block % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn blocks_of(runs: &[Run]) -> Vec<u32> {
        runs.iter().flat_map(|run| run.first..run.end()).collect()
    }

    proptest! {
        #[test]
        fn it_is_as_a_set(steps in proptest::collection::vec((0_u8..4, 0_u32..200), 0..60)) {
            let (mut blocks, mut set) = (Blocks::default(), BTreeSet::new());
            for (kind, number) in steps {
                match kind {
                    0 => {
                        let lowest: Vec<u32> = (0..).filter(|block| !set.contains(block)).take(number as usize % 90).collect();
                        prop_assert_eq!(&blocks_of(&blocks.take(lowest.len() as u32)), &lowest);
                        set.extend(lowest);
                    }
                    1 => {
                        let run = Run { first: number, count: number % 70 };
                        blocks.take_these(run);
                        set.extend(run.first..run.end());
                    }
                    2 => {
                        let rest: Vec<u32> = (0..number).filter(|block| !set.contains(block)).collect();
                        prop_assert_eq!(&blocks_of(&blocks.take_all_below(number)), &rest);
                        set.extend(rest);
                    }
                    _ => {
                        let given: Vec<u32> = set.iter().copied().filter(|block| block % 3 == number % 3).collect();
                        for block in given {
                            blocks.give(Run { first: block, count: 1 });
                            set.remove(&block);
                        }
                    }
                }
                prop_assert_eq!(blocks.taken(), set.len() as u32);
                prop_assert_eq!(blocks.end(), set.last().map_or(0, |last| last + 1));
            }
        }
    }
}
