//! Frames off a socket: length checked, memory reserved, then read.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::frame::{self, PREFIX_BYTES};
use protocol::header::PREAMBLE_BYTES;
use protocol::{ApiKey, Preamble, decoded_bytes_max};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admission::{Admission, Reserved};
use crate::context::CloseConnection;

/// Read at once while a frame's length is not known, and least growth of the buffer of a long one: memory follows the
/// bytes that came, not the length that was claimed.
const READ_BYTES: usize = 8 << 10;

/// One request as it came, and the memory that it and its decoded form may take.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) reserved: Reserved,
}

/// Why there is no further frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadEnd {
    /// The peer is gone.
    #[error("the client closed the connection")]
    Gone,
    /// Nothing came for too long.
    #[error("no bytes for connections.max.idle.ms")]
    Idle,
    /// What came is not of this protocol.
    #[error(transparent)]
    Refused(#[from] CloseConnection),
}

impl From<io::Error> for ReadEnd {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Reads one connection's frames. [`FrameReader::next`] may be dropped at any await: nothing is lost.
#[derive(Debug)]
pub(super) struct FrameReader {
    buffer: BytesMut,
    /// Length and reserved memory of the frame that is being read.
    current: Option<(usize, Reserved)>,
    frame_bytes_max: usize,
    idle_max: Duration,
}

impl FrameReader {
    pub(super) fn new(frame_bytes_max: u32, idle_max: Duration) -> Self {
        Self { buffer: BytesMut::new(), current: None, frame_bytes_max: frame_bytes_max as usize, idle_max }
    }

    /// The next whole frame.
    pub(super) async fn next(&mut self, stream: &TcpStream, admission: &Admission) -> Result<Frame, ReadEnd> {
        loop {
            if self.current.is_none()
                && let Some(length) = self.length()?
                && let Some(bytes) = self.memory(length)?
            {
                self.current = Some((length, admission.reserve(bytes).await));
            }
            match &self.current {
                Some((length, _)) if self.buffer.len() >= PREFIX_BYTES + length => {
                    let (length, reserved) = self.current.take().expect("matched just now");
                    self.buffer.advance(PREFIX_BYTES);
                    let bytes = self.buffer.split_to(length).freeze();
                    if self.buffer.is_empty() {
                        // Gives up its share of the memory: who holds the frame may write to it.
                        self.buffer = BytesMut::new();
                    }
                    return Ok(Frame { bytes, reserved });
                }
                _ => self.read(stream).await?,
            }
        }
    }

    fn length(&self) -> Result<Option<usize>, ReadEnd> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        frame::parse_prefix(*prefix, self.frame_bytes_max).map(Some).map_err(|error| {
            let foreign = frame::foreign_protocol(*prefix)
                .map(|name| format!(" (it looks like {name}, which is not spoken here: use PLAINTEXT)"))
                .unwrap_or_default();
            CloseConnection::because(format!("{error}{foreign}")).into()
        })
    }

    /// What to reserve for a frame, once enough of it came to tell.
    fn memory(&self, length: usize) -> Result<Option<u64>, ReadEnd> {
        let head = &self.buffer[PREFIX_BYTES..];
        if head.len() < PREAMBLE_BYTES.min(length) {
            return Ok(None);
        }
        let preamble = Preamble::peek(head)
            .map_err(|error| CloseConnection::because(format!("malformed header: {error}")))?;
        // What is not served is refused by dispatch once it was read, without being decoded.
        let decoded = ApiKey::from_code(preamble.api_key).map_or(0, |key| decoded_bytes_max(key, length));
        Ok(Some((length + decoded) as u64))
    }

    async fn read(&mut self, stream: &TcpStream) -> Result<(), ReadEnd> {
        let have = self.buffer.len();
        if have == 0 {
            // An idle connection holds no buffer.
            self.buffer = BytesMut::new();
        }
        timeout(self.idle_max, stream.readable()).await.map_err(|_| ReadEnd::Idle)??;
        let room = match &self.current {
            Some((length, _)) if PREFIX_BYTES + length > READ_BYTES => {
                (PREFIX_BYTES + length - have).min(have.max(READ_BYTES))
            }
            _ => READ_BYTES,
        };
        self.buffer.reserve(room);
        match stream.try_read_buf(&mut (&mut self.buffer).limit(room)) {
            Ok(0) => Err(ReadEnd::Gone),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
