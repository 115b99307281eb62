//! Every version of every API over a socket, read by a codec that is not the broker's own.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, ApiKey as OtherKey, ApiVersionsRequest, BrokerId, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest, DeleteShareGroupOffsetsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeLogDirsRequest, DescribeShareGroupOffsetsRequest, DescribeTopicPartitionsRequest, FetchRequest,
    FindCoordinatorRequest, GroupId, HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListConfigResourcesRequest, ListGroupsRequest, ListOffsetsRequest,
    MetadataRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, ProducerId, RequestKind, ResponseKind,
    ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupDescribeRequest, ShareGroupHeartbeatRequest,
    SyncGroupRequest, TopicName,
};
use protocol::ApiKey;
use protocol::api::{APIS, Api};
use records::batch::{BatchBuilder, TimestampType};
use records::compression::Codec;
use records::ids::Offset;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Body, Client, text};
use common::{Server, flexible, framed, hex, request};

fn named(name: &str) -> TopicName {
    TopicName(text(name))
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

fn produce(topic: &str, id: uuid::Uuid) -> RequestKind {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, Some(b"k"), Some(b"v"), &[]);
    let data = PartitionProduceData::default().with_records(Some(batch.build(Offset(0), -1)));
    let bad = PartitionProduceData::default().with_index(9).with_records(Some(Bytes::from_static(b"no")));
    let topic = TopicProduceData::default()
        .with_name(named(topic))
        .with_topic_id(id)
        .with_partition_data(vec![data, bad]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![topic]);
    RequestKind::Produce(request)
}

fn fetch(topic: &str, id: uuid::Uuid) -> RequestKind {
    let part = |index| FetchPartition::default().with_partition(index).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default()
        .with_topic(named(topic))
        .with_topic_id(id)
        .with_partitions(vec![part(0), part(9)]);
    RequestKind::Fetch(FetchRequest::default().with_session_epoch(-1).with_topics(vec![topic]))
}

fn offset_commit() -> RequestKind {
    let part = |index| OffsetCommitRequestPartition::default().with_partition_index(index);
    let topic =
        OffsetCommitRequestTopic::default().with_name(named("t")).with_partitions(vec![part(0), part(9)]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    RequestKind::OffsetCommit(request)
}

/// One group of its own up to version 7, a list from version 8 on; version 1 cannot ask for all topics.
fn offset_fetch(version: i16) -> Vec<OffsetFetchRequest> {
    let topic = OffsetFetchRequestTopic::default().with_name(named("t")).with_partition_indexes(vec![0, 9]);
    let one = OffsetFetchRequest::default().with_group_id(group("g"));
    let topics = OffsetFetchRequestTopics::default().with_name(named("t")).with_partition_indexes(vec![0, 9]);
    let many = |topics| {
        let asked = OffsetFetchRequestGroup::default().with_group_id(group("g")).with_topics(topics);
        OffsetFetchRequest::default().with_groups(vec![asked])
    };
    let some = one.clone().with_topics(Some(vec![topic]));
    let all = (version > 1).then(|| one.with_topics(None));
    [some, many(Some(vec![topics])), many(None)].into_iter().chain(all).collect()
}

fn join(version: i16) -> RequestKind {
    let way = JoinGroupRequestProtocol::default().with_name(text("range"));
    let request = JoinGroupRequest::default()
        .with_group_id(group(&format!("joined{version}")))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(100)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![way]);
    RequestKind::JoinGroup(request)
}

