//! The shapes of ordinary requests, field by field in wire order.

use kafka_wire_core::StrBytes;

use super::{Field, blob, boolean, fixed, optional, primitives, structs, text};
use crate::wire::{
    alter_share_group_offsets_request, create_partitions_request, create_topics_request,
    delete_records_request, delete_share_group_offsets_request, delete_topics_request,
    describe_configs_request, describe_log_dirs_request, describe_share_group_offsets_request,
    describe_topic_partitions_request, incremental_alter_configs_request, join_group_request,
    leave_group_request, list_offsets_request, metadata_request, offset_commit_request,
    offset_delete_request, offset_fetch_request, offset_for_leader_epoch_request, sync_group_request,
};

const INT8: Field = fixed(1);
const INT16: Field = fixed(2);
const INT32: Field = fixed(4);
const INT64: Field = fixed(8);
const UUID: Field = fixed(16);
const TEXTS: Field = primitives::<StrBytes>(&[text()]);
const INT32S: Field = primitives::<i32>(&[INT32]);

pub(crate) const LIST_OFFSETS: &[Field] = &[
    INT32,
    INT8.since(2),
    structs::<list_offsets_request::ListOffsetsTopic>(&[
        text(),
        structs::<list_offsets_request::ListOffsetsPartition>(&[INT32, INT32.since(4), INT64]),
    ]),
    INT32.since(10),
];

pub(crate) const METADATA: &[Field] = &[
    structs::<metadata_request::MetadataRequestTopic>(&[UUID.since(10), text().nullable_since(10)])
        .nullable_since(1),
    boolean().since(4),
    boolean().since(8).until(10),
    boolean().since(8),
];

pub(crate) const OFFSET_COMMIT: &[Field] = &[
    text(),
    INT32,
    text(),
    text().since(7).nullable(),
    INT64.until(4),
    structs::<offset_commit_request::OffsetCommitRequestTopic>(&[
        text().until(9),
        UUID.since(10),
        structs::<offset_commit_request::OffsetCommitRequestPartition>(&[
            INT32,
            INT64,
            INT32.since(6),
            text().nullable(),
        ]),
    ]),
];

pub(crate) const OFFSET_FETCH: &[Field] = &[
    text().until(7),
    structs::<offset_fetch_request::OffsetFetchRequestTopic>(&[text(), INT32S]).until(7).nullable_since(2),
    structs::<offset_fetch_request::OffsetFetchRequestGroup>(&[
        text(),
        text().since(9).nullable(),
        INT32.since(9),
        structs::<offset_fetch_request::OffsetFetchRequestTopics>(&[text().until(9), UUID.since(10), INT32S])
            .nullable(),
    ])
    .since(8),
    boolean().since(7),
];

pub(crate) const FIND_COORDINATOR: &[Field] = &[text().until(3), INT8.since(1), TEXTS.since(4)];

pub(crate) const JOIN_GROUP: &[Field] = &[
    text(),
    INT32,
    INT32.since(1),
    text(),
    text().since(5).nullable(),
    text(),
    structs::<join_group_request::JoinGroupRequestProtocol>(&[text(), blob()]),
    text().since(8).nullable(),
];

pub(crate) const HEARTBEAT: &[Field] = &[text(), INT32, text(), text().since(3).nullable()];

pub(crate) const LEAVE_GROUP: &[Field] = &[
    text(),
    text().until(2),
    structs::<leave_group_request::MemberIdentity>(&[text(), text().nullable(), text().since(5).nullable()])
        .since(3),
];

pub(crate) const SYNC_GROUP: &[Field] = &[
    text(),
    INT32,
    text(),
    text().since(3).nullable(),
    text().since(5).nullable(),
    text().since(5).nullable(),
    structs::<sync_group_request::SyncGroupRequestAssignment>(&[text(), blob()]),
];

pub(crate) const DESCRIBE_GROUPS: &[Field] = &[TEXTS, boolean().since(3)];

pub(crate) const LIST_GROUPS: &[Field] = &[TEXTS.since(4), TEXTS.since(5)];

pub(crate) const API_VERSIONS: &[Field] =
    &[text().since(3), text().since(3), text().since(5).nullable(), INT32.since(5)];

