//! From the crates' own errors to Kafka's codes. Every map is exhaustive: a new error does not compile until someone
//! has decided what clients are told.

use coordinator::group::GroupError;
use coordinator::io::{AppendError, DeleteError, IoError};
use coordinator::reply::{FetchError, ProduceError};
use coordinator::share::ShareError;
use coordinator::share::admin::AdminError;
use protocol::ErrorCode;
use records::batch::validate::ValidationError;

use crate::catalog::CatalogError;

/// Of a refused batch (cases P08 to P13, P22).
#[must_use]
pub const fn validation(error: &ValidationError) -> ErrorCode {
    match error {
        ValidationError::Damaged(_) => ErrorCode::CorruptMessage,
        ValidationError::Invalid(_) | ValidationError::Undecodable(_) | ValidationError::Records(_) => {
            ErrorCode::InvalidRecord
        }
        ValidationError::TooLarge { .. }
        | ValidationError::TooLargePacked { .. }
        | ValidationError::TooManyRecords(_) => ErrorCode::MessageTooLarge,
        ValidationError::Timestamps(_) => ErrorCode::InvalidTimestamp,
        ValidationError::CodecNotAllowed => ErrorCode::UnsupportedCompressionType,
    }
}

/// Of a part of a produce request.
#[must_use]
pub const fn produce(error: &ProduceError) -> ErrorCode {
    match error {
        ProduceError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        ProduceError::Internal => ErrorCode::InvalidTopicException,
        ProduceError::Append(error) => append(error),
    }
}

/// Of a refused append.
#[must_use]
pub const fn append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::OutOfOrderSequence => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch,
        AppendError::UnknownProducerId => ErrorCode::UnknownProducerId,
        AppendError::TransactionOpen => ErrorCode::InvalidTxnState,
        AppendError::CoordinatorFenced => ErrorCode::TransactionCoordinatorFenced,
        AppendError::DuplicateSequence => ErrorCode::DuplicateSequenceNumber,
        AppendError::TooLarge => ErrorCode::RecordListTooLarge,
        AppendError::Io(error) => io(error),
    }
}

/// Of a failed disk, for writers.
#[must_use]
pub const fn io(error: &IoError) -> ErrorCode {
    match error {
        IoError::NotOpen => ErrorCode::UnknownTopicOrPartition,
        IoError::OutOfRange => ErrorCode::OffsetOutOfRange,
        IoError::Corrupt | IoError::Storage => ErrorCode::KafkaStorageError,
    }
}

/// Of a part of a fetch or of ListOffsets (case F10: no other code may stand in a fetch answer).
#[must_use]
pub const fn fetch(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        FetchError::OutOfRange => ErrorCode::OffsetOutOfRange,
        FetchError::FencedEpoch => ErrorCode::FencedLeaderEpoch,
        FetchError::UnknownEpoch => ErrorCode::UnknownLeaderEpoch,
        FetchError::Storage => ErrorCode::KafkaStorageError,
    }
}

/// Of DeleteRecords.
#[must_use]
pub const fn delete(error: &DeleteError) -> ErrorCode {
    match error {
        DeleteError::OutOfRange => ErrorCode::OffsetOutOfRange,
        DeleteError::Io(error) => io(error),
    }
}

/// Of a group command.
#[must_use]
pub const fn group(error: &GroupError) -> ErrorCode {
    match error {
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::Loading => ErrorCode::CoordinatorLoadInProgress,
        GroupError::NotAvailable => ErrorCode::CoordinatorNotAvailable,
        GroupError::NotCoordinator => ErrorCode::NotCoordinator,
        GroupError::UnknownMember => ErrorCode::UnknownMemberId,
        GroupError::IllegalGeneration => ErrorCode::IllegalGeneration,
        GroupError::InconsistentProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        GroupError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        GroupError::GroupMaxSize => ErrorCode::GroupMaxSizeReached,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstance => ErrorCode::FencedInstanceId,
        GroupError::FencedMemberEpoch => ErrorCode::FencedMemberEpoch,
        GroupError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::GroupNotFound => ErrorCode::GroupIdNotFound,
        GroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        GroupError::SubscribedToTopic => ErrorCode::GroupSubscribedToTopic,
        GroupError::MetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        GroupError::InvalidRequest => ErrorCode::InvalidRequest,
    }
}

/// Of a share request.
#[must_use]
pub const fn share(error: &ShareError) -> ErrorCode {
    match error {
        ShareError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        ShareError::UnknownTopicId => ErrorCode::UnknownTopicId,
        ShareError::InvalidRequest => ErrorCode::InvalidRequest,
        ShareError::InvalidRecordState => ErrorCode::InvalidRecordState,
        ShareError::SessionNotFound => ErrorCode::ShareSessionNotFound,
        ShareError::InvalidSessionEpoch => ErrorCode::InvalidShareSessionEpoch,
        ShareError::SessionLimit => ErrorCode::ShareSessionLimitReached,
        ShareError::Fenced => ErrorCode::FencedMemberEpoch,
        ShareError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        ShareError::Unavailable => ErrorCode::KafkaStorageError,
    }
}

/// Of what operators ask of share-partitions and do to them.
#[must_use]
pub const fn share_admin(error: &AdminError) -> ErrorCode {
    match error {
        AdminError::Share(error) => share(error),
        AdminError::UnknownRecord
        | AdminError::NotRedrivable
        | AdminError::NameTheKey
        | AdminError::SourceGone { .. } => ErrorCode::OffsetOutOfRange,
        AdminError::NoOrder
        | AdminError::NoKey
        | AdminError::EmptyRange
        | AdminError::RangeNotRead(_)
        | AdminError::RangeGone(_)
        | AdminError::RangeOpen(_) => ErrorCode::InvalidRequest,
        AdminError::NothingThere | AdminError::NothingToRedrive | AdminError::NothingToReplay => {
            ErrorCode::ResourceNotFound
        }
        AdminError::TooMany => ErrorCode::PolicyViolation,
        AdminError::Replaying => ErrorCode::DuplicateResource,
        AdminError::InUse | AdminError::Held => ErrorCode::NonEmptyGroup,
        AdminError::NotAtHand => ErrorCode::KafkaStorageError,
    }
}

/// Of a change of topics or settings.
#[must_use]
pub const fn catalog(error: &CatalogError) -> ErrorCode {
    match error {
        CatalogError::Name(_) => ErrorCode::InvalidTopicException,
        CatalogError::Exists(_) => ErrorCode::TopicAlreadyExists,
        CatalogError::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        CatalogError::UnknownTopicId => ErrorCode::UnknownTopicId,
        CatalogError::Partitions(_) => ErrorCode::InvalidPartitions,
        CatalogError::Policy(_) => ErrorCode::PolicyViolation,
        CatalogError::ReplicationFactor(_) => ErrorCode::InvalidReplicationFactor,
        CatalogError::Config(_) => ErrorCode::InvalidConfig,
        CatalogError::Storage(_) => ErrorCode::KafkaStorageError,
        CatalogError::Stopped => ErrorCode::NotController,
    }
}
