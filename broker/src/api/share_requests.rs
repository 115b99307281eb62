//! What the handlers of share and key-share requests share.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::command::{AckRange, Command, DeliveryNumber};
use coordinator::group::GroupError;
use coordinator::share::ShareError;
use coordinator::share::admin::ResetOffsets;
use protocol::messages::key_share_fetch::{AcknowledgeResult, Acknowledgement, RecalledRange};
use protocol::messages::share_fetch::AcknowledgementBatch;
use protocol::{ErrorCode, StrBytes};
use records::ids::{PartitionId, TopicId};

use super::coordination::{ensure_offsets_topic, text, words};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// The session epoch by which a session is opened.
pub(super) const OPENS: i32 = 0;

/// What the names begin with by which the broker tells of standalone readers.
const READERS: &str = "standalone/";
/// What a member of such a name is told.
pub(super) const BROKERS_NAME: &str =
    "only the broker uses member ids that begin with standalone/: use a random UUID";

/// Why a request is refused before it reaches the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The code of the whole request.
    pub(super) error: ErrorCode,
    /// What to do about it.
    pub(super) message: Cow<'static, str>,
}

impl Refusal {
    pub(super) const fn invalid(message: &'static str) -> Self {
        Self { error: ErrorCode::InvalidRequest, message: Cow::Borrowed(message) }
    }

    pub(super) fn words(&self) -> Option<StrBytes> {
        Some(StrBytes::from(self.message.clone().into_owned()))
    }
}

impl From<GroupError> for Refusal {
    fn from(error: GroupError) -> Self {
        Self { error: error_map::group(&error), message: Cow::Owned(error.to_string()) }
    }
}

/// A group id under which state is made is a group, which is listed, described, reset and deleted, also where nobody
/// joins it: where there is none, one without members is made.
///
/// # Errors
/// INVALID_GROUP_ID and GROUP_ID_NOT_FOUND (a group of another kind) where there cannot be a share group of this id;
/// others where it cannot be made now.
pub(super) async fn make_group(
    cx: &RequestContext,
    group: &Arc<str>,
) -> Result<Result<(), GroupError>, CloseConnection> {
    // Where it cannot be made, the coordinator refuses.
    let _ = ensure_offsets_topic(cx).await;
    let nothing = ResetOffsets { group: Arc::clone(group), parts: Vec::new() };
    match cx.call(Command::AlterShareOffsets(nothing)).await? {
        // One that is in use is there.
        Reply::ShareOffsetsReset(_) | Reply::ShareOffsetsRefused(GroupError::NonEmptyGroup) => Ok(Ok(())),
        Reply::ShareOffsetsRefused(error) => Ok(Err(error)),
        other => unreachable!("a change of share offsets is answered by {other:?}"),
    }
}

/// Makes the group of a session that is opened. Where that cannot be done now whoever fetches is served all the same, and
/// the next session makes it; so is one who reads by the id of a group of another kind, as in Kafka, whose ShareFetch
/// does not ask for groups.
///
/// # Errors
/// INVALID_GROUP_ID: no group can have this id.
pub(super) async fn opens_group(
    cx: &RequestContext,
    group: &Arc<str>,
) -> Result<Result<(), Refusal>, CloseConnection> {
    Ok(match make_group(cx, group).await? {
        Err(GroupError::InvalidGroupId) => Err(GroupError::InvalidGroupId.into()),
        _ => Ok(()),
    })
}

/// Whether a member cannot have this id, since it would look like a standalone reader.
pub(super) fn is_the_brokers(member: &str) -> bool {
    member.trim_start_matches('\0').starts_with(READERS)
}

/// Group and member, both of which a share request must name; the group may be any string.
pub(super) fn speaker(
    group: Option<&StrBytes>,
    member: Option<&StrBytes>,
) -> Result<(Arc<str>, Arc<str>), Refusal> {
    match (group, member) {
        (_, Some(member)) if is_the_brokers(member.as_str()) => Err(Refusal::invalid(BROKERS_NAME)),
        (Some(group), Some(member)) if !member.is_empty() => Ok((text(group), text(member))),
        _ => Err(Refusal::invalid("a share request names its group and its member")),
    }
}

/// Group and member of a key-share request; a reader without membership has no name.
pub(super) fn member_or_reader(
    group: &StrBytes,
    member: Option<&StrBytes>,
) -> Result<(Arc<str>, Arc<str>), Refusal> {
    match member {
        _ if group.is_empty() => Err(GroupError::InvalidGroupId.into()),
        None => Ok((text(group), Arc::from(""))),
        member => speaker(Some(group), member),
    }
}

