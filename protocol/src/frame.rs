//! Frames: a 4-byte length, then that many bytes. Nothing is allocated before the length was checked.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length prefix.
pub const PREFIX_BYTES: usize = 4;

/// Why a length prefix is refused. The connection is closed: there is no way back into step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A negative length.
    #[error("negative frame length {length}: close the connection")]
    Negative {
        /// The length that the peer sent.
        length: i32,
    },
    /// A length of 0: not even a header.
    #[error("empty frame: close the connection")]
    Empty,
    /// A length above the limit.
    #[error(
        "frame of {length} bytes is above the limit of {max}: raise socket.request.max.bytes or send less"
    )]
    TooLarge {
        /// The length that the peer sent, in bytes.
        length: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// The length that a prefix gives, if it is from 1 to `bytes_max`.
///
/// # Errors
/// [`FrameError`] for every other length.
pub const fn parse_prefix(prefix: [u8; PREFIX_BYTES], bytes_max: usize) -> Result<usize, FrameError> {
    let length = i32::from_be_bytes(prefix);
    if length < 0 {
        return Err(FrameError::Negative { length });
    }
    let length = length as usize;
    if length == 0 {
        Err(FrameError::Empty)
    } else if length > bytes_max {
        Err(FrameError::TooLarge { length, max: bytes_max })
    } else {
        Ok(length)
    }
}

/// What protocol a refused prefix looks like, for a log line that helps: "this is TLS on a plaintext port".
#[must_use]
pub const fn foreign_protocol(prefix: [u8; PREFIX_BYTES]) -> Option<&'static str> {
    match &prefix {
        [0x16, 0x03, ..] => Some("TLS"),
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" | b"PRI " => Some("HTTP"),
        b"SSH-" => Some("SSH"),
        _ => None,
    }
}

/// Cuts a stream of bytes into frames, without I/O: for the client and for tests. The broker reads the prefix
/// and then the body into memory that it reserved.
#[derive(Debug)]
pub struct Deframer {
    buffer: BytesMut,
    bytes_max: usize,
}

impl Deframer {
    /// `bytes_max`: longest frame that is accepted, without its prefix.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), bytes_max }
    }

    /// Takes what came from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame without its prefix, or `None` until more bytes come.
    ///
    /// # Errors
    /// [`FrameError`] as soon as a prefix is wrong; every later call gives the same.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = parse_prefix(*prefix, self.bytes_max)?;
        if self.buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}
