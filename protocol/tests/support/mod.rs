//! Random values for the codec tests, and a file range that is none.
#![allow(dead_code, unreachable_pub)]

use bytes::Bytes;
use protocol::{ErrorCode, Records, Segment, SegmentLen, StrBytes};
use records::ids::{Offset, TopicId};

/// A source of values, by SplitMix64. Small and extreme numbers come often.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn i64(&mut self) -> i64 {
        match self.below(6) {
            0 => -1,
            1 => i64::MIN,
            2 => i64::MAX,
            3 => self.below(200) as i64,
            _ => self.next() as i64,
        }
    }

    pub fn i32(&mut self) -> i32 {
        match self.below(6) {
            0 => -1,
            1 => i32::MIN,
            2 => i32::MAX,
            3 => self.below(200) as i32,
            _ => self.next() as i32,
        }
    }

    pub fn i16(&mut self) -> i16 {
        self.next() as i16
    }

    pub fn i8(&mut self) -> i8 {
        self.next() as i8
    }

    pub fn offset(&mut self) -> Offset {
        Offset(self.i64())
    }

    pub fn topic_id(&mut self) -> TopicId {
        let (high, low) = (self.next().to_be_bytes(), self.next().to_be_bytes());
        TopicId(std::array::from_fn(|at| if at < 8 { high[at] } else { low[at - 8] }))
    }

    pub fn error_code(&mut self) -> ErrorCode {
        ErrorCode::ALL[self.below(ErrorCode::ALL.len() as u64) as usize]
    }

    pub fn text(&mut self) -> StrBytes {
        // Lengths on both sides of a two-byte varint.
        let length = if self.below(8) == 0 { 120 + self.below(20) } else { self.below(12) };
        StrBytes::from((0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect::<String>())
    }

    pub fn maybe_text(&mut self) -> Option<StrBytes> {
        self.chance().then(|| self.text())
    }

    pub fn bytes(&mut self) -> Bytes {
        let length = match self.below(4) {
            0 => 0,
            1 => 500 + self.below(30),
            2 => 16_370 + self.below(30),
            _ => self.below(200),
        };
        (0..length).map(|at| (at as u8).wrapping_mul(31)).collect()
    }

    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.below(40) == 0 { 130 } else { self.below(4) };
        (0..count).map(|_| element(self)).collect()
    }

    /// Records in pieces of both kinds, and the bytes that they stand for.
    pub fn records(&mut self) -> (Records<Range>, Bytes) {
        let mut records = Records::new();
        let mut joined = Vec::new();
        for _ in 0..self.below(4) {
            let bytes = self.bytes();
            joined.extend_from_slice(&bytes);
            let file = self.chance();
            records.push(if file { Segment::File(Range(bytes)) } else { Segment::Inline(bytes) });
        }
        (records, joined.into())
    }
}

/// A range of a file whose bytes are at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range(pub Bytes);

impl SegmentLen for Range {
    fn byte_len(&self) -> usize {
        self.0.len()
    }
}

/// Joins a frame and checks its length prefix and its total; returns what follows the prefix.
pub fn join(segments: protocol::Segments<Range>) -> Bytes {
    let total = segments.byte_len();
    let inline = segments.as_slice().iter().map(Segment::byte_len).sum::<usize>();
    assert_eq!(total, inline, "the total is known up front");
    let frame = segments.read_files(|range| range.0).into_bytes();
    assert_eq!(frame.len(), total);
    let prefix = i32::from_be_bytes(frame[..4].try_into().expect("a frame has a prefix"));
    assert_eq!(prefix as usize, total - 4, "the prefix counts what follows it");
    frame.slice(4..)
}