/// Requests of an API, those that succeed and those that are refused. Not all can be said in every version.
fn requests(key: ApiKey, version: i16, id: uuid::Uuid) -> Vec<RequestKind> {
    match key {
        ApiKey::Produce => vec![produce("t", id), produce("nope", uuid::Uuid::from_bytes([7; 16]))],
        ApiKey::Fetch => vec![fetch("t", id), fetch("nope", uuid::Uuid::from_bytes([7; 16]))],
        ApiKey::ListOffsets => {
            let part = |index, time| {
                ListOffsetsPartition::default().with_partition_index(index).with_timestamp(time)
            };
            let topic = ListOffsetsTopic::default().with_name(named("t")).with_partitions(vec![
                part(0, -1),
                part(1, -2),
                part(9, 0),
            ]);
            let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1));
            vec![RequestKind::ListOffsets(request.with_topics(vec![topic]))]
        }
        ApiKey::Metadata => {
            let one = |name: &str| MetadataRequestTopic::default().with_name(Some(named(name)));
            let request = MetadataRequest::default().with_topics(Some(vec![one("t"), one("a b")]));
            let told =
                request.clone().with_include_topic_authorized_operations(true).with_topics(Some(Vec::new()));
            // Version 0 has no null.
            let all = MetadataRequest::default().with_topics((version == 0).then(Vec::new));
            [request, told, all].map(RequestKind::Metadata).into()
        }
        ApiKey::OffsetCommit => vec![offset_commit()],
        ApiKey::OffsetFetch => offset_fetch(version).into_iter().map(RequestKind::OffsetFetch).collect(),
        ApiKey::FindCoordinator => {
            let request = FindCoordinatorRequest::default();
            let keys = vec![text("g"), text("h")];
            let asked = [request.clone().with_key(text("g")), request.clone().with_coordinator_keys(keys)];
            let refused = request.with_key(text("g")).with_key_type(5);
            asked.into_iter().chain([refused]).map(RequestKind::FindCoordinator).collect()
        }
        ApiKey::JoinGroup => vec![join(version), RequestKind::JoinGroup(JoinGroupRequest::default())],
        ApiKey::Heartbeat => {
            vec![RequestKind::Heartbeat(HeartbeatRequest::default().with_group_id(group("g")))]
        }
        ApiKey::LeaveGroup => {
            let request = LeaveGroupRequest::default().with_group_id(group("g"));
            let member = MemberIdentity::default().with_member_id(text("m"));
            let several = request.clone().with_members(vec![member]);
            [request.with_member_id(text("m")), several].map(RequestKind::LeaveGroup).into()
        }
        ApiKey::SyncGroup => {
            vec![RequestKind::SyncGroup(SyncGroupRequest::default().with_group_id(group("g")))]
        }
        ApiKey::DescribeGroups => {
            let groups = vec![group("g"), group("nope")];
            vec![RequestKind::DescribeGroups(DescribeGroupsRequest::default().with_groups(groups))]
        }
        ApiKey::ListGroups => vec![RequestKind::ListGroups(ListGroupsRequest::default())],
        ApiKey::ApiVersions => {
            let named = ApiVersionsRequest::default()
                .with_client_software_name(text("a"))
                .with_client_software_version(text("1"));
            [ApiVersionsRequest::default(), named].map(RequestKind::ApiVersions).into()
        }
        ApiKey::CreateTopics => {
            let topic = |name: &str| {
                CreatableTopic::default()
                    .with_name(named(name))
                    .with_num_partitions(1)
                    .with_replication_factor(1)
            };
            let request = CreateTopicsRequest::default().with_timeout_ms(1_000);
            let made = request.clone().with_topics(vec![topic(&format!("new{version}"))]);
            let refused = request.with_topics(vec![topic("t"), topic("a b")]);
            [made, refused].map(RequestKind::CreateTopics).into()
        }
        ApiKey::DeleteTopics => {
            let request = DeleteTopicsRequest::default().with_timeout_ms(1_000);
            let state = DeleteTopicState::default().with_name(Some(named("nope")));
            let names = request.clone().with_topic_names(vec![named("nope")]);
            [names, request.with_topics(vec![state])].map(RequestKind::DeleteTopics).into()
        }
        ApiKey::DeleteRecords => {
            let part = |index| DeleteRecordsPartition::default().with_partition_index(index);
            let topic =
                DeleteRecordsTopic::default().with_name(named("t")).with_partitions(vec![part(0), part(9)]);
            let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
            vec![RequestKind::DeleteRecords(request)]
        }
        ApiKey::InitProducerId => {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1);
            let refused = request.clone().with_transactional_id(Some(text("t").into()));
            [request, refused].map(RequestKind::InitProducerId).into()
        }
        ApiKey::DescribeConfigs => {
            let resource = |kind, name: &str| {
                let resource = DescribeConfigsResource::default().with_resource_type(kind);
                resource.with_resource_name(text(name)).with_configuration_keys(None)
            };
            let resources = vec![resource(2, "t"), resource(2, "nope"), resource(4, "1"), resource(99, "x")];
            let request = DescribeConfigsRequest::default().with_resources(resources);
            vec![RequestKind::DescribeConfigs(request.with_include_synonyms(true))]
        }
        ApiKey::CreatePartitions => {
            let topic =
                |name: &str| CreatePartitionsTopic::default().with_name(named(name)).with_assignments(None);
            let request = CreatePartitionsRequest::default().with_timeout_ms(1_000);
            let grown = request.clone().with_topics(vec![topic("t").with_count(2 + i32::from(version))]);
            let refused = request.with_topics(vec![topic("t").with_count(1), topic("nope").with_count(2)]);
            [grown, refused].map(RequestKind::CreatePartitions).into()
        }
        ApiKey::DeleteGroups => {
            let request = DeleteGroupsRequest::default().with_groups_names(vec![group("nope")]);
            vec![RequestKind::DeleteGroups(request)]
        }
        ApiKey::OffsetForLeaderEpoch => {
            let topic = |name: &str| {
                let partitions =
                    [0, 9].map(|index| OffsetForLeaderPartition::default().with_partition(index));
                OffsetForLeaderTopic::default().with_topic(named(name)).with_partitions(partitions.into())
            };
            let request = OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-2));
            let request = request.with_topics(vec![topic("t"), topic("nope")]);
            vec![RequestKind::OffsetForLeaderEpoch(request)]
        }
        ApiKey::DescribeLogDirs => {
            let some = DescribableLogDirTopic::default().with_topic(named("t")).with_partitions(vec![0, 9]);
            [None, Some(Vec::new()), Some(vec![some])]
                .map(|topics| DescribeLogDirsRequest::default().with_topics(topics))
                .map(RequestKind::DescribeLogDirs)
                .into()
        }
        ApiKey::OffsetDelete => {
            vec![RequestKind::OffsetDelete(OffsetDeleteRequest::default().with_group_id(group("nope")))]
        }
        ApiKey::IncrementalAlterConfigs => {
            let resource = |name: &str| {
                AlterConfigsResource::default().with_resource_type(2).with_resource_name(text(name))
            };
            let resources = vec![resource("t"), resource("nope")];
            let request = IncrementalAlterConfigsRequest::default().with_resources(resources);
            vec![RequestKind::IncrementalAlterConfigs(request)]
        }
        ApiKey::DescribeCluster => {
            let request = DescribeClusterRequest::default();
            let refused = request.clone().with_endpoint_type(7);
            [request, refused].map(RequestKind::DescribeCluster).into()
        }
        ApiKey::ListConfigResources => {
            vec![RequestKind::ListConfigResources(ListConfigResourcesRequest::default())]
        }
        ApiKey::DescribeTopicPartitions => {
            let topics = ["t", "nope"].map(|name| TopicRequest::default().with_name(named(name)));
            let request = DescribeTopicPartitionsRequest::default().with_topics(topics.into());
            vec![RequestKind::DescribeTopicPartitions(request)]
        }
        ApiKey::ShareGroupHeartbeat => {
            let request = ShareGroupHeartbeatRequest::default().with_group_id(group("shared"));
            let joins =
                request.clone().with_member_id(text("m")).with_subscribed_topic_names(Some(vec![named("t")]));
            [joins, request].map(RequestKind::ShareGroupHeartbeat).into()
        }
        ApiKey::ShareGroupDescribe => {
            let groups = vec![group("shared"), group("nope")];
            vec![RequestKind::ShareGroupDescribe(ShareGroupDescribeRequest::default().with_group_ids(groups))]
        }
        ApiKey::ShareFetch => {
            let request = ShareFetchRequest::default().with_group_id(Some(group("shared")));
            let named = request.clone().with_member_id(Some(text("m")));
            [named, request].map(RequestKind::ShareFetch).into()
        }
        ApiKey::ShareAcknowledge => {
            let request = ShareAcknowledgeRequest::default().with_group_id(Some(group("shared")));
            let named = request.clone().with_member_id(Some(text("m"))).with_share_session_epoch(1);
            [named, request].map(RequestKind::ShareAcknowledge).into()
        }
        ApiKey::DescribeShareGroupOffsets => {
            let topic = DescribeShareGroupOffsetsRequestTopic::default()
                .with_topic_name(named("t"))
                .with_partitions(vec![0, 9]);
            let asked = |topics| {
                DescribeShareGroupOffsetsRequestGroup::default()
                    .with_group_id(group("shared"))
                    .with_topics(topics)
            };
            let groups = vec![asked(Some(vec![topic])), asked(None)];
            let request = DescribeShareGroupOffsetsRequest::default().with_groups(groups);
            vec![RequestKind::DescribeShareGroupOffsets(request)]
        }
        ApiKey::AlterShareGroupOffsets => {
            let part = |index| {
                AlterShareGroupOffsetsRequestPartition::default()
                    .with_partition_index(index)
                    .with_start_offset(1)
            };
            let topic = AlterShareGroupOffsetsRequestTopic::default()
                .with_topic_name(named("t"))
                .with_partitions(vec![part(0), part(9)]);
            let request = AlterShareGroupOffsetsRequest::default().with_group_id(group("shared"));
            let named = request.clone().with_topics(vec![topic]);
            [named, request].map(RequestKind::AlterShareGroupOffsets).into()
        }
        ApiKey::DeleteShareGroupOffsets => {
            let topic = DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(named("t"));
            let request = DeleteShareGroupOffsetsRequest::default().with_group_id(group("shared"));
            let named = request.clone().with_topics(vec![topic]);
            [named, request].map(RequestKind::DeleteShareGroupOffsets).into()
        }
        // Of our own; `key_share.rs`, `key_share_admin.rs` and `standalone.rs` have them.
        ApiKey::KeyShareFetch
        | ApiKey::KeyShareAcknowledge
        | ApiKey::KeyShareCommit
        | ApiKey::KeyShareDescribe
        | ApiKey::KeyShareAlter => Vec::new(),
    }
}

