//! One connection: its reader, which serves requests in order, and its writer, in one task.
//!
//! Owner of all that hangs on the connection. Invariants: answers leave in request order; at most one request is read
//! ahead of the one that is served; when the task ends, the shard has heard what became of every watched answer, and
//! that the connection is gone, in this order.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use coordinator::command::{ConnectionId, Fact};
use futures::FutureExt;
use protocol::{ApiKey, StrBytes};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::watch;
use tokio::time::timeout;

use super::frames::{Frame, FrameReader, ReadEnd};
use super::progress::Progress;
use super::registry::Registered;
use super::writer::{self, Content, Slot};
use crate::admission::Reserved;
use crate::broker::Broker;
use crate::context::{CloseConnection, Parking, RequestContext};
use crate::dispatch::{self, Decoded, Incoming, Served};
use crate::metrics::{self, Closed};

/// Answers that may wait for earlier ones of their connection.
const ANSWERS_QUEUED_MAX: usize = 64;
/// A connection whose client leaves so many bytes of answers unread has no further request served.
const ANSWER_BYTES_QUEUED_MAX: u64 = 1 << 20;
/// How long a closing connection may take to write the answers that it owes.
const DRAIN_MAX: Duration = Duration::from_secs(3);
/// A request that waits for events keeps so many times its size reserved (its slack for tiny elements is given back).
const PARKED_MEMORY_FACTOR: u64 = 8;

/// Why a connection ended.
enum End {
    /// The client left, or was idle: nothing to tell.
    Quiet,
    /// The broker stops.
    Stopping,
    /// Something that the log should name.
    Fault(CloseConnection),
}

/// Serves a connection until it ends.
pub(super) async fn serve(
    broker: Arc<Broker>,
    stream: TcpStream,
    peer: SocketAddr,
    registered: Registered,
    stopping: watch::Receiver<bool>,
) {
    let id = registered.id;
    let _gone = Gone { broker: &broker, id };
    metrics::connection_opened();
    let progress = Progress::default();
    let (slots, queue) = mpsc::channel(ANSWERS_QUEUED_MAX);
    let idle_max = broker.config.idle_max;
    let reader = Reader {
        broker: &broker,
        stream: &stream,
        progress: &progress,
        frames: FrameReader::new(broker.config.request_bytes_max, idle_max),
        slots,
        stopping,
        cx: RequestContext {
            broker: Arc::clone(&broker),
            connection: id,
            client_id: Arc::from(""),
            client_host: Arc::from(format!("/{}", peer.ip())),
            api_version: 0,
            members_seen: Arc::default(),
            parking: Arc::default(),
        },
    };
    let faults = registered.faults();
    let end = {
        let reader = reader.run();
        let writer = writer::run(&stream, &progress, queue, idle_max);
        tokio::pin!(writer);
        tokio::select! {
            biased;
            () = registered.closed() => End::Fault(CloseConnection::because("its answer was not taken in time")),
            written = &mut writer => match written {
                Ok(()) => End::Quiet,
                Err(fault) => End::Fault(fault),
            },
            end = reader => {
                // The reader is gone, and with it its end of the queue: what is in it still goes out.
                match timeout(DRAIN_MAX, writer).await {
                    Ok(Err(fault)) => End::Fault(fault),
                    Ok(Ok(())) | Err(_) => end,
                }
            }
        }
    };
    metrics::connection_closed(match end {
        End::Quiet => Closed::Quiet,
        End::Stopping => Closed::Stopping,
        End::Fault(fault) => {
            faults.tell(broker.clock.mono(), peer, &fault);
            Closed::Fault
        }
    });
}

/// Tells the shard that the connection is gone, behind all else that its task has to tell.
struct Gone<'a> {
    broker: &'a Broker,
    id: ConnectionId,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.broker.shard.fact(Fact::ConnectionClosed(self.id));
    }
}

/// A request that was read and decoded, with the memory it may take.
struct Next {
    decoded: Decoded,
    reserved: Reserved,
    frame_bytes: u64,
}

struct Reader<'a> {
    broker: &'a Broker,
    stream: &'a TcpStream,
    progress: &'a Progress,
    frames: FrameReader,
    slots: Sender<Slot>,
    stopping: watch::Receiver<bool>,
    cx: RequestContext,
}