/// The partitions of a request, each of which may stand in it once.
pub(super) fn distinct<T>(
    parts: impl IntoIterator<Item = (TopicId, i32, T)>,
) -> Result<Vec<(PartitionId, T)>, Refusal> {
    let mut seen = HashSet::new();
    let check = |(topic, index, rest)| {
        let id = PartitionId { topic, index };
        if seen.insert(id) {
            Ok((id, rest))
        } else {
            Err(Refusal {
                error: ErrorCode::InvalidRequest,
                message: Cow::Owned(format!("partition {index} of a topic is named twice: name it once")),
            })
        }
    };
    parts.into_iter().map(check).collect()
}

/// Acknowledgements as they came; the share-partition checks them.
pub(super) fn acknowledged(batches: &[AcknowledgementBatch]) -> Vec<AckRange> {
    let range = |batch: &AcknowledgementBatch| AckRange {
        first: batch.first_offset.get(),
        last: batch.last_offset.get(),
        types: types(&batch.types),
        delivery: None,
        delay_ms: None,
        reason: None,
    };
    batches.iter().map(range).collect()
}

fn types(bytes: &Bytes) -> Vec<i8> {
    bytes.iter().map(|byte| i8::from_be_bytes([*byte])).collect()
}

/// The gap type, which the key-share API does not have (its answers hold no gaps).
const GAP: i8 = 0;
/// A type that nobody has: the share-partition refuses its range, and no other.
const NO_TYPE: i8 = -1;

/// Acknowledgements with delivery numbers.
pub(super) fn numbered(acknowledgements: Vec<Acknowledgement>) -> (Vec<AckRange>, Vec<AcknowledgeResult>) {
    let split = |ack: Acknowledgement| {
        let echo = AcknowledgeResult {
            first_offset: ack.first_offset,
            last_offset: ack.last_offset,
            delivery_number: ack.delivery_number,
            error_code: ErrorCode::None,
        };
        let range = AckRange {
            first: ack.first_offset.get(),
            last: ack.last_offset.get(),
            types: vec![if ack.acknowledge_type == GAP { NO_TYPE } else { ack.acknowledge_type }],
            delivery: Some(DeliveryNumber(u64::from_be_bytes(ack.delivery_number.to_be_bytes()))),
            delay_ms: (ack.delay_ms >= 0).then_some(i64::from(ack.delay_ms)),
            reason: ack.reason.as_ref().map(text),
        };
        (range, echo)
    };
    acknowledgements.into_iter().map(split).unzip()
}

/// What became of each acknowledgement of a partition: its own outcome, or that of all.
pub(super) fn results(
    image: &Image,
    part: PartitionId,
    mut echoes: Vec<AcknowledgeResult>,
    outcomes: &[Result<(), ShareError>],
    all: Option<ShareError>,
) -> Vec<AcknowledgeResult> {
    for (place, echo) in echoes.iter_mut().enumerate() {
        let error = match outcomes.get(place) {
            Some(outcome) => outcome.err(),
            None => all,
        };
        (echo.error_code, _) = told(ack_error(image, part, error));
    }
    echoes
}

/// Code and words of an error that may not be there.
pub(super) fn told(error: Option<ShareError>) -> (ErrorCode, Option<StrBytes>) {
    match error {
        None => (ErrorCode::None, None),
        Some(error) => (error_map::share(&error), words(&error)),
    }
}

/// The error of fetching a partition: the shard knows partitions, the catalogue knows whether it is the topic that is
/// missing.
pub(super) fn fetch_error(image: &Image, part: PartitionId, error: Option<ShareError>) -> Option<ShareError> {
    match error {
        Some(ShareError::UnknownPartition) if image.topic_by_id(part.topic).is_none() => {
            Some(ShareError::UnknownTopicId)
        }
        error => error,
    }
}

/// The error of acknowledging: of a partition that exists and that the group never read, the member holds nothing.
pub(super) fn ack_error(image: &Image, part: PartitionId, error: Option<ShareError>) -> Option<ShareError> {
    let topic = image.topic_by_id(part.topic);
    match (error, topic) {
        (Some(ShareError::UnknownPartition), None) => Some(ShareError::UnknownTopicId),
        (Some(ShareError::UnknownPartition), Some(topic)) if topic.partition(part.index).is_some() => {
            Some(ShareError::InvalidRecordState)
        }
        (error, _) => error,
    }
}

