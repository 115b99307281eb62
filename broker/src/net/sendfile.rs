//! Answers onto a socket: bytes in memory by gathered writes, file ranges by `sendfile(2)`, without a copy through
//! user space.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};
use protocol::Segment;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dispatch::Answer;
use crate::executor::FileRange;

/// Pieces of memory in one write.
const SLICES_MAX: usize = 64;
/// Bytes of a file in one call, so that one answer does not hold a thread for long.
const SENDFILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are copied at once where a range is in no file of the operating system.
const COPY_BYTES: u64 = 64 << 10;

/// Writes an answer whole. Fails where the peer takes nothing for `idle_max`.
pub(super) async fn write(stream: &TcpStream, answer: Answer, idle_max: Duration) -> io::Result<()> {
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    for segment in answer {
        match segment {
            Segment::Inline(bytes) => pieces.push_back(bytes),
            Segment::File(range) => {
                gather(stream, &mut pieces, idle_max).await?;
                send(stream, &range, idle_max).await?;
            }
        }
    }
    gather(stream, &mut pieces, idle_max).await
}

async fn gather(stream: &TcpStream, pieces: &mut VecDeque<Bytes>, idle_max: Duration) -> io::Result<()> {
    while !pieces.is_empty() {
        let written = {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = pieces.len().min(SLICES_MAX);
            for (slice, piece) in slices.iter_mut().zip(pieces.iter()) {
                *slice = IoSlice::new(piece);
            }
            stream.try_write_vectored(&slices[..count])
        };
        match written {
            Ok(count) => advance(pieces, count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(stream, idle_max).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn advance(pieces: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(piece) = pieces.front_mut() {
        if piece.len() > count {
            piece.advance(count);
            return;
        }
        count -= piece.len();
        pieces.pop_front();
    }
}

async fn send(stream: &TcpStream, range: &FileRange, idle_max: Duration) -> io::Result<()> {
    let mut position = range.position();
    let end = position + range.len();
    let Some(file) = range.os_file() else {
        while position < end {
            let bytes = range.read_at(position, (end - position).min(COPY_BYTES))?;
            position += bytes.len() as u64;
            gather(stream, &mut VecDeque::from([bytes]), idle_max).await?;
        }
        return Ok(());
    };
    while position < end {
        let count = (end - position).min(SENDFILE_BYTES_MAX);
        let sent = stream.try_io(Interest::WRITABLE, || {
            let count = usize::try_from(count).expect("bounded by SENDFILE_BYTES_MAX");
            Ok(rustix::fs::sendfile(stream, file, Some(&mut position), count)?)
        });
        match sent {
            // The file ends before the range does: nothing that could still be sent would be right.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(stream, idle_max).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn writable(stream: &TcpStream, idle_max: Duration) -> io::Result<()> {
    timeout(idle_max, stream.writable()).await.map_err(|_| io::ErrorKind::TimedOut)?
}
