//! Frames off a socket: length checked, memory reserved, then read.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::frame::{self, PREFIX_BYTES};
use protocol::header::PREAMBLE_BYTES;
use protocol::{Preamble, decoded_bytes_max};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admission::{Admission, Reserved};
use crate::context::CloseConnection;
use crate::dispatch;

/// Read at once while a frame's length is not known, and least growth of the buffer of a long one: memory follows the
/// bytes that came, not the length that was claimed. A connection that has sent longer frames has as much at once.
const READ_BYTES: usize = 8 << 10;
/// The most that is read at once while a frame's length is not known: no memory is reserved for it yet.
const READ_BYTES_MAX: usize = 64 << 10;

/// How long a request may wait for memory. Frames that are half read hold some and want more: if all wait for each
/// other, this ends it.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);

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
    /// The frame that is being read.
    current: Option<Current>,
    /// Bytes of the last frame, its length included: what the sender is good for.
    usual: usize,
    frame_bytes_max: usize,
    idle_max: Duration,
}

/// A frame whose length is known.
#[derive(Debug)]
struct Current {
    /// Bytes behind the length.
    length: usize,
    /// What it may take beyond itself when it is decoded.
    decoded_bytes: u64,
    reserved: Reserved,
}

impl FrameReader {
    pub(super) fn new(frame_bytes_max: u32, idle_max: Duration) -> Self {
        Self {
            buffer: BytesMut::new(),
            current: None,
            usual: 0,
            frame_bytes_max: frame_bytes_max as usize,
            idle_max,
        }
    }

    /// The next whole frame.
    pub(super) async fn next(&mut self, stream: &TcpStream, admission: &Admission) -> Result<Frame, ReadEnd> {
        loop {
            if self.current.is_none()
                && let Some(length) = self.length()?
                && let Some(decoded_bytes) = self.decoded_bytes(length)?
            {
                self.current = Some(Current { length, decoded_bytes, reserved: admission.nothing() });
            }
            let room = self.room();
            if let Some(current) = &mut self.current {
                let whole = PREFIX_BYTES + current.length;
                let memory = async {
                    admission
                        .grow_frame(&mut current.reserved, whole.min(self.buffer.len() + room) as u64)
                        .await;
                    if self.buffer.len() >= whole {
                        admission.grow_decoded(&mut current.reserved, current.decoded_bytes).await;
                    }
                };
                timeout(MEMORY_WAIT_MAX, memory).await.map_err(|_| {
                    CloseConnection::because("no memory for its request: raise queued.max.request.bytes")
                })?;
            }
            if let Some(Current { length, reserved, .. }) =
                self.current.take_if(|current| self.buffer.len() >= PREFIX_BYTES + current.length)
            {
                return Ok(Frame { bytes: self.split(length), reserved });
            }
            self.read(stream, room).await?;
        }
    }

    /// Takes the frame out of the buffer. It has its memory to itself, so that the log can stamp a batch in place, unless
    /// more came behind it than it has itself.
    fn split(&mut self, length: usize) -> Bytes {
        self.usual = PREFIX_BYTES + length;
        self.buffer.advance(PREFIX_BYTES);
        let frame = self.buffer.split_to(length);
        if self.buffer.len() <= length {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        frame.freeze()
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

    /// What may be decoded out of a frame, once enough of it came to tell.
    fn decoded_bytes(&self, length: usize) -> Result<Option<u64>, ReadEnd> {
        let head = &self.buffer[PREFIX_BYTES..];
        if head.len() < PREAMBLE_BYTES.min(length) {
            return Ok(None);
        }
        let preamble = Preamble::peek(head)
            .map_err(|error| CloseConnection::because(format!("malformed header: {error}")))?;
        let key = dispatch::route(preamble.api_key, preamble.api_version)?;
        Ok(Some(key.map_or(0, |key| decoded_bytes_max(key, length)) as u64))
    }

    /// How much may be read next: of a long frame as much as came already, or as the last one had, so that memory follows
    /// the sender.
    fn room(&self) -> usize {
        let have = self.buffer.len();
        match &self.current {
            Some(current) if PREFIX_BYTES + current.length > READ_BYTES => {
                let trusted = have.max(READ_BYTES).max(self.usual);
                (PREFIX_BYTES + current.length).saturating_sub(have).min(trusted)
            }
            _ => self.usual.clamp(READ_BYTES, READ_BYTES_MAX),
        }
    }

    async fn read(&mut self, stream: &TcpStream, room: usize) -> Result<(), ReadEnd> {
        if self.buffer.is_empty() {
            // An idle connection holds no buffer.
            self.buffer = BytesMut::new();
        }
        timeout(self.idle_max, stream.readable()).await.map_err(|_| ReadEnd::Idle)??;
        self.buffer.reserve(room);
        match stream.try_read_buf(&mut (&mut self.buffer).limit(room)) {
            Ok(0) => Err(ReadEnd::Gone),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// A Produce request that nobody decodes here: a length and so many bytes.
    fn frame(length: usize) -> Vec<u8> {
        let mut bytes = i32::try_from(length).unwrap().to_be_bytes().to_vec();
        bytes.extend([0, 0, 0, 9, 0, 0, 0, 7]);
        bytes.resize(PREFIX_BYTES + length, 0x5a);
        bytes
    }

    /// Reads frames of these lengths that come one behind the other without a pause; how many had their memory to
    /// themselves.
    async fn alone(lengths: &[usize]) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sent: Vec<u8> = lengths.iter().flat_map(|length| frame(*length)).collect();
        let sending = tokio::spawn(async move { sender.write_all(&sent).await.map(|()| sender) });
        let admission = Admission::new(1 << 30);
        let mut reader = FrameReader::new(1 << 30, Duration::from_secs(5));
        let mut alone = 0;
        for length in lengths {
            let read = reader.next(&stream, &admission).await.unwrap();
            assert_eq!(read.bytes, frame(*length)[PREFIX_BYTES..]);
            alone += usize::from(read.bytes.try_into_mut().is_ok());
        }
        drop(sending.await.unwrap());
        alone
    }

    #[tokio::test]
    async fn a_frame_has_its_memory_to_itself() {
        assert_eq!(alone(&[16_000; 50]).await, 50);
        assert_eq!(alone(&[1 << 20; 10]).await, 10);
        // A small one that comes with the beginning of a large one is the cheaper of the two to copy.
        assert!(alone(&[1 << 20, 100, 1 << 20, 100, 1 << 20]).await >= 3);
    }
}