/// The version whose layout the other codec knows, `None` for what has none of an older one: those versions have their
/// bytes written by hand, here and in `offsets.rs`, `share.rs`, `wire.rs` and `integration-tests`.
fn layout(key: ApiKey, version: i16) -> Option<i16> {
    match (key, version) {
        (ApiKey::ListOffsets, 11) => Some(10),
        (ApiKey::OffsetCommit | ApiKey::OffsetFetch, 10)
        | (ApiKey::ApiVersions, 5)
        | (ApiKey::DeleteGroups, 3)
        | (ApiKey::DescribeLogDirs, 5)
        | (ApiKey::ShareFetch | ApiKey::ShareAcknowledge, 2)
        | (ApiKey::DescribeShareGroupOffsets, 1)
        | (
            ApiKey::KeyShareFetch
            | ApiKey::KeyShareAcknowledge
            | ApiKey::KeyShareCommit
            | ApiKey::KeyShareDescribe
            | ApiKey::KeyShareAlter,
            _,
        ) => None,
        _ => Some(version),
    }
}

/// The bodies of an API in a version, as the other codec writes them in this layout.
fn bodies(api: &Api, version: i16, layout: i16, id: uuid::Uuid) -> Vec<Bytes> {
    let written = requests(api.key, version, id).into_iter().filter_map(|request| {
        let mut body = BytesMut::new();
        request.encode(&mut body, layout).is_ok().then(|| body.freeze())
    });
    let bodies: Vec<Bytes> = written.collect();
    assert!(!bodies.is_empty(), "{} v{version} has no request", api.name);
    bodies
}

