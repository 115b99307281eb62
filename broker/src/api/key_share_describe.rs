//! KeyShareDescribe (key 10077, v0): ours, see `protocol/schemas/KeyShareDescribeRequest.json`.
//!
//! Where share-partitions stand, which keys are worst off, and why one key or offset is not being delivered. What the
//! group has no state of is −1 without an error, as in DescribeShareGroupOffsets, and nothing is made by asking. Rights
//! are those of the siblings: DESCRIBE on group and topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::command::Command;
use coordinator::reply::ShareOffsets;
use coordinator::share::admin::{
    DeadLetterTrouble, DescribeKeys, KeyLine, KeyRef, QUESTIONS_MAX, ShareKeys, StopReason, StoppedKey,
    TOP_MAX, Why,
};
use coordinator::share::{Bound, ShareError, ShareOrder};
use protocol::messages::key_share_describe::{
    KeyShareAnswer, KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeResponse,
    KeyShareDescribedKey, KeyShareDescribedPartition, KeyShareDescribedTopic, KeyShareQuestion, KeyShareSpan,
    KeyShareStoppedKey, Reason, WORST_BY_AGE, WORST_BY_BACKLOG, WORST_BY_DELIVERIES,
};
use protocol::{ErrorCode, StrBytes};
use records::ids::{KeyHash, Offset, PartitionId, TopicId};

use super::coordination::{call_each, text, wire, words};
use super::fixed;
use crate::catalog::Image;
use crate::config::group::share_config;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Partitions that one request may name, or that are told where it names none: each is read from the disk.
const PARTITIONS_MAX: usize = 10_000;

/// One partition that is asked about, at its place in the answer.
struct Asked {
    topic: usize,
    index: i32,
    id: Option<PartitionId>,
    questions: Vec<KeyRef>,
}

/// Answers for every partition that is asked for, in order.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: KeyShareDescribeRequest,
) -> Result<KeyShareDescribeResponse, CloseConnection> {
    let image = cx.broker.catalog.image();
    let group = text(&request.group_id);
    let (mut answer, asked, found) = match request.topics {
        Some(topics) => {
            let mut answer = KeyShareDescribeResponse::default();
            let mut asked = Vec::new();
            for topic in topics {
                let id = image.topic(&topic.topic_name).map(|topic| topic.id);
                let place = answer.topics.len();
                answer.topics.push(titled(topic.topic_name, id));
                for partition in topic.partitions {
                    asked.push(question(&image, id, place, partition));
                }
            }
            let ids = asked.iter().filter_map(|asked| asked.id).collect();
            let found = if asked.len() > PARTITIONS_MAX {
                BTreeMap::new()
            } else {
                states(cx, &group, Some(ids)).await?
            };
            (answer, asked, found)
        }
        None => {
            let found = states(cx, &group, None).await?;
            let (answer, asked) = all(&image, &found);
            (answer, asked, found)
        }
    };
    if asked.len() > PARTITIONS_MAX {
        return Ok(KeyShareDescribeResponse {
            error_code: ErrorCode::InvalidRequest,
            error_message: Some(fixed("too many partitions: name 10000 at most")),
            ..KeyShareDescribeResponse::default()
        });
    }
    let top = u32::try_from(request.worst_max.max(0)).unwrap_or(0).min(TOP_MAX);
    let terms = terms(cx, &image, &group);
    let known = |asked: &&Asked| asked.questions.len() <= QUESTIONS_MAX && has_state(asked.id, &found);
    let commands: Vec<&Asked> = asked.iter().filter(known).collect();
    let command = |asked: &&Asked| {
        Command::DescribeShareKeys(DescribeKeys {
            group: Arc::clone(&group),
            partition: asked.id.unwrap_or_default(),
            top,
            questions: asked.questions.clone(),
        })
    };
    let mut replies = call_each(cx, &commands, command).await?.into_iter();
    for asked in &asked {
        let described = if known(&asked) {
            replies.next().map(|reply| described(asked, &terms, reply))
        } else {
            Some(stateless(asked, terms.order, &found))
        };
        answer.topics[asked.topic].partitions.extend(described);
    }
    Ok(answer)
}

fn titled(name: StrBytes, id: Option<TopicId>) -> KeyShareDescribedTopic {
    KeyShareDescribedTopic {
        topic_name: name,
        topic_id: id.unwrap_or_default(),
        ..KeyShareDescribedTopic::default()
    }
}

fn question(image: &Image, id: Option<TopicId>, topic: usize, asked: KeyShareDescribePartition) -> Asked {
    let partition = id.and_then(|id| image.topic_by_id(id)).and_then(|topic| topic.partition(asked.index));
    let key = |question: KeyShareQuestion| match question.offset {
        Offset(-1) => KeyRef::Key(question.key_hash),
        offset => KeyRef::Offset(offset),
    };
    Asked {
        topic,
        index: asked.index,
        id: partition,
        questions: asked.questions.into_iter().map(key).collect(),
    }
}

