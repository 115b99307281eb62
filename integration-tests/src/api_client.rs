//! Requests of any API at any version over one connection, in the codec of a second implementation, so that a mistake
//! of the broker's own codec cannot hide itself.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};

/// Longer than any answer here may take, on a machine that is busy with other things.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Resource type of group settings (`ConfigResource.Type.GROUP`).
const GROUP_RESOURCE: i8 = 32;

/// One connection.
#[derive(Debug)]
pub struct ApiClient {
    stream: BufReader<TcpStream>,
    correlation: i32,
}

impl ApiClient {
    /// Connects to `HOST:PORT`.
    #[track_caller]
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address).expect("the broker accepts connections")
    }

    /// Connects to a broker that may be gone.
    ///
    /// # Errors
    /// Where nobody listens.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), correlation: 0 })
    }

    /// This end of the connection.
    #[track_caller]
    pub fn local_address(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().expect("a connected socket has an address")
    }

    /// Sends a request and decodes the answer, all of it.
    #[track_caller]
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.call_as(version, version, request)
    }

    /// The same for a version whose layout is that of `layout`: the codec knows only the older one.
    #[track_caller]
    pub fn call_as<R: Request>(&mut self, version: i16, layout: i16, request: &R) -> R::Response {
        self.try_call_as(version, layout, request).expect("the broker answers")
    }

    /// Sets settings of a group, which need not exist; the error code.
    #[track_caller]
    pub fn configure_group(&mut self, group: &str, configs: &[(&str, &str)]) -> i16 {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let config = |&(name, value): &(&str, &str)| {
            AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)))
        };
        let resource = AlterConfigsResource::default()
            .with_resource_type(GROUP_RESOURCE)
            .with_resource_name(text(group))
            .with_configs(configs.iter().map(config).collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        self.call(1, &request).responses[0].error_code
    }

    /// As [`Self::call`], to a broker that may go meanwhile.
    ///
    /// # Errors
    /// Where the connection ends before the answer is there.
    pub fn try_call<R: Request>(&mut self, version: i16, request: &R) -> io::Result<R::Response> {
        self.try_call_as(version, version, request)
    }

    #[track_caller]
    fn try_call_as<R: Request>(&mut self, version: i16, layout: i16, request: &R) -> io::Result<R::Response> {
        let mut body = BytesMut::new();
        request.encode(&mut body, layout).expect("the request can be said in this version");
        let mut answer = self.try_exchange(R::KEY, version, R::header_version(layout), &body)?;
        let header_version = R::Response::header_version(layout);
        let header = ResponseHeader::decode(&mut answer, header_version).expect("a response header");
        assert_eq!(header.correlation_id, self.correlation, "answers come in the order of requests");
        let response = R::Response::decode(&mut answer, layout).expect("an answer of this version's layout");
        assert!(answer.is_empty(), "{} bytes are left over behind the answer", answer.len());
        Ok(response)
    }

    /// Sends a body as it is; the answer with its header.
    #[track_caller]
    pub fn exchange(&mut self, key: i16, version: i16, header_version: i16, body: &[u8]) -> Bytes {
        self.try_exchange(key, version, header_version, body).expect("the broker answers")
    }

    fn try_exchange(
        &mut self,
        key: i16,
        version: i16,
        header_version: i16,
        body: &[u8],
    ) -> io::Result<Bytes> {
        self.send(key, version, header_version, body)?;
        self.receive()
    }

    /// Sends a body as it is and does not wait for its answer.
    pub(crate) fn send(
        &mut self,
        key: i16,
        version: i16,
        header_version: i16,
        body: &[u8],
    ) -> io::Result<()> {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("api-client")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, header_version).expect("a header can be written");
        frame.extend_from_slice(body);
        let length = i32::try_from(frame.len() - 4).expect("requests are small");
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.get_mut().write_all(&frame)
    }

    /// The next answer, with its header.
    pub(crate) fn receive(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.stream.read_exact(&mut answer)?;
        Ok(Bytes::from(answer))
    }
}
