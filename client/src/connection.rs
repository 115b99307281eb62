//! One connection: frames out, frames in. Answers come in the order of the requests.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use protocol::frame::{Deframer, PREFIX_BYTES};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::Lost;

/// Longest answer that is accepted: 128 MiB, above any `bytes_max` that is asked for.
const FRAME_BYTES_MAX: usize = 128 << 20;

/// How much is read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an ordinary request may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to one broker.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    deframer: Deframer,
    buffer: BytesMut,
    correlation_next: i32,
    expected: VecDeque<i32>,
    client_id: String,
}

impl Connection {
    /// Connects to `address` (`host:port`).
    pub(crate) async fn open(address: &str, client_id: &str) -> io::Result<Self> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connect took too long"))??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            deframer: Deframer::new(FRAME_BYTES_MAX),
            buffer: BytesMut::with_capacity(READ_BYTES),
            correlation_next: 1,
            expected: VecDeque::new(),
            client_id: client_id.to_owned(),
        })
    }

    /// Connects to the first of several addresses (`a:1,b:2`) that answers.
    pub(crate) async fn open_any(addresses: &str, client_id: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address is given");
        for address in addresses.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            match Self::open(address, client_id).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The correlation id for the next frame; its answer is expected behind those of earlier frames.
    pub(crate) fn next_correlation(&mut self) -> i32 {
        let id = self.correlation_next;
        self.correlation_next = id.wrapping_add(1);
        self.expected.push_back(id);
        id
    }

    /// Client id that frames bear.
    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Writes a whole frame.
    pub(crate) async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.stream.write_all(frame).await
    }

    /// The next answer, its length prefix not included. Can be dropped at any await without losing bytes.
    pub(crate) async fn receive(&mut self) -> Result<Bytes, Lost> {
        loop {
            if let Some(frame) =
                self.deframer.next_frame().map_err(|error| Lost::Malformed(error.to_string()))?
            {
                self.check_order(&frame)?;
                return Ok(frame);
            }
            self.buffer.clear();
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.deframer.push(&self.buffer);
        }
    }

    /// One ordinary request and its answer.
    pub(crate) async fn call<R>(&mut self, version: i16, request: &R) -> Result<R::Response, Lost>
    where
        R: Request + Encodable + HeaderVersion,
        R::Response: Decodable + HeaderVersion,
    {
        let key = ApiKey::try_from(R::KEY).map_err(|()| Lost::Malformed(format!("api key {}", R::KEY)))?;
        let malformed = |error: anyhow::Error| Lost::Malformed(error.to_string());
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next_correlation())
            .with_client_id(Some(StrBytes::from_string(self.client_id.clone())));
        let mut frame = BytesMut::from(&[0; PREFIX_BYTES][..]);
        header.encode(&mut frame, key.request_header_version(version)).map_err(malformed)?;
        request.encode(&mut frame, version).map_err(malformed)?;
        let length =
            u32::try_from(frame.len() - PREFIX_BYTES).map_err(|_| Lost::Malformed("too long".into()))?;
        frame[..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        let exchange = async {
            self.send(&frame).await?;
            self.receive().await
        };
        let mut answer = timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))??;
        kafka_protocol::messages::ResponseHeader::decode(&mut answer, key.response_header_version(version))
            .map_err(malformed)?;
        R::Response::decode(&mut answer, version).map_err(malformed)
    }

    /// One request of the key-share API and its answer; nothing else may be under way.
    pub(crate) async fn call_key_share<Q: KeyShareRequest, A: KeyShareResponse>(
        &mut self,
        request: Q,
    ) -> Result<A, Lost> {
        let client_id = Some(protocol::StrBytes::from(self.client_id.clone()));
        let correlation = self.next_correlation();
        let frame =
            request.into_frame(correlation, client_id).map_err(|error| Lost::Malformed(error.to_string()))?;
        let exchange = async {
            self.send(&frame).await?;
            self.receive().await
        };
        let answer = timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))??;
        let (_, answer) = A::from_frame(answer).map_err(|error| Lost::Malformed(error.to_string()))?;
        Ok(answer)
    }

    fn check_order(&mut self, frame: &[u8]) -> Result<(), Lost> {
        let got = frame.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes));
        let expected = self.expected.pop_front();
        if got.is_some() && got == expected {
            Ok(())
        } else {
            Err(Lost::Malformed(format!("answer {got:?} where {expected:?} was due")))
        }
    }
}