type Found = BTreeMap<PartitionId, Result<ShareOffsets, ShareError>>;

/// Which partitions have state: asking for more of one would make some.
async fn states(
    cx: &RequestContext,
    group: &Arc<str>,
    partitions: Option<Vec<PartitionId>>,
) -> Result<Found, CloseConnection> {
    let command = Command::DescribeShareOffsets { group: Arc::clone(group), partitions };
    match cx.call(command).await? {
        Reply::ShareOffsets(offsets) => Ok(offsets.into_iter().collect()),
        other => unreachable!("a question about share offsets is answered by {other:?}"),
    }
}

fn has_state(id: Option<PartitionId>, found: &Found) -> bool {
    let state = id.and_then(|id| found.get(&id));
    matches!(state, Some(Ok(ShareOffsets { start: Some(_), .. })))
}

/// Every partition with state, by topic name.
fn all(image: &Image, found: &Found) -> (KeyShareDescribeResponse, Vec<Asked>) {
    let mut by_name: BTreeMap<&str, (TopicId, Vec<i32>)> = BTreeMap::new();
    for id in found.keys() {
        if let Some(topic) = image.topic_by_id(id.topic) {
            by_name.entry(&topic.name).or_insert((id.topic, Vec::new())).1.push(id.index);
        }
    }
    let mut answer = KeyShareDescribeResponse::default();
    let mut asked = Vec::new();
    for (name, (topic, indexes)) in by_name {
        let place = answer.topics.len();
        answer.topics.push(titled(wire(name), Some(topic)));
        asked.extend(indexes.into_iter().map(|index| Asked {
            topic: place,
            index,
            id: Some(PartitionId { topic, index }),
            questions: Vec::new(),
        }));
    }
    (answer, asked)
}

/// What the group's settings say of all its share-partitions.
struct Terms {
    /// As it is told.
    order: i8,
    /// Why its dead-letter topic may not have the name that it has, where that is the trouble.
    bad_name: StrBytes,
}

fn terms(cx: &RequestContext, image: &Image, group: &str) -> Terms {
    let nothing = crate::config::Overrides::new();
    let own = image.group(group).map_or(&nothing, |own| own);
    let config = share_config(&cx.broker.config, own);
    let name = config.dead_letter_topic.as_deref().unwrap_or_default();
    let prefix = cx.broker.config.text("errors.deadletterqueue.topic.name.prefix").unwrap_or_default();
    Terms {
        order: match config.order {
            ShareOrder::None => 0,
            ShareOrder::Key => 1,
        },
        bad_name: wire(&format!(
            "no dead-letter topic may have the name {name}: set errors.deadletterqueue.topic.name on the group to one that \
             begins with {prefix:?} (the broker's errors.deadletterqueue.topic.name.prefix), and not with __"
        )),
    }
}

/// Of a partition that has no state, or that cannot be described.
fn stateless(asked: &Asked, order: i8, found: &Found) -> KeyShareDescribedPartition {
    let mut told =
        KeyShareDescribedPartition { index: asked.index, order, ..KeyShareDescribedPartition::default() };
    if asked.questions.len() > QUESTIONS_MAX {
        told.error_code = ErrorCode::InvalidRequest;
        told.error_message = Some(fixed("too many questions: ask 100 at most about one partition"));
    } else if let Some(Err(error)) = asked.id.and_then(|id| found.get(&id)) {
        (told.error_code, told.error_message) = (error_map::share(error), words(error));
    } else if asked.id.is_none() {
        told.error_code = ErrorCode::UnknownTopicOrPartition;
        told.error_message = Some(fixed("there is no such partition"));
    } else {
        let answer = || KeyShareAnswer { reason: Reason::NotScanned.code(), ..KeyShareAnswer::default() };
        told.answers = asked.questions.iter().map(|_| answer()).collect();
    }
    told
}

fn described(asked: &Asked, terms: &Terms, reply: Reply) -> KeyShareDescribedPartition {
    let (index, order) = (asked.index, terms.order);
    let mut told = KeyShareDescribedPartition { index, order, ..KeyShareDescribedPartition::default() };
    match reply {
        Reply::ShareKeys(Ok(keys)) => fill(&mut told, terms, *keys),
        Reply::ShareKeys(Err(error)) => {
            (told.error_code, told.error_message) = (error_map::share_admin(&error), words(&error));
        }
        other => unreachable!("a description of keys is answered by {other:?}"),
    }
    told
}