#[tokio::test]
async fn w13_every_version_of_every_api_is_answered_in_its_layout() {
    let server = Server::start().await;
    server.topic("t").await;
    let id = uuid::Uuid::from_bytes(server.running.broker().catalog.image().topic("t").unwrap().id.0);
    let mut raw = server.connect().await;
    for api in APIS {
        for version in api.min..=api.max {
            let Some(layout) = layout(api.key, version) else { continue };
            let other = OtherKey::try_from(api.key.code()).unwrap();
            for (place, body) in bodies(api, version, layout, id).into_iter().enumerate() {
                let what = format!("{} v{version}, request {place}", api.name);
                let sent = if api.is_flexible(version) { flexible } else { request };
                raw.send(&sent(api.key.code(), version, 7, &body)).await;
                let answer = raw.frame().await;
                assert_eq!(answer[..4], [0, 0, 0, 7], "{what}");
                let tagged = other.response_header_version(layout) == 1;
                assert!(!tagged || answer[4] == 0, "{what}");
                let mut rest = Bytes::from(answer).split_off(if tagged { 5 } else { 4 });
                let read = ResponseKind::decode(other, &mut rest, layout);
                let read = read.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert!(rest.is_empty(), "{what} leaves {} bytes: {read:?}", rest.len());
                let mut again = BytesMut::new();
                read.encode(&mut again, layout).unwrap();
            }
        }
    }
    server.answers().await;
}

