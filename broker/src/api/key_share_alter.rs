//! KeyShareAlter (key 10091, v0): ours, see `protocol/schemas/KeyShareAlterRequest.json`.
//!
//! The operator's hand on single keys, and resets of share-partitions, with members at work or without any. Changes are
//! made one after another in the order of the request, and each is stored when it is answered; one that fails spoils no
//! other. A partition that the group has never read can only be reset, which makes a group where there is none. Rights are
//! those of the siblings: READ on group and topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::command::Command;
use coordinator::reply::ShareOffsets;
use coordinator::share::ShareError;
use coordinator::share::admin::{AlterKey, KeyAction, KeyRef, ResetOffsets, ResetTo};
use protocol::messages::key_share_alter::{
    KeyShareAction, KeyShareAlterPartition, KeyShareAlterRequest, KeyShareAlterResponse,
    KeyShareAlteredPartition, KeyShareAlteredTopic, KeyShareChange, KeyShareChangeResult, RESET_TO_END,
    RESET_TO_START,
};
use protocol::{ErrorCode, StrBytes};
use records::ids::{Offset, PartitionId, TopicId};

use super::coordination::{text, words};
use super::fixed;
use super::share_requests::make_group;
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Changes of one request, which are made one after another.
const CHANGES_MAX: usize = 1_000;
/// The offset by which a change says that it names a key.
const NO_OFFSET: Offset = Offset(-1);
/// The offset of a drop that means everything that was read ahead.
const TO_THE_END: Offset = Offset(-1);

/// Answers when every change is stored or refused.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: KeyShareAlterRequest,
) -> Result<KeyShareAlterResponse, CloseConnection> {
    let changes = request.topics.iter().flat_map(|topic| &topic.partitions).map(|part| part.changes.len());
    if changes.sum::<usize>() > CHANGES_MAX {
        return Ok(KeyShareAlterResponse {
            error_code: ErrorCode::InvalidRequest,
            error_message: Some(fixed("too many changes: make 1000 at most in one request")),
            ..KeyShareAlterResponse::default()
        });
    }
    let image = cx.broker.catalog.image();
    let group = text(&request.group_id);
    let states = states(cx, &image, &group, &request).await?;
    let mut answer = KeyShareAlterResponse::default();
    for topic in request.topics {
        let id = image.topic(&topic.topic_name).map(|topic| topic.id);
        let mut told = KeyShareAlteredTopic {
            topic_name: topic.topic_name,
            topic_id: id.unwrap_or_default(),
            ..KeyShareAlteredTopic::default()
        };
        for partition in topic.partitions {
            told.partitions
                .push(alter(cx, &group, place(&image, id, partition.index), partition, &states).await?);
        }
        answer.topics.push(told);
    }
    Ok(answer)
}

fn place(image: &Image, topic: Option<TopicId>, index: i32) -> Option<PartitionId> {
    topic.and_then(|id| image.topic_by_id(id)).and_then(|topic| topic.partition(index))
}

type States = BTreeMap<PartitionId, Result<ShareOffsets, ShareError>>;

/// Where the group has state: of what it has never read there is no key to alter.
async fn states(
    cx: &RequestContext,
    image: &Image,
    group: &Arc<str>,
    request: &KeyShareAlterRequest,
) -> Result<States, CloseConnection> {
    let named = request.topics.iter().flat_map(|topic| {
        let id = image.topic(&topic.topic_name).map(|topic| topic.id);
        topic.partitions.iter().filter_map(move |part| place(image, id, part.index))
    });
    let command =
        Command::DescribeShareOffsets { group: Arc::clone(group), partitions: Some(named.collect()) };
    match cx.call(command).await? {
        Reply::ShareOffsets(offsets) => Ok(offsets.into_iter().collect()),
        other => unreachable!("a question about share offsets is answered by {other:?}"),
    }
}

