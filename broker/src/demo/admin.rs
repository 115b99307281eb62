//! Two requests that the demo sends as an admin tool would: create a topic, set a group's configuration.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use protocol::wire::create_topics_request::CreatableTopic;
use protocol::wire::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::wire::{
    CreateTopicsRequest, IncrementalAlterConfigsRequest, KafkaRequest, OutboundFrameLimits,
    RequestResponsePair, encode_request, response_header_version_for,
};
use protocol::wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode};
use protocol::{ErrorCode, StrBytes};

use super::DemoError;

/// Resource type of group configurations (KIP-848).
const GROUP: i8 = 32;

/// Set, of the operations of IncrementalAlterConfigs.
const SET: i8 = 0;

/// Longest frame either way: these messages are small.
const FRAME_BYTES_MAX: usize = 1 << 20;

const CREATE_TOPICS: i16 = 7;
const INCREMENTAL_ALTER_CONFIGS: i16 = 1;

/// A connection for admin requests.
#[derive(Debug)]
pub struct Admin {
    stream: TcpStream,
}

impl Admin {
    /// Connects.
    ///
    /// # Errors
    /// Where nobody listens.
    pub fn connect(address: &str) -> Result<Self, DemoError> {
        Ok(Self { stream: TcpStream::connect(address).map_err(DemoError::Io)? })
    }

    /// Creates a topic of one partition.
    ///
    /// # Errors
    /// What the broker says, or the connection.
    pub fn create_topic(&mut self, name: &str) -> Result<(), DemoError> {
        let mut topic = CreatableTopic::default();
        topic.name = StrBytes::from(name.to_owned());
        topic.num_partitions = 1;
        topic.replication_factor = 1;
        let mut request = CreateTopicsRequest::default();
        request.topics = vec![topic];
        request.timeout_ms = 10_000;
        let answer = self.call(&request, CREATE_TOPICS)?;
        answer.topics.iter().try_for_each(|topic| check("creating the topic", topic.error_code))
    }

    /// Sets configurations of a group.
    ///
    /// # Errors
    /// What the broker says, or the connection.
    pub fn configure_group(&mut self, group: &str, configs: &[(&str, &str)]) -> Result<(), DemoError> {
        let mut resource = AlterConfigsResource::default();
        resource.resource_type = GROUP;
        resource.resource_name = StrBytes::from(group.to_owned());
        resource.configs = configs
            .iter()
            .map(|(name, value)| {
                let mut config = AlterableConfig::default();
                config.name = StrBytes::from((*name).to_owned());
                config.config_operation = SET;
                config.value = Some(StrBytes::from((*value).to_owned()));
                config
            })
            .collect();
        let mut request = IncrementalAlterConfigsRequest::default();
        request.resources = vec![resource];
        let answer = self.call(&request, INCREMENTAL_ALTER_CONFIGS)?;
        answer.responses.iter().try_for_each(|resource| check("configuring the group", resource.error_code))
    }

    fn call<R: KafkaRequest + RequestResponsePair>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, DemoError> {
        let version = ApiVersion::new(version);
        let unexpected = |_| DemoError::Unexpected("an admin request or answer that does not encode");
        let mut frame = BytesMut::new();
        let limits = OutboundFrameLimits::new(FRAME_BYTES_MAX);
        encode_request(
            &mut frame,
            1,
            Some(StrBytes::from("sluice-demo".to_owned())),
            request,
            version,
            limits,
        )
        .map_err(unexpected)?;
        self.stream.write_all(&frame).map_err(DemoError::Io)?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).map_err(DemoError::Io)?;
        let length = protocol::frame::parse_prefix(prefix, FRAME_BYTES_MAX)
            .map_err(|_| DemoError::Unexpected("an answer of an impossible length"))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(DemoError::Io)?;
        let header = if response_header_version_for::<R>(version).map_err(unexpected)? >= 1 { 5 } else { 4 };
        let unexpected = |_| DemoError::Unexpected("an answer that does not decode");
        let body = Bytes::from(body).slice(header..);
        let mut decoder = Decoder::new(body, DecodeLimits::default()).map_err(unexpected)?;
        R::Response::decode(&mut decoder, version).map_err(unexpected)
    }
}

fn check(what: &'static str, code: i16) -> Result<(), DemoError> {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => Ok(()),
        code => Err(DemoError::Refused(what, code.unwrap_or(ErrorCode::UnknownServerError))),
    }
}