#[tokio::test]
async fn w13_delete_groups_3_adds_words() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let body = Body::default().array(&["nope"], |body, name| body.string(Some(name))).tags();
    let mut answer = client.call_raw(42, 3, &body).await;
    answer.i32();
    let results = answer.array(|result| {
        let told = (result.string(), result.i16(), result.string().is_some());
        result.tags();
        told
    });
    answer.tags();
    answer.ends();
    assert_eq!(results, [(Some("nope".to_owned()), 69, true)]);
}

#[tokio::test]
async fn w13_share_group_offsets_1_add_the_lag() {
    let server = Server::start().await;
    server.topic("t").await;
    let id = server.running.broker().catalog.image().topic("t").unwrap().id.0;
    let mut client = Client::new(&server).await;
    let group = |body: Body, name: &&str| {
        let topic = |body: Body, name: &&str| {
            body.string(Some(name)).array(&[0, 9], |body, index| body.i32(*index)).tags()
        };
        body.string(Some(name)).array(&["t"], topic).tags()
    };
    let body = Body::default().array(&["g"], group).tags();
    let mut answer = client.call_raw(90, 1, &body).await;
    answer.i32();
    let groups = answer.array(|group| {
        let name = group.string();
        let topics = group.array(|topic| {
            let named = (topic.string(), topic.uuid());
            let parts = topic.array(|part| {
                let told = (part.i32(), part.i64(), part.i32(), part.i64(), part.i16());
                part.string();
                part.tags();
                told
            });
            topic.tags();
            (named, parts)
        });
        let error = group.i16();
        group.string();
        group.tags();
        (name, topics, error)
    });
    answer.tags();
    answer.ends();
    let [(name, topics, 0)] = &groups[..] else { panic!("{groups:?}") };
    let [((topic, topic_id), parts)] = &topics[..] else { panic!("{topics:?}") };
    assert_eq!((name.as_deref(), topic.as_deref(), *topic_id), (Some("g"), Some("t"), id));
    // Index, start, epoch, lag, error: nothing was read of the one, the other is not there.
    let [(0, -1, _, -1, 0), (9, _, _, _, _)] = parts[..] else { panic!("{parts:?}") };
}

