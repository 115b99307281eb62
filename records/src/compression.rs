//! Bounded inflating and deflating of batch payloads.
//!
//! [`Inflate`] hands out a payload piece by piece and stops at the caller's limit: memory follows the bytes that
//! really come out, never the sizes that a header claims. Codecs and framings are those of Kafka's `CompressionType`.

mod deflate;
mod lz4;
mod snappy;

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::RecordError;

pub(crate) use deflate::{Deflate, Full};

/// How a batch's payload is compressed. The numbers are those of the batch's attribute bits 0–2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Not at all.
    #[default]
    None = 0,
    /// gzip members, one or more.
    Gzip = 1,
    /// Blocks in xerial's framing, as Kafka writes it; a single raw block is read as well.
    Snappy = 2,
    /// One lz4 frame of independent blocks, as Kafka demands it.
    Lz4 = 3,
    /// zstd frames, one or more.
    Zstd = 4,
}

impl Codec {
    /// Every codec, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of attribute bits 0–2; fails for 5 to 7, which name none.
    pub fn from_bits(bits: u8) -> Result<Self, RecordError> {
        match bits {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            other => Err(RecordError::Codec(other)),
        }
    }
}

/// Inflates a whole payload; fails once more than `limit` bytes come out.
pub fn decompress(codec: Codec, payload: &[u8], limit: usize) -> Result<Vec<u8>, RecordError> {
    let mut inflate = Inflate::open(codec, payload, limit)?;
    let mut out = Vec::new();
    loop {
        let window = inflate.fill()?;
        if window.is_empty() {
            return Ok(out);
        }
        out.extend_from_slice(window);
        let taken = window.len();
        inflate.consume(taken);
    }
}

/// Deflates a payload in the framing that Kafka's clients read.
#[must_use]
pub fn compress(codec: Codec, payload: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => payload.to_vec(),
        Codec::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(payload).expect("a Vec takes every write");
            encoder.finish().expect("a Vec takes every write")
        }
        Codec::Snappy => snappy::compress(payload),
        Codec::Lz4 => lz4::compress(payload),
        Codec::Zstd => zstd::bulk::compress(payload, zstd::DEFAULT_COMPRESSION_LEVEL)
            .expect("zstd sizes its own output buffer, so nothing is left to fail"),
    }
}

/// How many compressed payloads this process has opened: a metric, and what shows that one pass opens each once.
#[must_use]
pub fn payloads_opened() -> u64 {
    OPENED.load(Ordering::Relaxed)
}

static OPENED: AtomicU64 = AtomicU64::new(0);

/// What the buffer between a stream decoder and its reader holds.
const WINDOW_BYTES: usize = 32 * 1024;

/// The widest zstd window that is followed, as in Kafka (zstd's own limit for decoders): the highest levels claim
/// it for small payloads too. Claimed window is address space; it becomes memory only as far as bytes come out.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A payload that inflates as it is read: [`Inflate::fill`] shows the next bytes, [`Inflate::consume`] passes them.
pub struct Inflate<'a> {
    source: Source<'a>,
    /// Bytes that may still be consumed before the limit is reached.
    left: usize,
    limit: usize,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Gzip(Box<BufReader<MultiGzDecoder<&'a [u8]>>>),
    Snappy(snappy::Blocks<'a>),
    Lz4(lz4::Blocks<'a>),
    Zstd(Box<BufReader<zstd::Decoder<'static, &'a [u8]>>>),
}

impl<'a> Inflate<'a> {
    /// Opens `payload`; at most `limit` bytes will come out of it.
    pub fn open(codec: Codec, payload: &'a [u8], limit: usize) -> Result<Self, RecordError> {
        if codec != Codec::None {
            OPENED.fetch_add(1, Ordering::Relaxed);
        }
        let source = match codec {
            Codec::None => Source::Plain(payload),
            Codec::Gzip => {
                Source::Gzip(Box::new(BufReader::with_capacity(WINDOW_BYTES, MultiGzDecoder::new(payload))))
            }
            Codec::Snappy => Source::Snappy(snappy::Blocks::open(payload)),
            Codec::Lz4 => Source::Lz4(lz4::Blocks::open(payload)?),
            Codec::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(payload).map_err(|_| ZSTD_BROKEN)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|_| ZSTD_BROKEN)?;
                Source::Zstd(Box::new(BufReader::with_capacity(WINDOW_BYTES, decoder)))
            }
        };
        Ok(Self { source, left: limit, limit })
    }

    /// The next bytes, as many as are at hand; none at the end. The same bytes again until they are consumed.
    pub fn fill(&mut self) -> Result<&[u8], RecordError> {
        let too_large = RecordError::TooLarge { limit: self.limit };
        let window = match &mut self.source {
            Source::Plain(rest) => rest,
            Source::Gzip(reader) => reader.fill_buf().map_err(|_| GZIP_BROKEN)?,
            Source::Snappy(blocks) => blocks.fill(self.left, too_large)?,
            Source::Lz4(blocks) => blocks.fill(self.left, too_large)?,
            Source::Zstd(reader) => reader.fill_buf().map_err(|_| ZSTD_BROKEN)?,
        };
        if window.len() > self.left {
            return Err(too_large);
        }
        Ok(window)
    }

    /// Passes `count` bytes of those that [`Inflate::fill`] showed.
    pub fn consume(&mut self, count: usize) {
        self.left -= count;
        match &mut self.source {
            Source::Plain(rest) => *rest = &rest[count..],
            Source::Gzip(reader) => reader.consume(count),
            Source::Snappy(blocks) => blocks.consume(count),
            Source::Lz4(blocks) => blocks.consume(count),
            Source::Zstd(reader) => reader.consume(count),
        }
    }
}

const GZIP_BROKEN: RecordError = RecordError::Corrupt("the gzip payload does not decode");
const ZSTD_BROKEN: RecordError = RecordError::Corrupt("the zstd payload does not decode");

#[cfg(test)]
mod tests;