async fn alter(
    cx: &RequestContext,
    group: &Arc<str>,
    id: Option<PartitionId>,
    asked: KeyShareAlterPartition,
    states: &States,
) -> Result<KeyShareAlteredPartition, CloseConnection> {
    let mut told = KeyShareAlteredPartition { index: asked.index, ..KeyShareAlteredPartition::default() };
    let Some(id) = id else {
        told.error_code = ErrorCode::UnknownTopicOrPartition;
        told.error_message = Some(fixed("there is no such partition"));
        return Ok(told);
    };
    if let Some(Err(error)) = states.get(&id) {
        (told.error_code, told.error_message) = (error_map::share(error), words(error));
        return Ok(told);
    }
    let mut is_known = matches!(states.get(&id), Some(Ok(ShareOffsets { start: Some(_), .. })));
    for change in asked.changes {
        let result = match intent(&change) {
            Ok(Intent::Reset(to)) => reset(cx, group, id, to, is_known).await?,
            Ok(Intent::Key(..)) if !is_known => refused(
                ErrorCode::ResourceNotFound,
                "the group has never read this partition: there is no key to alter, only a reset can be made",
            ),
            Ok(Intent::Key(key, action)) => {
                change_key(cx, AlterKey { group: Arc::clone(group), partition: id, key, action }).await?
            }
            Err(message) => refused(ErrorCode::InvalidRequest, message),
        };
        is_known |= !result.error_code.is_error();
        told.results.push(result);
    }
    Ok(told)
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Key(KeyRef, KeyAction),
    Reset(ResetTo),
}

fn intent(change: &KeyShareChange) -> Result<Intent, &'static str> {
    let Some(action) = KeyShareAction::from_code(change.action) else {
        return Err("unknown action: use 1 (park) to 8 (reset to a time)");
    };
    let action = match action {
        KeyShareAction::Park => KeyAction::Park,
        KeyShareAction::Resume => KeyAction::Resume,
        KeyShareAction::Skip => KeyAction::Skip,
        KeyShareAction::Drop => {
            KeyAction::Drop(Some(if change.to_offset == TO_THE_END { Offset::MAX } else { change.to_offset }))
        }
        KeyShareAction::Redrive => KeyAction::Redrive,
        KeyShareAction::Replay => {
            if change.from_offset < Offset(0) || change.to_offset < change.from_offset {
                return Err("a replay names its first and its last offset");
            }
            KeyAction::Replay(change.from_offset, change.to_offset)
        }
        KeyShareAction::ResetToOffset => {
            return match change.offset {
                RESET_TO_END => Ok(Intent::Reset(ResetTo::Latest)),
                RESET_TO_START => Ok(Intent::Reset(ResetTo::Earliest)),
                offset if offset >= Offset(0) => Ok(Intent::Reset(ResetTo::Offset(offset))),
                _ => Err("a reset names an offset, -1 for the end of the log, or -2 for its start"),
            };
        }
        KeyShareAction::ResetToTime => {
            return match change.timestamp_ms {
                time if time >= 0 => Ok(Intent::Reset(ResetTo::Time(time))),
                _ => Err("a reset to a time names it in milliseconds since 1970"),
            };
        }
    };
    let key = match change.offset {
        NO_OFFSET => KeyRef::Key(change.key_hash),
        offset if offset >= Offset(0) => KeyRef::Offset(offset),
        _ => return Err("a change names the hash of a key (offset -1), or an offset of it"),
    };
    Ok(Intent::Key(key, action))
}

async fn change_key(cx: &RequestContext, request: AlterKey) -> Result<KeyShareChangeResult, CloseConnection> {
    match cx.call(Command::AlterShareKey(request)).await? {
        Reply::KeyAltered(Ok(altered)) => Ok(KeyShareChangeResult {
            has_key: i8::from(altered.key.is_some()),
            key_hash: altered.key.unwrap_or_default(),
            records: i64::try_from(altered.records).unwrap_or(i64::MAX),
            ..KeyShareChangeResult::default()
        }),
        Reply::KeyAltered(Err(error)) => Ok(KeyShareChangeResult {
            error_code: error_map::share_admin(&error),
            error_message: words(&error),
            ..KeyShareChangeResult::default()
        }),
        other => unreachable!("a change of a key is answered by {other:?}"),
    }
}

