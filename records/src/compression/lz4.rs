//! The lz4 frame format as Kafka reads it (`Lz4BlockInputStream`): version 1, independent blocks, no dictionary.
//!
//! Blocks are inflated one at a time. A frame whose blocks refer to each other is refused, as Java consumers
//! could never read it.

use std::io::Write;

use lz4_flex::block::decompress_into;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use xxhash_rust::xxh32::xxh32;

use crate::RecordError;

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

const FLAG_DICTIONARY: u8 = 0x01;
const FLAG_RESERVED: u8 = 0x02;
const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;
const FLAG_INDEPENDENT: u8 = 0x20;
const VERSION_MASK: u8 = 0xc0;
const VERSION_1: u8 = 0x40;
/// Set in a block's size when the block is stored as it is.
const STORED: u32 = 1 << 31;
/// lz4's highest ratio: one byte more of a match length stands for 255 bytes.
const RATIO_MAX: usize = 255;
/// What the tokens of a tiny block may yield beyond that ratio.
const RATIO_SLACK: usize = 64;

const HEADER_BROKEN: RecordError = RecordError::Corrupt("the lz4 frame header does not decode");
const LINKED: RecordError = RecordError::Corrupt("the lz4 frame has linked blocks, set block independence");
const BLOCK_BROKEN: RecordError = RecordError::Corrupt("an lz4 block does not decode");

/// Packs into `out` in blocks that Kafka reads.
pub(super) fn encoder<W: Write>(out: W) -> FrameEncoder<W> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    FrameEncoder::with_frame_info(info, out)
}

pub(super) fn compress(payload: &[u8]) -> Vec<u8> {
    let mut encoder = encoder(Vec::new());
    encoder.write_all(payload).expect("a Vec takes every write");
    encoder.finish().expect("a Vec takes every write")
}

/// The blocks of a frame, inflated one at a time.
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    flags: u8,
    block_bytes_max: usize,
    block: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<'a> Blocks<'a> {
    pub(super) fn open(payload: &'a [u8]) -> Result<Self, RecordError> {
        let rest = payload.strip_prefix(&MAGIC).ok_or(HEADER_BROKEN)?;
        let &[flags, descriptor, ..] = rest else { return Err(HEADER_BROKEN) };
        if flags & VERSION_MASK != VERSION_1 || flags & (FLAG_RESERVED | FLAG_DICTIONARY) != 0 {
            return Err(HEADER_BROKEN);
        }
        if flags & FLAG_INDEPENDENT == 0 {
            return Err(LINKED);
        }
        let block_bytes_max = match descriptor {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(HEADER_BROKEN),
        };
        let described = if flags & FLAG_CONTENT_SIZE == 0 { 2 } else { 10 };
        let (described, rest) = rest.split_at_checked(described).ok_or(HEADER_BROKEN)?;
        let (checksum, rest) = rest.split_first().ok_or(HEADER_BROKEN)?;
        if (xxh32(described, 0) >> 8) as u8 != *checksum {
            return Err(HEADER_BROKEN);
        }
        Ok(Self { rest, flags, block_bytes_max, block: Vec::new(), at: 0, ended: false })
    }

    pub(super) fn fill(&mut self, left: usize, too_large: RecordError) -> Result<&[u8], RecordError> {
        while self.at == self.block.len() && !self.ended {
            self.next_block(left, too_large)?;
        }
        Ok(&self.block[self.at..])
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
    }

    fn next_block(&mut self, left: usize, too_large: RecordError) -> Result<(), RecordError> {
        self.block.clear();
        self.at = 0;
        let size = self.take_u32()?;
        if size == 0 {
            return self.end();
        }
        let block_len = (size & !STORED) as usize;
        if block_len > self.block_bytes_max {
            return Err(BLOCK_BROKEN);
        }
        let (block, rest) = self.rest.split_at_checked(block_len).ok_or(BLOCK_BROKEN)?;
        self.rest = rest;
        if self.flags & FLAG_BLOCK_CHECKSUM != 0 && self.take_u32()? != xxh32(block, 0) {
            return Err(BLOCK_BROKEN);
        }
        if size & STORED != 0 {
            if block_len > left {
                return Err(too_large);
            }
            self.block.extend_from_slice(block);
            return Ok(());
        }
        let possible = self.block_bytes_max.min(block_len * RATIO_MAX + RATIO_SLACK);
        self.block.resize(possible.min(left), 0);
        match decompress_into(block, &mut self.block) {
            Ok(written) => {
                self.block.truncate(written);
                Ok(())
            }
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if left < possible => Err(too_large),
            Err(_) => Err(BLOCK_BROKEN),
        }
    }

    /// Behind the last block: Kafka writes no content checksum, and where there is one only its place is checked,
    /// as the batch's CRC covers the whole payload.
    fn end(&mut self) -> Result<(), RecordError> {
        if self.flags & FLAG_CONTENT_CHECKSUM != 0 {
            self.take_u32()?;
        }
        if !self.rest.is_empty() {
            return Err(RecordError::Corrupt("bytes follow the lz4 frame"));
        }
        self.ended = true;
        Ok(())
    }

    fn take_u32(&mut self) -> Result<u32, RecordError> {
        let (word, rest) = self.rest.split_first_chunk::<4>().ok_or(BLOCK_BROKEN)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*word))
    }
}
