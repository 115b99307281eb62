//! Numbers of any width, packed one behind the other, lowest bit first.

/// Zero bytes that must follow packed numbers in memory, so that each is read in one piece.
pub(super) const PADDING: usize = 16;

/// Packs numbers behind what `out` holds.
#[derive(Debug)]
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    gathered: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, gathered: 0, filled: 0 }
    }

    /// Adds the low `width` bits, 1 to 64; all higher ones are 0.
    #[inline]
    pub(super) fn put(&mut self, value: u64, width: u32) {
        debug_assert!((1..=64).contains(&width) && (width == 64 || value >> width == 0));
        self.gathered |= value << self.filled;
        let room = 64 - self.filled;
        if width < room {
            self.filled += width;
            return;
        }
        self.out.extend_from_slice(&self.gathered.to_le_bytes());
        self.gathered = if room == 64 { 0 } else { value >> room };
        if width == room {
            self.gathered = 0;
        }
        self.filled = width - room;
    }

    /// Writes the last, partly filled byte.
    pub(super) fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.gathered.to_le_bytes()[..bytes]);
    }
}

/// The number of `width` bits, 1 to 64, at `bit`. [`PADDING`] bytes must follow it.
#[inline]
pub(super) fn get(bytes: &[u8], bit: usize, width: u32) -> u64 {
    let word: [u8; 16] = *bytes[bit / 8..].first_chunk().expect("padding follows packed numbers");
    let value = (u128::from_le_bytes(word) >> (bit % 8)) as u64;
    value & (u64::MAX >> (64 - width))
}

/// The bits that `value` needs, at least 1.
pub(super) fn width_of(value: u64) -> u32 {
    (64 - value.leading_zeros()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_comes_back(values in proptest::collection::vec((any::<u64>(), 1_u32..=64), 0..200)) {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            let masked: Vec<(u64, u32)> =
                values.iter().map(|&(value, width)| (value & (u64::MAX >> (64 - width)), width)).collect();
            for &(value, width) in &masked {
                writer.put(value, width);
            }
            writer.finish();
            let bits: u64 = masked.iter().map(|(_, width)| u64::from(*width)).sum();
            prop_assert_eq!(bytes.len() as u64, bits.div_ceil(8));
            bytes.resize(bytes.len() + PADDING, 0);
            let mut at = 0;
            for (value, width) in masked {
                prop_assert_eq!(get(&bytes, at, width), value);
                at += width as usize;
            }
        }
    }

    #[test]
    fn widths() {
        assert_eq!([0, 1, 2, 255, 256, u64::MAX].map(width_of), [1, 1, 2, 8, 9, 64]);
    }
}
