//! Packing piece by piece, into a bounded buffer: neither what goes in nor what comes out is held beyond what the caller
//! allows.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;

use super::{Codec, lz4, snappy};

/// The level at which zstd takes a window of 2 MiB by itself. Higher levels would take up to 128 MiB, and several times
/// that in tables, for batches that are seldom larger than a MiB.
const ZSTD_PLAIN_LEVEL: i32 = 3;
const ZSTD_WINDOW_LOG: u32 = 21;

/// More bytes than allowed would come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A payload that is packed as it is written.
pub(crate) struct Deflate(Sink);

enum Sink {
    Plain(Bounded),
    Gzip(GzEncoder<Bounded>),
    Snappy(Box<snappy::BlockWriter<Bounded>>),
    Lz4(Box<FrameEncoder<Bounded>>),
    Zstd(Box<zstd::Encoder<'static, Bounded>>),
}

impl Deflate {
    /// Packs behind what `out` holds; `out` will not grow beyond `limit` bytes. `level` is the codec's own, its default
    /// where there is none; snappy and lz4 have one level only.
    pub(crate) fn new(codec: Codec, level: Option<i32>, out: Vec<u8>, limit: usize) -> Self {
        let out = Bounded { out, limit };
        Self(match codec {
            Codec::None => Sink::Plain(out),
            Codec::Gzip => {
                let level = level.and_then(|level| u32::try_from(level).ok());
                let level = level.map_or(flate2::Compression::default(), flate2::Compression::new);
                Sink::Gzip(GzEncoder::new(out, level))
            }
            Codec::Snappy => Sink::Snappy(Box::new(snappy::BlockWriter::new(out))),
            Codec::Lz4 => Sink::Lz4(Box::new(lz4::encoder(out))),
            Codec::Zstd => Sink::Zstd(Box::new(zstd_encoder(out, level))),
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let written = match &mut self.0 {
            Sink::Plain(out) => out.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::Snappy(writer) => writer.write(bytes),
            Sink::Lz4(encoder) => encoder.write_all(bytes),
            Sink::Zstd(encoder) => encoder.write_all(bytes),
        };
        written.map_err(|_| Full)
    }

    /// What `out` holds now.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Full> {
        let finished = match self.0 {
            Sink::Plain(out) => Ok(out),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Snappy(writer) => writer.finish(),
            Sink::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            Sink::Zstd(encoder) => encoder.finish(),
        };
        finished.map(|bounded| bounded.out).map_err(|_| Full)
    }
}

fn zstd_encoder(out: Bounded, level: Option<i32>) -> zstd::Encoder<'static, Bounded> {
    let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
    let mut encoder =
        zstd::Encoder::new(out, level).expect("zstd takes every level, the nearest that it has");
    if level > ZSTD_PLAIN_LEVEL {
        encoder.window_log(ZSTD_WINDOW_LOG).expect("the window is one that zstd has");
    }
    encoder
}

/// A buffer that refuses to grow beyond its limit.
pub(super) struct Bounded {
    out: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit.saturating_sub(self.out.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
