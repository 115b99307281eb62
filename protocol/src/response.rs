//! From a typed answer to a frame.

use bytes::Bytes;

use crate::api::{APIS, ApiKey};
use crate::decode::{DecodeError, Read, Reader};
use crate::encode::{EncodeError, Write, Writer};
use crate::error_code::ErrorCode;
use crate::messages::{
    fetch, key_share_acknowledge, key_share_alter, key_share_commit, key_share_describe, key_share_fetch,
    produce, share_acknowledge, share_fetch,
};
use crate::segments::{SegmentLen, Segments};
use crate::wire;

macro_rules! responses {
    (own { $($own:ident($Own:ty),)* } generated { $($generated:ident($Generated:ty),)* }) => {
        /// One answer; a variant for each API of the table. `F` is the caller's file range.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Response<F = std::convert::Infallible> {
            $($own($Own),)*
            $($generated($Generated),)*
        }

        impl<F> Response<F> {
            /// The API of this answer.
            #[must_use]
            pub const fn key(&self) -> ApiKey {
                match self {
                    $(Self::$own(_) => ApiKey::$own,)*
                    $(Self::$generated(_) => ApiKey::$generated,)*
                }
            }
        }

        impl<F: SegmentLen> Response<F> {
            fn write_body(self, writer: &mut Writer<F>) {
                match self {
                    $(Self::$own(body) => body.write(writer),)*
                    $(Self::$generated(body) => writer.generated(&body),)*
                }
            }
        }
    };
}

responses! {
    own {
        Produce(produce::ProduceResponse),
        Fetch(fetch::FetchResponse<F>),
        ShareFetch(share_fetch::ShareFetchResponse<F>),
        ShareAcknowledge(share_acknowledge::ShareAcknowledgeResponse),
        KeyShareFetch(key_share_fetch::KeyShareFetchResponse<F>),
        KeyShareAcknowledge(key_share_acknowledge::KeyShareAcknowledgeResponse),
        KeyShareCommit(key_share_commit::KeyShareCommitResponse),
        KeyShareDescribe(key_share_describe::KeyShareDescribeResponse),
        KeyShareAlter(key_share_alter::KeyShareAlterResponse),
    }
    generated {
        ListOffsets(wire::ListOffsetsResponse),
        Metadata(wire::MetadataResponse),
        OffsetCommit(wire::OffsetCommitResponse),
        OffsetFetch(wire::OffsetFetchResponse),
        FindCoordinator(wire::FindCoordinatorResponse),
        JoinGroup(wire::JoinGroupResponse),
        Heartbeat(wire::HeartbeatResponse),
        LeaveGroup(wire::LeaveGroupResponse),
        SyncGroup(wire::SyncGroupResponse),
        DescribeGroups(wire::DescribeGroupsResponse),
        ListGroups(wire::ListGroupsResponse),
        ApiVersions(wire::ApiVersionsResponse),
        CreateTopics(wire::CreateTopicsResponse),
        DeleteTopics(wire::DeleteTopicsResponse),
        DeleteRecords(wire::DeleteRecordsResponse),
        InitProducerId(wire::InitProducerIdResponse),
        OffsetForLeaderEpoch(wire::OffsetForLeaderEpochResponse),
        DescribeConfigs(wire::DescribeConfigsResponse),
        DescribeLogDirs(wire::DescribeLogDirsResponse),
        CreatePartitions(wire::CreatePartitionsResponse),
        DeleteGroups(wire::DeleteGroupsResponse),
        IncrementalAlterConfigs(wire::IncrementalAlterConfigsResponse),
        OffsetDelete(wire::OffsetDeleteResponse),
        DescribeCluster(wire::DescribeClusterResponse),
        ListConfigResources(wire::ListConfigResourcesResponse),
        DescribeTopicPartitions(wire::DescribeTopicPartitionsResponse),
        ShareGroupHeartbeat(wire::ShareGroupHeartbeatResponse),
        ShareGroupDescribe(wire::ShareGroupDescribeResponse),
        DescribeShareGroupOffsets(wire::DescribeShareGroupOffsetsResponse),
        AlterShareGroupOffsets(wire::AlterShareGroupOffsetsResponse),
        DeleteShareGroupOffsets(wire::DeleteShareGroupOffsetsResponse),
    }
}

impl<F: SegmentLen> Response<F> {
    /// The whole frame: length prefix, response header, body. `version` is the request's.
    ///
    /// # Errors
    /// [`EncodeError`] for what this version cannot say.
    pub fn encode(self, version: i16, correlation_id: i32) -> Result<Segments<F>, EncodeError> {
        let api = self.key().api();
        let mut writer = Writer::frame(version, api.is_flexible(version));
        writer.i32(correlation_id);
        if api.response_header_version(version) >= 1 {
            writer.no_tags();
        }
        self.write_body(&mut writer);
        writer.finish()
    }
}

/// What ApiVersions lists: every API of the table with its advertised range, ascending by key.
#[must_use]
pub fn advertised_versions() -> Vec<wire::api_versions_response::ApiVersion> {
    APIS.iter().map(|api| advertised(api.key)).collect()
}

/// The answer to an ApiVersions request of a version that is not served: error 35 and ApiVersions' own range,
/// so that the client can ask again. To be encoded in version 0, which every client reads (KIP-511).
#[must_use]
pub fn unsupported_api_versions() -> wire::ApiVersionsResponse {
    let mut response = wire::ApiVersionsResponse::default();
    response.error_code = ErrorCode::UnsupportedVersion.code();
    response.api_keys = vec![advertised(ApiKey::ApiVersions)];
    response
}

fn advertised(key: ApiKey) -> wire::api_versions_response::ApiVersion {
    let api = key.api();
    let mut versions = wire::api_versions_response::ApiVersion::default();
    versions.api_key = key.code();
    versions.min_version = api.advertised_min;
    versions.max_version = api.max;
    versions
}

/// An answer of the key-share API that the client reads.
pub trait KeyShareResponse: Sized {
    /// Decodes a frame (its length prefix not counted) in the API's highest version, to the correlation id and
    /// the answer.
    ///
    /// # Errors
    /// [`DecodeError`] for malformed bytes.
    fn from_frame(frame: Bytes) -> Result<(i32, Self), DecodeError>;
}

macro_rules! key_share_responses {
    ($($Response:ty: $key:ident;)*) => {
        $(impl KeyShareResponse for $Response {
            fn from_frame(frame: Bytes) -> Result<(i32, Self), DecodeError> {
                let api = ApiKey::$key.api();
                // The broker is trusted with memory: its answer is as large as the client asked for.
                let mut reader = Reader::new(frame, api.max, true, usize::MAX);
                let correlation_id = reader.i32()?;
                reader.skip_tags()?;
                Ok((correlation_id, Self::read(&mut reader)?))
            }
        })*
    };
}

key_share_responses! {
    key_share_fetch::KeyShareFetchResponse: KeyShareFetch;
    key_share_acknowledge::KeyShareAcknowledgeResponse: KeyShareAcknowledge;
    key_share_commit::KeyShareCommitResponse: KeyShareCommit;
    key_share_describe::KeyShareDescribeResponse: KeyShareDescribe;
    key_share_alter::KeyShareAlterResponse: KeyShareAlter;
}