/// A delivery number as the wire has it.
pub(super) const fn number(delivery: DeliveryNumber) -> i64 {
    i64::from_be_bytes(delivery.0.to_be_bytes())
}

/// What the member must drop unworked.
pub(super) fn recalled(ranges: &[coordinator::reply::RecalledRange]) -> Vec<RecalledRange> {
    let range = |range: &coordinator::reply::RecalledRange| RecalledRange {
        first_offset: range.first,
        last_offset: range.last,
        delivery_number: number(range.delivery),
    };
    ranges.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use records::ids::Offset;

    use super::*;

    fn ack(first: i64, kind: i8, delivery: i64) -> Acknowledgement {
        Acknowledgement {
            first_offset: Offset(first),
            last_offset: Offset(first + 1),
            delivery_number: delivery,
            acknowledge_type: kind,
            ..Acknowledgement::default()
        }
    }

    #[test]
    fn a_share_request_names_group_and_member() {
        let [group, member, empty] = ["g", "m", ""].map(StrBytes::from);
        assert!(speaker(Some(&group), Some(&member)).is_ok());
        assert!(speaker(Some(&empty), Some(&member)).is_ok(), "any string is a group");
        for (group, member) in [(None, Some(&member)), (Some(&group), None), (Some(&group), Some(&empty))] {
            assert_eq!(speaker(group, member).unwrap_err().error, ErrorCode::InvalidRequest);
        }
        for member in [None, Some(&member)] {
            assert_eq!(member_or_reader(&empty, member).unwrap_err().error, ErrorCode::InvalidGroupId);
            assert!(member_or_reader(&group, member).is_ok());
        }
    }

    #[test]
    fn no_member_has_the_name_of_a_reader() {
        let group = StrBytes::from("g");
        for name in ["standalone/", "standalone/1/1", "\0standalone/1/1"].map(StrBytes::from) {
            assert_eq!(speaker(Some(&group), Some(&name)).unwrap_err().error, ErrorCode::InvalidRequest);
            assert!(member_or_reader(&group, Some(&name)).is_err());
        }
        assert!(speaker(Some(&group), Some(&StrBytes::from("standalone"))).is_ok());
    }

    #[test]
    fn a_partition_stands_once() {
        let topic = TopicId([1; 16]);
        assert_eq!(distinct([(topic, 0, ()), (topic, 1, ()), (TopicId::ZERO, 0, ())]).unwrap().len(), 3);
        assert!(distinct([(topic, 0, ()), (topic, 1, ()), (topic, 0, ())]).is_err());
    }

    #[test]
    fn types_are_signed_bytes() {
        let batch = AcknowledgementBatch {
            first_offset: Offset(3),
            last_offset: Offset(5),
            types: Bytes::from_static(&[1, 0, 0xff]),
        };
        let ranges = acknowledged(&[batch]);
        assert_eq!((ranges[0].first, ranges[0].last), (3, 5));
        assert_eq!(ranges[0].types, [1, 0, -1]);
    }

    #[test]
    fn delivery_numbers_come_back_as_they_were() {
        for wire in [0, 1, -1, i64::MIN, i64::MAX] {
            let (ranges, echoes) = numbered(vec![ack(7, 1, wire)]);
            assert_eq!(number(ranges[0].delivery.unwrap()), wire);
            assert_eq!(echoes[0].delivery_number, wire);
        }
    }

    #[test]
    fn a_gap_is_no_type_here_and_no_delay_is_the_groups() {
        let (ranges, _) = numbered(vec![ack(7, 0, 1), Acknowledgement { delay_ms: 0, ..ack(9, 2, 1) }]);
        assert_eq!(ranges[0].types, [-1]);
        assert_eq!(ranges[0].delay_ms, None);
        assert_eq!(ranges[1].delay_ms, Some(0));
    }

    #[test]
    fn each_acknowledgement_has_its_outcome() {
        let (_, echoes) = numbered(vec![ack(0, 1, 1), ack(2, 1, 1)]);
        let codes = |outcomes: &[_], all| {
            let results = results(&Image::default(), PartitionId::default(), echoes.clone(), outcomes, all);
            results.iter().map(|result| result.error_code).collect::<Vec<_>>()
        };
        let outcomes = [Ok(()), Err(ShareError::InvalidRecordState)];
        assert_eq!(codes(&outcomes, None), [ErrorCode::None, ErrorCode::InvalidRecordState]);
        assert_eq!(codes(&[], Some(ShareError::UnknownPartition)), [ErrorCode::UnknownTopicId; 2]);
    }
}