impl Reader<'_> {
    async fn run(mut self) -> End {
        let mut ahead = None;
        loop {
            let next = match ahead.take() {
                Some(next) => next,
                None => self.next().await,
            };
            let served = match next {
                Ok(Next { decoded: Decoded::Request(incoming), reserved, frame_bytes }) => {
                    self.serve(*incoming, reserved, frame_bytes, &mut ahead).await
                }
                Ok(Next { decoded: Decoded::Answered(answer), .. }) => {
                    let content = Content::Ready(answer);
                    self.queue(Slot { version: 0, correlation_id: 0, content, watch: None, reserved: None })
                        .await;
                    Ok(())
                }
                Err(end) => Err(end),
            };
            if let Err(end) = served {
                return end;
            }
        }
    }

    /// The next request, when none is being served: here idle connections end, and all when the broker stops.
    async fn next(&mut self) -> Result<Next, End> {
        loop {
            let read = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(End::Stopping),
                read = self.frames.next(self.stream, &self.broker.admission) => read,
            };
            match read {
                Ok(frame) => return decode(frame).map_err(End::Fault),
                // A connection that waits for an answer is not idle; a client that does not read is found by the writer.
                Err(ReadEnd::Idle) if self.progress.owes() => {}
                Err(ReadEnd::Idle | ReadEnd::Gone) => return Err(End::Quiet),
                Err(ReadEnd::Refused(fault)) => return Err(End::Fault(fault)),
            }
        }
    }

    async fn serve(
        &mut self,
        incoming: Incoming,
        mut reserved: Reserved,
        frame_bytes: u64,
        ahead: &mut Option<Result<Next, End>>,
    ) -> Result<(), End> {
        let Incoming { key, version, correlation_id, client_id, request } = incoming;
        self.progress.bytes_at_most(ANSWER_BYTES_QUEUED_MAX).await;
        if dispatch::waits_for_earlier_answers(key) {
            self.progress.all_written().await;
        }
        if dispatch::waits_for_events(key) {
            reserved.shrink_to(PARKED_MEMORY_FACTOR * frame_bytes);
        }
        metrics::request(key, frame_bytes);
        let begun = self.broker.clock.mono();
        self.name_client(client_id);
        let parking = Arc::new(Parking::default());
        let cx = RequestContext { api_version: version, parking: Arc::clone(&parking), ..self.cx.clone() };
        let served = {
            let handler = AssertUnwindSafe(dispatch::serve(&cx, request)).catch_unwind();
            self.alongside(key, handler, &parking, ahead).await?
        };
        let served = match served {
            Ok(served) => served.map_err(End::Fault)?,
            Err(_) => {
                metrics::panicked();
                return Err(End::Fault(CloseConnection::because(format!("the handler of {key} panicked"))));
            }
        };
        metrics::handled(key, Duration::from_micros((self.broker.clock.mono() - begun).0));
        let (content, reserved) = match served {
            Served::Now(response) => {
                let answer = dispatch::encode(response, version, correlation_id).map_err(End::Fault)?;
                (Content::Ready(answer), None)
            }
            Served::Later(coming) => (Content::Coming(coming), Some(reserved)),
        };
        let watch = parking.take_watch();
        self.queue(Slot { version, correlation_id, content, watch, reserved }).await;
        Ok(())
    }

    /// Runs a handler, and reads one request ahead meanwhile: an acknowledgement makes a parked fetch give way, and a
    /// client that goes ends what waits for events.
    async fn alongside<T>(
        &mut self,
        key: ApiKey,
        handler: impl Future<Output = T>,
        parking: &Parking,
        ahead: &mut Option<Result<Next, End>>,
    ) -> Result<T, End> {
        tokio::pin!(handler);
        loop {
            let read = tokio::select! {
                biased;
                outcome = &mut handler => return Ok(outcome),
                read = self.frames.next(self.stream, &self.broker.admission), if ahead.is_none() => read,
            };
            *ahead = Some(match read {
                Ok(frame) => decode(frame).map_err(End::Fault),
                Err(ReadEnd::Idle) => continue,
                Err(ReadEnd::Gone) if dispatch::waits_for_events(key) => return Err(End::Quiet),
                // Any other request is finished and answered before the connection ends.
                Err(ReadEnd::Gone) => Err(End::Quiet),
                Err(ReadEnd::Refused(fault)) => Err(End::Fault(fault)),
            });
            if let Some(Ok(Next { decoded: Decoded::Request(incoming), .. })) = ahead
                && dispatch::acknowledges(&incoming.request)
            {
                parking.give_way(&self.broker.shard);
            }
        }
    }

    async fn queue(&mut self, slot: Slot) {
        self.progress.queue(slot.content.bytes());
        // The writer lives as long as this task; where it has failed, the task ends at once.
        let _ = self.slots.send(slot).await;
    }

    /// Takes the name by value: it is a slice of the frame, which has to be let go of.
    #[expect(clippy::needless_pass_by_value, reason = "see above")]
    fn name_client(&mut self, client_id: Option<StrBytes>) {
        let name = client_id.as_ref().map_or("", StrBytes::as_str);
        if *self.cx.client_id != *name {
            self.cx.client_id = Arc::from(name);
        }
    }
}

/// Decodes a frame; a panic in there ends the connection like any malformed request.
fn decode(frame: Frame) -> Result<Next, CloseConnection> {
    let Frame { bytes, reserved } = frame;
    let decoded = std::panic::catch_unwind(|| dispatch::decode(&bytes))
        .unwrap_or_else(|_| Err(CloseConnection::because("decoding a request panicked")))?;
    Ok(Next { decoded, reserved, frame_bytes: bytes.len() as u64 })
}
