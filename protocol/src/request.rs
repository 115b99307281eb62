//! From a body to a typed request.

use bytes::Bytes;
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, StrBytes};

use crate::api::ApiKey;
use crate::decode::{DecodeError, Read, Reader};
use crate::encode::{EncodeError, Write, Writer};
use crate::header::RequestHeader;
use crate::limits::decoded_bytes_max;
use crate::messages::{
    fetch, key_share_acknowledge, key_share_alter, key_share_commit, key_share_describe, key_share_fetch,
    produce, share_acknowledge, share_fetch,
};
use crate::shape;
use crate::wire;

macro_rules! requests {
    (own { $($own:ident($Own:ty),)* } generated { $($generated:ident($Generated:ty) = $SHAPE:ident,)* }) => {
        /// One decoded request; a variant for each API of the table.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Request {
            $($own($Own),)*
            $($generated($Generated),)*
        }

        impl Request {
            /// Decodes a body in a version of its API. Bytes behind the body are ignored, as Kafka ignores
            /// them. What it allocates stays within [`decoded_bytes_max`] of (`key`, `body.len()`).
            ///
            /// # Errors
            /// [`DecodeError::UnsupportedVersion`] for a version that the table does not serve, any other for
            /// malformed or hostile bytes. Kafka closes the connection on all of them.
            pub fn decode(key: ApiKey, version: i16, body: Bytes) -> Result<Self, DecodeError> {
                if !key.api().serves(version) {
                    return Err(DecodeError::UnsupportedVersion { name: key.name(), version });
                }
                match key {
                    $(ApiKey::$own => own_body(key, version, body).map(Self::$own),)*
                    $(ApiKey::$generated => {
                        generated_body(shape::requests::$SHAPE, key, version, &body).map(Self::$generated)
                    },)*
                }
            }

            /// The shape that a generated body is walked by, `None` for our own codecs.
            #[cfg(test)]
            pub(crate) const fn shape(key: ApiKey) -> Option<&'static [shape::Field]> {
                match key {
                    $(ApiKey::$own => None,)*
                    $(ApiKey::$generated => Some(shape::requests::$SHAPE),)*
                }
            }

            /// What the generated codec makes of a body that it decoded.
            #[cfg(test)]
            pub(crate) fn encode_generated(&self, version: i16) -> Option<Bytes> {
                use kafka_wire_core::KafkaEncode;
                match self {
                    $(Self::$own(_) => None,)*
                    $(Self::$generated(body) => {
                        Some(body.encode_to_bytes(ApiVersion::new(version)).unwrap())
                    })*
                }
            }

            /// The API of this request.
            #[must_use]
            pub const fn key(&self) -> ApiKey {
                match self {
                    $(Self::$own(_) => ApiKey::$own,)*
                    $(Self::$generated(_) => ApiKey::$generated,)*
                }
            }
        }
    };
}

