//! A connection's answers, in the order of its requests.

use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;

use super::progress::Progress;
use super::sendfile;
use crate::admission::Reserved;
use crate::context::{AnswerWatch, CloseConnection};
use crate::dispatch::{self, Answer, Response};
use crate::metrics;

/// The place of one answer.
pub(super) struct Slot {
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) content: Content,
    /// Tells the shard what became of the answer.
    pub(super) watch: Option<AnswerWatch>,
    /// The request's memory, where it is still in use.
    pub(super) reserved: Option<Reserved>,
}

/// What stands in a slot.
pub(super) enum Content {
    /// An encoded answer.
    Ready(Answer),
    /// An answer that will come; `None`: none at all.
    Coming(Pin<Box<dyn Future<Output = Result<Option<Response>, CloseConnection>> + Send>>),
}

impl Content {
    /// Bytes of memory that wait here to be written.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Ready(answer) => answer
                .as_slice()
                .iter()
                .map(|segment| match segment {
                    protocol::Segment::Inline(bytes) => bytes.len() as u64,
                    protocol::Segment::File(_) => 0,
                })
                .sum(),
            Self::Coming(_) => 0,
        }
    }
}

/// Writes answers until there are no more. An error means that the connection has to be closed.
pub(super) async fn run(
    stream: &TcpStream,
    progress: &Progress,
    mut slots: Receiver<Slot>,
    idle_max: Duration,
) -> Result<(), CloseConnection> {
    while let Some(slot) = slots.recv().await {
        let bytes = slot.content.bytes();
        let answer = match slot.content {
            Content::Ready(answer) => Some(answer),
            Content::Coming(coming) => match AssertUnwindSafe(coming).catch_unwind().await {
                Ok(outcome) => outcome?
                    .map(|response| dispatch::encode(response, slot.version, slot.correlation_id))
                    .transpose()?,
                Err(_) => {
                    metrics::panicked();
                    return Err(CloseConnection::because("a handler panicked"));
                }
            },
        };
        drop(slot.reserved);
        if let Some(answer) = answer {
            metrics::answer(answer.byte_len() as u64);
            if let Err(error) = sendfile::write(stream, answer, idle_max).await {
                // Every client leaves at some time, many with a fetch out.
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
                ) {
                    tracing::debug!("the client left before its answer was written: {error}");
                    return Ok(());
                }
                return Err(CloseConnection::because(format!("cannot write to the client: {error}")));
            }
        }
        if let Some(watch) = slot.watch {
            watch.written();
        }
        progress.written(bytes);
    }
    Ok(())
}
