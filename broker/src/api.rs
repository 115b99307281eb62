//! One API, one file; the list of files is the list of APIs (`protocol::api` is the table).
//!
//! A handler takes the request and gives the answer; where Kafka closes the connection, it says so instead. Produce
//! alone has two parts: what must happen in order, and the wait.

pub mod alter_share_group_offsets;
pub mod api_versions;
mod assignments;
pub mod authorized;
mod coordination;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_share_group_offsets;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_share_group_offsets;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod key_share_acknowledge;
pub mod key_share_alter;
pub mod key_share_commit;
pub mod key_share_describe;
pub mod key_share_fetch;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
mod refusal;
mod resource;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_group_describe;
pub mod share_group_heartbeat;
mod share_requests;
pub mod sync_group;

use bytes::Bytes;
use protocol::{Request, Response, StrBytes};

use crate::context::{CloseConnection, RequestContext};
use crate::dispatch::Served;

/// Hands a request to its API's handler.
///
/// # Errors
/// Where the connection is to be closed.
pub async fn handle(cx: &RequestContext, request: Request) -> Result<Served, CloseConnection> {
    Ok(Served::Now(match request {
        Request::Produce(request) => return produce::handle(cx, request).await,
        Request::Fetch(request) => Response::Fetch(fetch::handle(cx, request).await?),
        Request::Metadata(request) => Response::Metadata(metadata::handle(cx, request).await?),
        Request::ApiVersions(request) => Response::ApiVersions(api_versions::handle(cx, &request)?),
        Request::OffsetCommit(request) => Response::OffsetCommit(offset_commit::handle(cx, request).await?),
        Request::OffsetFetch(request) => Response::OffsetFetch(offset_fetch::handle(cx, request).await?),
        Request::FindCoordinator(request) => {
            Response::FindCoordinator(find_coordinator::handle(cx, request).await?)
        }
        Request::JoinGroup(request) => Response::JoinGroup(join_group::handle(cx, request).await?),
        Request::Heartbeat(request) => Response::Heartbeat(heartbeat::handle(cx, request).await?),
        Request::LeaveGroup(request) => Response::LeaveGroup(leave_group::handle(cx, request).await?),
        Request::SyncGroup(request) => Response::SyncGroup(sync_group::handle(cx, request).await?),
        Request::DescribeGroups(request) => {
            Response::DescribeGroups(describe_groups::handle(cx, request).await?)
        }
        Request::ListGroups(request) => Response::ListGroups(list_groups::handle(cx, request).await?),
        Request::DeleteGroups(request) => Response::DeleteGroups(delete_groups::handle(cx, request).await?),
        Request::ShareGroupHeartbeat(request) => {
            Response::ShareGroupHeartbeat(share_group_heartbeat::handle(cx, request).await?)
        }
        Request::ShareGroupDescribe(request) => {
            Response::ShareGroupDescribe(share_group_describe::handle(cx, request).await?)
        }
        Request::DescribeShareGroupOffsets(request) => {
            Response::DescribeShareGroupOffsets(describe_share_group_offsets::handle(cx, request).await?)
        }
        Request::AlterShareGroupOffsets(request) => {
            Response::AlterShareGroupOffsets(alter_share_group_offsets::handle(cx, request).await?)
        }
        Request::DeleteShareGroupOffsets(request) => {
            Response::DeleteShareGroupOffsets(delete_share_group_offsets::handle(cx, request).await?)
        }
        Request::ShareFetch(request) => Response::ShareFetch(share_fetch::handle(cx, request).await?),
        Request::ShareAcknowledge(request) => {
            Response::ShareAcknowledge(share_acknowledge::handle(cx, request).await?)
        }
        Request::KeyShareFetch(request) => {
            Response::KeyShareFetch(key_share_fetch::handle(cx, request).await?)
        }
        Request::KeyShareAcknowledge(request) => {
            Response::KeyShareAcknowledge(key_share_acknowledge::handle(cx, request).await?)
        }
        Request::KeyShareCommit(request) => {
            Response::KeyShareCommit(key_share_commit::handle(cx, request).await?)
        }
        Request::KeyShareDescribe(request) => {
            Response::KeyShareDescribe(key_share_describe::handle(cx, request).await?)
        }
        Request::KeyShareAlter(request) => {
            Response::KeyShareAlter(key_share_alter::handle(cx, request).await?)
        }
        Request::ListOffsets(request) => Response::ListOffsets(list_offsets::handle(cx, request).await?),
        Request::OffsetForLeaderEpoch(request) => {
            Response::OffsetForLeaderEpoch(offset_for_leader_epoch::handle(cx, request).await?)
        }
        Request::OffsetDelete(request) => Response::OffsetDelete(offset_delete::handle(cx, request).await?),
        Request::DescribeLogDirs(request) => {
            Response::DescribeLogDirs(describe_log_dirs::handle(cx, request).await?)
        }
        Request::CreateTopics(request) => Response::CreateTopics(create_topics::handle(cx, request).await),
        Request::DeleteTopics(request) => Response::DeleteTopics(delete_topics::handle(cx, request).await),
        Request::DeleteRecords(request) => {
            Response::DeleteRecords(delete_records::handle(cx, request).await?)
        }
        Request::InitProducerId(request) => {
            Response::InitProducerId(init_producer_id::handle(cx, request).await)
        }
        Request::DescribeConfigs(request) => {
            Response::DescribeConfigs(describe_configs::handle(cx, &request))
        }
        Request::CreatePartitions(request) => {
            Response::CreatePartitions(create_partitions::handle(cx, request).await)
        }
        Request::IncrementalAlterConfigs(request) => {
            Response::IncrementalAlterConfigs(incremental_alter_configs::handle(cx, request).await)
        }
        Request::DescribeCluster(request) => {
            Response::DescribeCluster(describe_cluster::handle(cx, &request))
        }
        Request::ListConfigResources(request) => {
            Response::ListConfigResources(list_config_resources::handle(cx, &request))
        }
        Request::DescribeTopicPartitions(request) => {
            Response::DescribeTopicPartitions(describe_topic_partitions::handle(cx, &request))
        }
    }))
}

/// A text of the program's own in the form that answers hold, without a copy.
fn fixed(text: &'static str) -> StrBytes {
    StrBytes::try_from(Bytes::from_static(text.as_bytes())).expect("a str is UTF-8")
}