fn fill(told: &mut KeyShareDescribedPartition, terms: &Terms, keys: ShareKeys) {
    (told.start_offset, told.scan_offset, told.end_offset) = (keys.start, keys.scan, keys.end);
    told.lag = keys.lag;
    told.in_flight = count(keys.in_flight);
    told.leased_keys = count(keys.leased_keys);
    told.ready = count(keys.ready);
    told.waiting = count(keys.waiting);
    told.parked = count(keys.parked);
    told.following = count(keys.following);
    told.dead_letters = count(keys.dead_letters);
    told.spilled = count(keys.spilled);
    told.bound = keys.bound.map(|bound| fixed(bound_name(bound)));
    told.dead_letter_trouble = keys.dead_letter_trouble.map(|trouble| trouble_words(terms, trouble));
    told.oldest_ms = keys.oldest_ms.unwrap_or(-1);
    if let Some(warning) = keys.retention {
        (told.retention_offset, told.retention_ms) = (warning.offset, warning.at_ms);
    }
    told.complete = i8::from(keys.complete);
    told.keys = worst(&keys);
    let span = |span: &coordinator::share::admin::KeySpan| KeyShareSpan {
        key_hash: span.key,
        first_offset: span.first,
        records: count(span.records),
    };
    told.spans = keys.spans.iter().map(span).collect();
    told.stopped = keys.stopped.iter().map(stopped).collect();
    told.answers = keys.answers.into_iter().map(|answer| why(terms, answer)).collect();
}

/// The three lists as one: each key once, with the measures by which it is among the worst; oldest first.
fn worst(keys: &ShareKeys) -> Vec<KeyShareDescribedKey> {
    let lists = [
        (WORST_BY_AGE, &keys.by_age),
        (WORST_BY_BACKLOG, &keys.by_backlog),
        (WORST_BY_DELIVERIES, &keys.by_deliveries),
    ];
    let mut by_key: BTreeMap<KeyHash, (KeyLine, i8)> = BTreeMap::new();
    for (measure, list) in lists {
        for line in list {
            by_key.entry(line.key).or_insert((*line, 0)).1 |= measure;
        }
    }
    let mut worst: Vec<_> = by_key.into_values().collect();
    worst.sort_by_key(|(line, _)| line.offset);
    let key = |(line, measures): (KeyLine, i8)| KeyShareDescribedKey {
        key_hash: line.key,
        first_offset: line.offset,
        backlog: count(line.backlog),
        deliveries: i32::from(line.deliveries),
        measures,
    };
    worst.into_iter().map(key).collect()
}

fn stopped(key: &StoppedKey) -> KeyShareStoppedKey {
    KeyShareStoppedKey {
        has_key: i8::from(key.key.is_some()),
        key_hash: key.key.unwrap_or_default(),
        offset: key.offset,
        deliveries: i32::from(key.deliveries),
        since_ms: key.since_ms,
        follows: i8::from(key.follows),
        reason: match key.reason {
            StopReason::Rejected => 1,
            StopReason::LimitReached => 2,
            StopReason::Corrupt => 3,
            StopReason::Follows(_) => 4,
            StopReason::Operator => 5,
        },
    }
}

fn why(terms: &Terms, why: Why) -> KeyShareAnswer {
    let plain = |reason: Reason| KeyShareAnswer { reason: reason.code(), ..KeyShareAnswer::default() };
    let until = |reason, member: &Arc<str>, time_ms| KeyShareAnswer {
        // Standalone readers have names that no member can have: what tells them apart is a zero byte.
        member: Some(wire(member.trim_start_matches('\0'))),
        time_ms,
        ..plain(reason)
    };
    match why {
        Why::Ready => plain(Reason::Ready),
        Why::Done => plain(Reason::Done),
        Why::UnknownKey => plain(Reason::UnknownKey),
        Why::NotScanned => plain(Reason::NotScanned),
        Why::NotScannedBound(bound) => {
            KeyShareAnswer { detail: Some(fixed(bound_name(bound))), ..plain(Reason::NotScanned) }
        }
        Why::Answering { member } => until(Reason::Unwritten, &member, -1),
        Why::Held { member, until_ms } => until(Reason::Held, &member, until_ms),
        Why::HeldByLost { member, until_ms } => until(Reason::HeldByGone, &member, until_ms),
        Why::Recalled { member, until_ms } => until(Reason::Recalled, &member, until_ms),
        Why::Behind { offset } => KeyShareAnswer { behind_offset: offset, ..plain(Reason::Behind) },
        Why::BehindReplay => plain(Reason::BehindReplay),
        Why::Retry { until_ms } => KeyShareAnswer { time_ms: until_ms, ..plain(Reason::Waiting) },
        Why::DeadLetter { since_ms, trouble } => KeyShareAnswer {
            time_ms: since_ms,
            detail: trouble.map(|trouble| trouble_words(terms, trouble)),
            ..plain(Reason::DeadLetter)
        },
        Why::Parked { since_ms, offset } => {
            KeyShareAnswer { time_ms: since_ms, behind_offset: offset, ..plain(Reason::Parked) }
        }
        Why::Bound(bound) => {
            KeyShareAnswer { detail: Some(fixed(bound_name(bound))), ..plain(Reason::Bound) }
        }
    }
}