pub(crate) const CREATE_TOPICS: &[Field] = &[
    structs::<create_topics_request::CreatableTopic>(&[
        text(),
        INT32,
        INT16,
        structs::<create_topics_request::CreatableReplicaAssignment>(&[INT32, INT32S]),
        structs::<create_topics_request::CreatableTopicConfig>(&[text(), text().nullable()]),
    ]),
    INT32,
    boolean(),
];

pub(crate) const DELETE_TOPICS: &[Field] = &[
    structs::<delete_topics_request::DeleteTopicState>(&[text().nullable(), UUID]).since(6),
    TEXTS.until(5),
    INT32,
];

pub(crate) const DELETE_RECORDS: &[Field] = &[
    structs::<delete_records_request::DeleteRecordsTopic>(&[
        text(),
        structs::<delete_records_request::DeleteRecordsPartition>(&[INT32, INT64]),
    ]),
    INT32,
];

pub(crate) const INIT_PRODUCER_ID: &[Field] = &[text().nullable(), INT32, INT64.since(3), INT16.since(3)];

pub(crate) const DESCRIBE_CONFIGS: &[Field] = &[
    structs::<describe_configs_request::DescribeConfigsResource>(&[INT8, text(), TEXTS.nullable()]),
    boolean(),
    boolean().since(3),
];

pub(crate) const CREATE_PARTITIONS: &[Field] = &[
    structs::<create_partitions_request::CreatePartitionsTopic>(&[
        text(),
        INT32,
        structs::<create_partitions_request::CreatePartitionsAssignment>(&[INT32S]).nullable(),
    ]),
    INT32,
    boolean(),
];

pub(crate) const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    INT32.since(3),
    structs::<offset_for_leader_epoch_request::OffsetForLeaderTopic>(&[
        text(),
        structs::<offset_for_leader_epoch_request::OffsetForLeaderPartition>(&[INT32, INT32, INT32]),
    ]),
];

pub(crate) const DESCRIBE_LOG_DIRS: &[Field] =
    &[structs::<describe_log_dirs_request::DescribableLogDirTopic>(&[text(), INT32S]).nullable()];

pub(crate) const OFFSET_DELETE: &[Field] = &[
    text(),
    structs::<offset_delete_request::OffsetDeleteRequestTopic>(&[
        text(),
        structs::<offset_delete_request::OffsetDeleteRequestPartition>(&[INT32]),
    ]),
];

pub(crate) const DELETE_GROUPS: &[Field] = &[TEXTS];

pub(crate) const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    structs::<incremental_alter_configs_request::AlterConfigsResource>(&[
        INT8,
        text(),
        structs::<incremental_alter_configs_request::AlterableConfig>(&[text(), INT8, text().nullable()]),
    ]),
    boolean(),
];

pub(crate) const DESCRIBE_CLUSTER: &[Field] = &[boolean(), INT8.since(1), boolean().since(2)];

pub(crate) const LIST_CONFIG_RESOURCES: &[Field] = &[primitives::<i8>(&[INT8]).since(1)];

pub(crate) const DESCRIBE_TOPIC_PARTITIONS: &[Field] = &[
    structs::<describe_topic_partitions_request::TopicRequest>(&[text()]),
    INT32,
    optional(&[text(), INT32]),
];

pub(crate) const SHARE_GROUP_HEARTBEAT: &[Field] =
    &[text(), text(), INT32, text().nullable(), TEXTS.nullable()];

pub(crate) const SHARE_GROUP_DESCRIBE: &[Field] = &[TEXTS, boolean()];

pub(crate) const DESCRIBE_SHARE_GROUP_OFFSETS: &[Field] = &[structs::<
    describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup,
>(&[
    text(),
    structs::<describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestTopic>(&[text(), INT32S])
        .nullable(),
])];

pub(crate) const ALTER_SHARE_GROUP_OFFSETS: &[Field] = &[
    text(),
    structs::<alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic>(&[
        text(),
        structs::<alter_share_group_offsets_request::AlterShareGroupOffsetsRequestPartition>(&[INT32, INT64]),
    ]),
];

pub(crate) const DELETE_SHARE_GROUP_OFFSETS: &[Field] =
    &[text(), structs::<delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic>(&[text()])];
