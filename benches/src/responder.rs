//! A responder of canned answers: what a share client can take at most, whatever the broker.
//!
//! It stands in front of a broker that names it as its own address, and passes everything on but ShareFetch and
//! ShareAcknowledge. These it answers at once, each ShareFetch with the same bytes; only the offsets go on.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use bytes::{BufMut as _, Bytes, BytesMut};
use records::batch::Batches;

/// Frames of clients that are larger are no frames.
const FRAME_BYTES_MAX: usize = 16 << 20;
const SHARE_FETCH: i16 = 78;
const SHARE_ACKNOWLEDGE: i16 = 79;
/// What the answers say of the locks.
const LOCK_MS: i32 = 30_000;

/// Bound, and not serving yet.
#[derive(Debug)]
pub struct Responder {
    listener: TcpListener,
}

/// The answer to every ShareFetch.
struct Canned {
    topic: [u8; 16],
    body: Vec<u8>,
    /// Where base offsets stand in `body`, and how far each lies behind the answer's first offset.
    bases: Vec<(usize, i64)>,
    /// Where the acquired range stands: first and last offset.
    range_at: usize,
    records: i64,
    offset_next: AtomicI64,
}

impl Responder {
    /// Binds a free port, which the broker is to be told to advertise.
    #[must_use]
    pub fn bind() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the machine has free ports");
        Self { listener }
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.listener.local_addr().expect("a bound socket has an address").to_string()
    }

    /// Serves until the process ends: partition 0 of `topic` gives these batches, again and again.
    pub fn serve(self, upstream: &str, topic: [u8; 16], batches: &Bytes) {
        let canned = Arc::new(Canned::new(topic, batches));
        let upstream = upstream.to_owned();
        thread::spawn(move || {
            for client in self.listener.incoming().flatten() {
                let (canned, upstream) = (Arc::clone(&canned), upstream.clone());
                // A connection that ends, on either side, ends its thread.
                thread::spawn(move || answer_all(client, &upstream, &canned));
            }
        });
    }
}

impl Canned {
    fn new(topic: [u8; 16], batches: &Bytes) -> Self {
        let mut body = BytesMut::new();
        body.put_slice(&[0, 0, 0, 0, 0, 0, 0]); // throttle time, error, no message
        body.put_i32(LOCK_MS);
        body.put_u8(2); // one topic
        body.put_slice(&topic);
        body.put_u8(2); // one partition, 0, no errors, no messages
        body.put_slice(&[0; 4]);
        body.put_slice(&[0, 0, 0, 0, 0, 0]);
        body.put_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0]); // leader 1 at epoch 0
        let mut rest = batches.len() + 1;
        while rest >= 0x80 {
            body.put_u8(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        body.put_u8(rest as u8);
        let (mut bases, mut records, mut at) = (Vec::new(), 0, body.len());
        for batch in Batches::new(batches) {
            let batch = batch.expect("the batches were built here");
            bases.push((at, records));
            records += i64::from(batch.record_count());
            at += batch.size();
        }
        body.put_slice(batches);
        body.put_u8(2); // one range
        let range_at = body.len();
        body.put_slice(&[0; 16]);
        body.put_slice(&[0, 1, 0]); // delivered once
        body.put_slice(&[0, 0, 1, 0]); // ends of partition and topic, no nodes, end
        let body = body.to_vec();
        Self { topic, body, bases, range_at, records, offset_next: AtomicI64::new(0) }
    }

    /// Puts the next offsets into a copy of the body.
    fn stamp(&self, body: &mut [u8]) {
        let first = self.offset_next.fetch_add(self.records, Ordering::Relaxed);
        let mut put = |at: usize, offset: i64| body[at..at + 8].copy_from_slice(&offset.to_be_bytes());
        for (at, behind) in &self.bases {
            put(*at, first + behind);
        }
        put(self.range_at, first);
        put(self.range_at + 8, first + self.records - 1);
    }
}

fn answer_all(mut client: TcpStream, upstream: &str, canned: &Canned) {
    let _ = client.set_nodelay(true);
    let Ok(mut broker) = TcpStream::connect(upstream) else { return };
    let _ = broker.set_nodelay(true);
    let mut answer = frame_of(&canned.body);
    let (mut request, mut passed) = (Vec::new(), Vec::new());
    while read_frame(&mut client, &mut request).is_ok() {
        let done = match i16::from_be_bytes([request[4], request[5]]) {
            SHARE_FETCH if is_open(&request) => {
                canned.stamp(&mut answer[9..]);
                answer[4..8].copy_from_slice(&request[8..12]);
                client.write_all(&answer)
            }
            SHARE_FETCH => {
                // The end of a session: nothing more is given.
                let mut body = vec![0; 6];
                body.extend([0, 0, 0, 0, 0, 1, 1, 0]);
                reply(&mut client, &request, &body)
            }
            SHARE_ACKNOWLEDGE => {
                // throttle time, error, no message, lock time, one topic
                let mut body = vec![0, 0, 0, 0, 0, 0, 0];
                body.extend(LOCK_MS.to_be_bytes());
                body.push(2);
                body.extend(canned.topic);
                // one partition, 0, no error, no message, leader 1 at epoch 0; ends; no nodes; end
                body.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
                reply(&mut client, &request, &body)
            }
            _ => broker
                .write_all(&request)
                .and_then(|()| read_frame(&mut broker, &mut passed))
                .and_then(|()| client.write_all(&passed)),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Length, correlation id, no tags, body.
fn frame_of(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 5).expect("answers are small");
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend([0; 5]);
    frame.extend(body);
    frame
}

fn reply(client: &mut TcpStream, request: &[u8], body: &[u8]) -> io::Result<()> {
    let mut frame = frame_of(body);
    frame[4..8].copy_from_slice(&request[8..12]);
    client.write_all(&frame)
}

/// Whether a ShareFetch goes on with its session: its epoch is not −1.
fn is_open(request: &[u8]) -> bool {
    // Length, key, version, correlation id, client id; then tags, group and member.
    let client_id = usize::try_from(i16::from_be_bytes([request[12], request[13]])).unwrap_or(0);
    let mut at = 14 + client_id + 1;
    for _ in 0..2 {
        // Names here are shorter than 127 bytes: their length is one byte.
        at += usize::from(request[at]);
    }
    request[at..at + 4] != (-1i32).to_be_bytes()
}

/// A frame with its length in front.
fn read_frame(stream: &mut TcpStream, frame: &mut Vec<u8>) -> io::Result<()> {
    frame.resize(4, 0);
    stream.read_exact(&mut frame[..4])?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    if !(10..=FRAME_BYTES_MAX).contains(&length) {
        // The shortest answers that are passed on have more than this.
        return Err(io::ErrorKind::InvalidData.into());
    }
    frame.resize(4 + length, 0);
    stream.read_exact(&mut frame[4..])
}