/// The group setting whose bound it is.
const fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::WindowBytes => "sluice.share.window.bytes",
        Bound::StuckKeys => "sluice.share.stuck.keys.max",
        Bound::RecordLocks | Bound::Span => "share.partition.max.record.locks",
    }
}

/// What an operator does about it.
fn trouble_words(terms: &Terms, trouble: DeadLetterTrouble) -> StrBytes {
    fixed(match trouble {
        DeadLetterTrouble::BadName => return terms.bad_name.clone(),
        DeadLetterTrouble::NotNamed => {
            "no topic is named: set errors.deadletterqueue.topic.name on the group"
        }
        DeadLetterTrouble::Missing => "the topic does not exist: create it",
        DeadLetterTrouble::NotEnabled => {
            "the topic is not enabled: set errors.deadletterqueue.group.enable=true on it"
        }
        DeadLetterTrouble::Compacted => {
            "the topic is compacted and takes no records without a key: set cleanup.policy=delete on it"
        }
        DeadLetterTrouble::ReadFailed => "the record cannot be read now: it is tried again",
        DeadLetterTrouble::TooLarge => "the copy is larger than the topic takes: raise its max.message.bytes",
        DeadLetterTrouble::WriteFailed => "the copy could not be written: it is tried again",
    })
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: u64, offset: i64, backlog: u64) -> KeyLine {
        KeyLine { key: KeyHash(key), offset: Offset(offset), backlog, deliveries: 2 }
    }

    #[test]
    fn a_key_that_is_bad_in_several_ways_stands_once() {
        let keys = ShareKeys {
            by_age: vec![line(7, 3, 1), line(8, 4, 9)],
            by_backlog: vec![line(8, 4, 9), line(9, 1, 5)],
            by_deliveries: vec![line(8, 4, 9)],
            ..ShareKeys::default()
        };
        let told: Vec<_> =
            worst(&keys).iter().map(|key| (key.first_offset.get(), key.key_hash.0, key.measures)).collect();
        assert_eq!(told, [(1, 9, 2), (3, 7, 1), (4, 8, 7)]);
    }

    #[test]
    fn k33_every_reason_has_its_own_number_and_what_it_speaks_of() {
        let member: Arc<str> = Arc::from("m");
        let terms = Terms { order: 1, bad_name: fixed("x may not be the name") };
        let m = || Arc::clone(&member);
        let all = [
            (Why::Ready, 0),
            (Why::Done, 1),
            (Why::UnknownKey, 2),
            (Why::NotScanned, 3),
            (Why::NotScannedBound(Bound::WindowBytes), 3),
            (Why::Answering { member: m() }, 4),
            (Why::Held { member: m(), until_ms: 9 }, 5),
            (Why::Recalled { member: m(), until_ms: 9 }, 6),
            (Why::HeldByLost { member: m(), until_ms: 9 }, 7),
            (Why::Behind { offset: Offset(4) }, 8),
            (Why::BehindReplay, 9),
            (Why::Retry { until_ms: 9 }, 10),
            (Why::DeadLetter { since_ms: 9, trouble: Some(DeadLetterTrouble::Missing) }, 11),
            (Why::Parked { since_ms: 9, offset: Offset(4) }, 12),
            (Why::Bound(Bound::RecordLocks), 13),
        ];
        for (told, reason) in all {
            let of_member = matches!(reason, 4..=7);
            let answer = why(&terms, told.clone());
            assert_eq!(answer.reason, reason, "{told:?}");
            assert_eq!(answer.member.is_some(), of_member, "{told:?}");
            assert_eq!(answer.time_ms == 9, matches!(reason, 5..=7 | 10..=12), "{told:?}");
            assert_eq!(answer.behind_offset == Offset(4), matches!(reason, 8 | 12), "{told:?}");
        }
        assert_eq!(
            why(&terms, Why::NotScannedBound(Bound::Span)).detail.unwrap_or_default().as_str(),
            "share.partition.max.record.locks"
        );
        let bad_name = Why::DeadLetter { since_ms: 9, trouble: Some(DeadLetterTrouble::BadName) };
        assert_eq!(why(&terms, bad_name).detail.unwrap_or_default().as_str(), "x may not be the name");
    }
}