async fn reset(
    cx: &RequestContext,
    group: &Arc<str>,
    id: PartitionId,
    to: ResetTo,
    is_known: bool,
) -> Result<KeyShareChangeResult, CloseConnection> {
    // State is made only where it can be seen and deleted, as AlterShareGroupOffsets does.
    if let Err(error) = make_group(cx, group).await?
        && !is_known
    {
        return Ok(KeyShareChangeResult {
            error_code: error_map::group(&error),
            error_message: words(&error),
            ..KeyShareChangeResult::default()
        });
    }
    let request = ResetOffsets { group: Arc::clone(group), parts: vec![(id, to)] };
    match cx.call(Command::ResetShareOffsets(request)).await? {
        Reply::ShareOffsetsReset(reset) => Ok(match reset.into_iter().next() {
            Some((_, Ok(start))) => {
                KeyShareChangeResult { start_offset: start, ..KeyShareChangeResult::default() }
            }
            Some((_, Err(error))) => KeyShareChangeResult {
                error_code: error_map::share_admin(&error),
                error_message: words(&error),
                ..KeyShareChangeResult::default()
            },
            None => unreachable!("a reset has one result a part"),
        }),
        other => unreachable!("a reset is answered by {other:?}"),
    }
}

fn refused(error_code: ErrorCode, message: &'static str) -> KeyShareChangeResult {
    KeyShareChangeResult {
        error_code,
        error_message: Some(StrBytes::from(message)),
        ..KeyShareChangeResult::default()
    }
}

#[cfg(test)]
mod tests {
    use records::ids::KeyHash;

    use super::*;

    fn change(action: KeyShareAction) -> KeyShareChange {
        KeyShareChange { action: action.code(), key_hash: KeyHash(7), ..KeyShareChange::default() }
    }

    #[test]
    fn keys_go_by_their_hash_or_by_an_offset() {
        let by_hash = intent(&change(KeyShareAction::Park));
        assert_eq!(by_hash, Ok(Intent::Key(KeyRef::Key(KeyHash(7)), KeyAction::Park)));
        let by_offset = intent(&KeyShareChange { offset: Offset(4), ..change(KeyShareAction::Skip) });
        assert_eq!(by_offset, Ok(Intent::Key(KeyRef::Offset(Offset(4)), KeyAction::Skip)));
        assert!(intent(&KeyShareChange { offset: Offset(-2), ..change(KeyShareAction::Skip) }).is_err());
        assert!(intent(&KeyShareChange { action: 9, ..KeyShareChange::default() }).is_err());
    }

    #[test]
    fn resets_name_an_offset_an_end_or_a_time() {
        let at = |offset| intent(&KeyShareChange { offset, ..change(KeyShareAction::ResetToOffset) });
        assert_eq!(at(Offset(5)), Ok(Intent::Reset(ResetTo::Offset(Offset(5)))));
        assert_eq!(at(RESET_TO_END), Ok(Intent::Reset(ResetTo::Latest)));
        assert_eq!(at(RESET_TO_START), Ok(Intent::Reset(ResetTo::Earliest)));
        assert!(at(Offset(-3)).is_err());
        let time = KeyShareChange { timestamp_ms: 9, ..change(KeyShareAction::ResetToTime) };
        assert_eq!(intent(&time), Ok(Intent::Reset(ResetTo::Time(9))));
        assert!(intent(&change(KeyShareAction::ResetToTime)).is_err());
    }

    #[test]
    fn a_drop_goes_up_to_an_offset_or_to_the_end_of_what_was_read() {
        let drop = |to_offset| intent(&KeyShareChange { to_offset, ..change(KeyShareAction::Drop) });
        let key = KeyRef::Key(KeyHash(7));
        assert_eq!(drop(Offset(-1)), Ok(Intent::Key(key, KeyAction::Drop(Some(Offset::MAX)))));
        assert_eq!(drop(Offset(3)), Ok(Intent::Key(key, KeyAction::Drop(Some(Offset(3))))));
    }

    #[test]
    fn a_replay_needs_its_range() {
        let replay = |from_offset, to_offset| {
            intent(&KeyShareChange { from_offset, to_offset, ..change(KeyShareAction::Replay) })
        };
        assert!(replay(Offset(0), Offset(9)).is_ok());
        assert!(replay(Offset(5), Offset(4)).is_err());
        assert!(replay(Offset(-1), Offset(4)).is_err());
    }
}