#[tokio::test]
async fn w13_api_versions_5_is_answered_in_the_layout_of_4() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    // Software "a" 1, no cluster id, node −1.
    raw.send(&flexible(18, 5, 7, &hex("02 61 02 31 00 ffffffff 00"))).await;
    let mut rest = Bytes::from(raw.frame().await).split_off(4);
    let read = ResponseKind::decode(OtherKey::ApiVersions, &mut rest, 4).unwrap();
    let ResponseKind::ApiVersions(answer) = read else { panic!("{read:?}") };
    assert_eq!((answer.error_code, answer.api_keys.len(), rest.len()), (0, APIS.len(), 0));
}

#[tokio::test]
async fn w01_w16_one_table_in_every_version() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let table: Vec<_> = APIS.iter().map(|api| (api.key.code(), api.advertised_min, api.max)).collect();
    for version in 0..=4 {
        let name = text(if version < 3 { "" } else { "a" });
        let request = ApiVersionsRequest::default()
            .with_client_software_name(name.clone())
            .with_client_software_version(name);
        let answer = client.call(version, &request).await;
        let told = answer.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version));
        assert_eq!((answer.error_code, told.collect::<Vec<_>>()), (0, table.clone()), "v{version}");
    }
}

#[tokio::test]
async fn s30_no_feature_is_told_whose_api_is_not_served() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("a"))
        .with_client_software_version(text("1"));
    let answer = client.call(4, &request).await;
    // ConsumerGroupHeartbeat, StreamsGroupHeartbeat, AddPartitionsToTxn, ShareGroupHeartbeat.
    let needs =
        [("group.version", 68), ("streams.version", 88), ("transaction.version", 24), ("share.version", 76)];
    for (name, key) in needs {
        let served = answer.api_keys.iter().any(|api| api.api_key == key);
        let supported = answer.supported_features.iter().any(|feature| &*feature.name == name);
        let finalized = answer.finalized_features.iter().any(|feature| &*feature.name == name);
        assert_eq!((supported, finalized), (served, served), "{name}");
    }
    assert!(answer.finalized_features.iter().any(|feature| &*feature.name == "share.version"));
}

#[tokio::test]
async fn w05_unknown_tags_change_no_answer_of_any_api() {
    let server = Server::start().await;
    server.topic("t").await;
    let id = uuid::Uuid::from_bytes(server.running.broker().catalog.image().topic("t").unwrap().id.0);
    let mut raw = server.connect().await;
    for api in APIS {
        for version in api.flexible_from.max(api.min)..=api.max {
            let Some(layout) = layout(api.key, version) else { continue };
            // The last of an API's requests is one that changes nothing.
            let body = bodies(api, version, layout, id).pop().unwrap();
            raw.send(&flexible(api.key.code(), version, 7, &body)).await;
            let plain = raw.frame().await;
            // The tag section of a body is its last byte.
            let (last, rest) = body.split_last().unwrap();
            assert_eq!(*last, 0, "{} v{version} ends in an empty tag section", api.name);
            let head = [&api.key.code().to_be_bytes()[..], &version.to_be_bytes()].concat();
            let tags = [2, 0x63, 2, 0x7a, 0x7a, 0x64, 0];
            let frame = [&head, &[0, 0, 0, 7, 0, 1, b'a'][..], &tags, rest, &tags].concat();
            raw.send(&framed(&frame)).await;
            let tagged = raw.frame().await;
            if api.key == ApiKey::DescribeLogDirs {
                // It tells how much room the disk has, which is not ours alone.
                assert_eq!(tagged.len(), plain.len(), "{} v{version}", api.name);
            } else {
                assert_eq!(tagged, plain, "{} v{version}", api.name);
            }
        }
    }
    server.answers().await;
}
