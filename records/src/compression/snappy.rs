//! Snappy in xerial's framing (`SnappyOutputStream`, which Kafka uses): a 16-byte header, then blocks, each a
//! 4-byte big-endian size and a raw snappy block. Without the header the payload is one raw block.

use std::io::{self, Write};

use snap::raw::{Decoder, Encoder, decompress_len};

use crate::RecordError;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER_LEN: usize = 16;
/// Version and lowest compatible version of the framing, both 1.
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Kafka's block size (`SnappyCompression`).
const BLOCK_BYTES: usize = 32 * 1024;
/// A copy element of 3 bytes yields at most 64: a block that claims more than this factor lies.
const RATIO_MAX: usize = 64;

const BROKEN: RecordError = RecordError::Corrupt("the snappy payload does not decode");

pub(super) fn compress(payload: &[u8]) -> Vec<u8> {
    let mut writer = BlockWriter::new(Vec::with_capacity(HEADER_LEN + payload.len() / 2));
    writer.write(payload).expect("a Vec takes every write");
    writer.finish().expect("a Vec takes every write")
}

/// Packs block by block.
pub(super) struct BlockWriter<W> {
    out: W,
    begun: bool,
    block: Vec<u8>,
    encoder: Encoder,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, begun: false, block: Vec::new(), encoder: Encoder::new() }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(piece);
            bytes = rest;
            if self.block.len() == BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() || !self.begun {
            self.end_block()?;
        }
        Ok(self.out)
    }

    fn end_block(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.out.write_all(&MAGIC)?;
            self.out.write_all(&VERSIONS)?;
        }
        if self.block.is_empty() {
            return Ok(());
        }
        let block =
            self.encoder.compress_vec(&self.block).expect("a block of 32 KiB is below snappy's 4 GiB");
        self.block.clear();
        self.out.write_all(&(block.len() as u32).to_be_bytes())?;
        self.out.write_all(&block)
    }
}

/// The blocks of a payload, inflated one at a time.
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    at: usize,
}

impl<'a> Blocks<'a> {
    pub(super) fn open(payload: &'a [u8]) -> Self {
        let framed = payload.starts_with(&MAGIC) && payload.len() >= HEADER_LEN;
        let rest = if framed { &payload[HEADER_LEN..] } else { payload };
        Self { rest, framed, block: Vec::new(), at: 0 }
    }

    pub(super) fn fill(&mut self, left: usize, too_large: RecordError) -> Result<&[u8], RecordError> {
        while self.at == self.block.len() && !self.rest.is_empty() {
            let block = self.next_block()?;
            let size = decompress_len(block).map_err(|_| BROKEN)?;
            if size > block.len().saturating_mul(RATIO_MAX) {
                return Err(BROKEN);
            }
            if size > left {
                return Err(too_large);
            }
            self.block.resize(size, 0);
            self.at = 0;
            let written = Decoder::new().decompress(block, &mut self.block).map_err(|_| BROKEN)?;
            self.block.truncate(written);
        }
        Ok(&self.block[self.at..])
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
    }

    fn next_block(&mut self) -> Result<&'a [u8], RecordError> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        // Streams that were put one behind the other carry their headers along.
        if self.rest.starts_with(&MAGIC) && self.rest.len() > HEADER_LEN {
            self.rest = &self.rest[HEADER_LEN..];
        }
        let (size, rest) = self.rest.split_first_chunk::<4>().ok_or(BROKEN)?;
        let size = u32::from_be_bytes(*size) as usize;
        let (block, rest) = rest.split_at_checked(size).ok_or(BROKEN)?;
        self.rest = rest;
        Ok(block)
    }
}