requests! {
    own {
        Produce(produce::ProduceRequest),
        Fetch(fetch::FetchRequest),
        ShareFetch(share_fetch::ShareFetchRequest),
        ShareAcknowledge(share_acknowledge::ShareAcknowledgeRequest),
        KeyShareFetch(key_share_fetch::KeyShareFetchRequest),
        KeyShareAcknowledge(key_share_acknowledge::KeyShareAcknowledgeRequest),
        KeyShareCommit(key_share_commit::KeyShareCommitRequest),
        KeyShareDescribe(key_share_describe::KeyShareDescribeRequest),
        KeyShareAlter(key_share_alter::KeyShareAlterRequest),
    }
    generated {
        ListOffsets(wire::ListOffsetsRequest) = LIST_OFFSETS,
        Metadata(wire::MetadataRequest) = METADATA,
        OffsetCommit(wire::OffsetCommitRequest) = OFFSET_COMMIT,
        OffsetFetch(wire::OffsetFetchRequest) = OFFSET_FETCH,
        FindCoordinator(wire::FindCoordinatorRequest) = FIND_COORDINATOR,
        JoinGroup(wire::JoinGroupRequest) = JOIN_GROUP,
        Heartbeat(wire::HeartbeatRequest) = HEARTBEAT,
        LeaveGroup(wire::LeaveGroupRequest) = LEAVE_GROUP,
        SyncGroup(wire::SyncGroupRequest) = SYNC_GROUP,
        DescribeGroups(wire::DescribeGroupsRequest) = DESCRIBE_GROUPS,
        ListGroups(wire::ListGroupsRequest) = LIST_GROUPS,
        ApiVersions(wire::ApiVersionsRequest) = API_VERSIONS,
        CreateTopics(wire::CreateTopicsRequest) = CREATE_TOPICS,
        DeleteTopics(wire::DeleteTopicsRequest) = DELETE_TOPICS,
        DeleteRecords(wire::DeleteRecordsRequest) = DELETE_RECORDS,
        InitProducerId(wire::InitProducerIdRequest) = INIT_PRODUCER_ID,
        OffsetForLeaderEpoch(wire::OffsetForLeaderEpochRequest) = OFFSET_FOR_LEADER_EPOCH,
        DescribeConfigs(wire::DescribeConfigsRequest) = DESCRIBE_CONFIGS,
        DescribeLogDirs(wire::DescribeLogDirsRequest) = DESCRIBE_LOG_DIRS,
        CreatePartitions(wire::CreatePartitionsRequest) = CREATE_PARTITIONS,
        DeleteGroups(wire::DeleteGroupsRequest) = DELETE_GROUPS,
        IncrementalAlterConfigs(wire::IncrementalAlterConfigsRequest) = INCREMENTAL_ALTER_CONFIGS,
        OffsetDelete(wire::OffsetDeleteRequest) = OFFSET_DELETE,
        DescribeCluster(wire::DescribeClusterRequest) = DESCRIBE_CLUSTER,
        ListConfigResources(wire::ListConfigResourcesRequest) = LIST_CONFIG_RESOURCES,
        DescribeTopicPartitions(wire::DescribeTopicPartitionsRequest) = DESCRIBE_TOPIC_PARTITIONS,
        ShareGroupHeartbeat(wire::ShareGroupHeartbeatRequest) = SHARE_GROUP_HEARTBEAT,
        ShareGroupDescribe(wire::ShareGroupDescribeRequest) = SHARE_GROUP_DESCRIBE,
        DescribeShareGroupOffsets(wire::DescribeShareGroupOffsetsRequest) = DESCRIBE_SHARE_GROUP_OFFSETS,
        AlterShareGroupOffsets(wire::AlterShareGroupOffsetsRequest) = ALTER_SHARE_GROUP_OFFSETS,
        DeleteShareGroupOffsets(wire::DeleteShareGroupOffsetsRequest) = DELETE_SHARE_GROUP_OFFSETS,
    }
}

fn own_body<T: Read>(key: ApiKey, version: i16, body: Bytes) -> Result<T, DecodeError> {
    let budget = decoded_bytes_max(key, body.len());
    T::read(&mut Reader::new(body, version, key.api().is_flexible(version), budget))
}

fn generated_body<T: KafkaDecode>(
    shape: &'static [shape::Field],
    key: ApiKey,
    version: i16,
    body: &Bytes,
) -> Result<T, DecodeError> {
    let budget = decoded_bytes_max(key, body.len());
    let body = shape::walk(shape, version, key.api().is_flexible(version), body, budget)?;
    // The walk has checked everything against the body's length; the codec's own limits must not be tighter.
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = body.len();
    limits.max_string_bytes = body.len();
    limits.max_bytes_bytes = body.len();
    limits.max_array_elements = body.len();
    limits.max_tagged_fields = body.len();
    limits.max_tag_bytes = body.len();
    limits.max_total_tag_bytes = body.len();
    Ok(T::decode(&mut Decoder::new(body, limits)?, ApiVersion::new(version))?)
}

/// A request of the key-share API that the client sends.
pub trait KeyShareRequest: Sized {
    /// Its API.
    const KEY: ApiKey;

    /// The whole frame, length prefix and header included, in the API's highest version.
    ///
    /// # Errors
    /// [`EncodeError`] for a field that is too long.
    fn into_frame(self, correlation_id: i32, client_id: Option<StrBytes>) -> Result<Bytes, EncodeError>;
}

macro_rules! key_share_requests {
    ($($Request:ty: $key:ident;)*) => {
        $(impl KeyShareRequest for $Request {
            const KEY: ApiKey = ApiKey::$key;

            fn into_frame(self, correlation_id: i32, client_id: Option<StrBytes>) -> Result<Bytes, EncodeError> {
                let api = Self::KEY.api();
                let mut writer = Writer::<std::convert::Infallible>::frame(api.max, true);
                RequestHeader { api_key: api.key.code(), api_version: api.max, correlation_id, client_id }
                    .write(&mut writer);
                self.write(&mut writer);
                Ok(writer.finish()?.into_bytes())
            }
        })*
    };
}

key_share_requests! {
    key_share_fetch::KeyShareFetchRequest: KeyShareFetch;
    key_share_acknowledge::KeyShareAcknowledgeRequest: KeyShareAcknowledge;
    key_share_commit::KeyShareCommitRequest: KeyShareCommit;
    key_share_describe::KeyShareDescribeRequest: KeyShareDescribe;
    key_share_alter::KeyShareAlterRequest: KeyShareAlter;
}
