//! A client that speaks typed requests, by a codec that is not the broker's own; and a writer and a reader for what
//! that codec does not know.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use kafka_protocol::messages::RequestHeader;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::common::{Raw, Server, framed};

/// One connection.
pub struct Client {
    raw: Raw,
    correlation: i32,
}

impl Client {
    pub async fn new(server: &Server) -> Self {
        Self { raw: server.connect().await, correlation: 0 }
    }

    /// Sends a request and waits for its answer.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request).await;
        self.receive::<R>(version).await
    }

    pub async fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut bytes = Vec::new();
        header.encode(&mut bytes, R::header_version(version)).unwrap();
        request.encode(&mut bytes, version).unwrap();
        self.raw.send(&framed(&bytes)).await;
    }

    /// The next answer, which must be that to the last request.
    pub async fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut frame = bytes::Bytes::from(self.raw.frame().await);
        let header_version = R::Response::header_version(version);
        let header = kafka_protocol::messages::ResponseHeader::decode(&mut frame, header_version).unwrap();
        assert_eq!(header.correlation_id, self.correlation);
        let answer = R::Response::decode(&mut frame, version).unwrap();
        assert!(frame.is_empty(), "{} bytes behind the answer", frame.len());
        answer
    }

    /// As [`Self::receive`], or nothing where the connection ends before a whole answer.
    pub async fn receive_or_end<R: Request>(&mut self, version: i16) -> Option<R::Response> {
        let mut frame = bytes::Bytes::from(self.raw.frame_or_end().await?);
        let header_version = R::Response::header_version(version);
        kafka_protocol::messages::ResponseHeader::decode(&mut frame, header_version).unwrap();
        Some(R::Response::decode(&mut frame, version).unwrap())
    }

    /// The broker ends this connection without another answer.
    pub async fn closes(mut self) {
        self.raw.closes().await;
    }

    /// Sends a flexible request whose body is written by hand, and gives a reader behind the answer's header.
    pub async fn call_raw(&mut self, key: i16, version: i16, body: &Body) -> Answer {
        self.send_raw(key, version, body).await;
        self.receive_raw().await
    }

    pub async fn send_raw(&mut self, key: i16, version: i16, body: &Body) {
        self.correlation += 1;
        self.raw.send(&super::common::flexible(key, version, self.correlation, &body.0)).await;
    }

    /// The next answer, which must be that to the last request.
    pub async fn receive_raw(&mut self) -> Answer {
        let mut answer = Answer { bytes: self.raw.frame().await, at: 0 };
        assert_eq!(answer.i32(), self.correlation);
        answer.tags();
        answer
    }

    /// The broker ends this connection before a whole answer has come.
    pub async fn ends(&mut self) -> bool {
        self.raw.frame_or_end().await.is_none()
    }
}

/// A string of the other codec.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A flexible body that is written by hand.
#[derive(Default)]
pub struct Body(Vec<u8>);

impl Body {
    pub fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn uuid(mut self, value: [u8; 16]) -> Self {
        self.0.extend(value);
        self
    }

    /// A compact length, null where there is none.
    pub fn length(mut self, length: Option<usize>) -> Self {
        let mut rest = length.map_or(0, |length| length + 1);
        while rest >= 0x80 {
            self.0.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        self.0.push(u8::try_from(rest).unwrap());
        self
    }

    pub fn string(self, value: Option<&str>) -> Self {
        let mut written = self.length(value.map(str::len));
        written.0.extend(value.unwrap_or_default().as_bytes());
        written
    }

    pub fn array<T>(self, items: &[T], mut write: impl FnMut(Self, &T) -> Self) -> Self {
        let mut written = self.length(Some(items.len()));
        for item in items {
            written = write(written, item);
        }
        written
    }

    pub fn tags(self) -> Self {
        self.i8(0)
    }
}

/// A flexible answer that is read by hand.
pub struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes[self.at..self.at + N].try_into().unwrap();
        self.at += N;
        taken
    }

    pub fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take())
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }

    pub fn uuid(&mut self) -> [u8; 16] {
        self.take()
    }

    fn varint(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            let [byte] = self.take();
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    pub fn blob(&mut self) -> Option<Vec<u8>> {
        let length = self.varint().checked_sub(1)?;
        let blob = self.bytes[self.at..self.at + length].to_vec();
        self.at += length;
        Some(blob)
    }

    pub fn string(&mut self) -> Option<String> {
        self.blob().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    pub fn array<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.varint().saturating_sub(1);
        (0..count).map(|_| read(self)).collect()
    }

    pub fn tags(&mut self) {
        for _ in 0..self.varint() {
            self.varint();
            let length = self.varint();
            self.at += length;
        }
    }

    pub fn ends(&self) {
        assert_eq!(self.at, self.bytes.len(), "bytes behind the answer");
    }
}
