//! What one share fetch may still take, over all its partitions.

/// The remaining limits of a fetch. A first record goes out whatever its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    records: usize,
    bytes: i64,
    keys: usize,
    /// Records of ordered keys that the member may still be given (O7).
    hold: usize,
    taken: bool,
}

impl Budget {
    /// `keys` 0 is no bound on keys.
    pub(crate) fn new(records: i32, bytes: i32, keys: u32) -> Self {
        Self {
            records: usize::try_from(records).unwrap_or(0),
            bytes: i64::from(bytes),
            keys: if keys == 0 { usize::MAX } else { keys as usize },
            hold: usize::MAX,
            taken: false,
        }
    }

    /// Bounds the records of ordered keys.
    pub(crate) fn hold_at_most(&mut self, records: usize) {
        self.hold = records;
    }

    /// How many records may still be taken.
    pub(crate) fn records_left(&self) -> usize {
        self.records
    }

    /// Whether nothing more can be taken.
    pub(crate) fn is_spent(&self) -> bool {
        self.records == 0 || (self.taken && self.bytes <= 0)
    }

    /// Whether a record of this size fits.
    pub(crate) fn fits(&self, bytes: u32) -> bool {
        self.records > 0 && self.fits_bytes(bytes)
    }

    /// As [`Budget::fits`], whatever the number of records.
    pub(crate) fn fits_bytes(&self, bytes: u32) -> bool {
        !self.taken || i64::from(bytes) <= self.bytes
    }

    /// Whether a record of an ordered key may go out, of a key that is new to the answer or not.
    pub(crate) fn fits_key(&self, new: bool) -> bool {
        self.hold > 0 && (!new || self.keys > 0)
    }

    /// A record was taken.
    pub(crate) fn take(&mut self, bytes: u32) {
        self.records = self.records.saturating_sub(1);
        self.bytes -= i64::from(bytes);
        self.taken = true;
    }

    /// A record of an ordered key was taken.
    pub(crate) fn take_keyed(&mut self, bytes: u32, new: bool) {
        self.take(bytes);
        self.hold = self.hold.saturating_sub(1);
        if new {
            self.keys = self.keys.saturating_sub(1);
        }
    }
}
