//! What is said of keys: sentences and tables for people, JSON for programs.

use std::fmt::Write as _;

use protocol::StrBytes;
use protocol::messages::key_share_alter::KeyShareAction;
use protocol::messages::key_share_describe::{
    KeyShareAnswer, KeyShareDescribedKey, KeyShareDescribedPartition, KeyShareStoppedKey, Reason,
    STOP_REASONS, WORST_BY_AGE, WORST_BY_BACKLOG, WORST_BY_DELIVERIES,
};
use records::ids::{KeyHash, Offset};
use serde_json::{Value, json};

use super::target::{Found, Which};
use crate::cli::remote::table;
use crate::cli::times;

/// [`KeyShareStoppedKey::reason`]: by hand.
const BY_OPERATOR: i8 = 5;

/// A hash as it is shown and taken everywhere.
pub(super) fn hash(hash: KeyHash) -> String {
    format!("{:016x}", hash.0)
}

/// That the group has read nothing, which most often is a wrong name.
pub(super) fn never_read(group: &str, topic: Option<&str>) -> String {
    let of = topic.map(|topic| format!(" of {topic}")).unwrap_or_default();
    format!("share group {group} has read nothing{of} so far: is the name right?")
}

/// What became of a change; `ahead`: nothing of the key is open.
pub(super) fn altered(action: Option<KeyShareAction>, records: i64, ahead: bool) -> String {
    match (action, records) {
        (Some(KeyShareAction::Replay), found) => {
            format!("its replay has begun; records found so far: {found}")
        }
        (_, 0) => "nothing to do, it was so already".to_owned(),
        (Some(KeyShareAction::Park), _) if ahead => {
            "parked ahead: no open record of this key was read here so far; what comes of it will not go out; resume it if \
             the name is wrong"
                .to_owned()
        }
        (Some(KeyShareAction::Park), _) => "parked".to_owned(),
        (Some(KeyShareAction::Resume), _) => "resumed".to_owned(),
        (_, 1) => "done, 1 record".to_owned(),
        (_, records) => format!("done, {records} records"),
    }
}

/// All partitions with their worst keys.
pub(super) fn listed(partitions: &[(String, KeyShareDescribedPartition)]) -> String {
    let mut text = String::new();
    for (topic, partition) in partitions {
        text.push_str(&stands(topic, partition));
        text.push_str(&worst(&partition.keys));
        text.push_str(&stopped(&partition.stopped));
        let more = partition.parked + partition.following - count(partition.stopped.len());
        if more > 0 && !partition.stopped.is_empty() {
            let _ = writeln!(text, "    and {more} more: --worst N shows up to 100");
        }
        if !partition.spans.is_empty() {
            let rows: Vec<Vec<String>> = partition
                .spans
                .iter()
                .map(|span| {
                    vec![hash(span.key_hash), span.first_offset.to_string(), span.records.to_string()]
                })
                .collect();
            text.push_str("  kept as spans:\n");
            text.push_str(&table(4, &["KEY HASH", "FROM", "RECORDS, ABOUT"], &rows));
        }
    }
    text
}

fn stands(topic: &str, partition: &KeyShareDescribedPartition) -> String {
    let place = format!("{topic}-{}", partition.index);
    if partition.error_code.is_error() {
        let message = partition.error_message.clone().unwrap_or_default();
        return format!("{place}: {message}\n");
    }
    if partition.start_offset < Offset(0) {
        return format!("{place}: never read by this group\n");
    }
    let order = if partition.order == 0 { "no order" } else { "every key in order" };
    let mut text = format!(
        "{place}: {order}, start {}, read to {}, end {}, {} not done\n",
        partition.start_offset, partition.scan_offset, partition.end_offset, partition.lag
    );
    let _ = writeln!(
        text,
        "  {} with members (of {} keys), {} ready, {} waiting, {} parked, {} following, {} dead letters, {} in spans",
        partition.in_flight,
        partition.leased_keys,
        partition.ready,
        partition.waiting,
        partition.parked,
        partition.following,
        partition.dead_letters,
        partition.spilled,
    );
    if let Some(bound) = &partition.bound {
        let _ = writeln!(text, "  further records are kept back by {bound}");
    }
    if let Some(trouble) = &partition.dead_letter_trouble {
        let _ = writeln!(text, "  dead letters wait: {trouble}");
    }
    if partition.oldest_ms >= 0 {
        let _ = writeln!(text, "  the oldest open record is of {}", times::shown(partition.oldest_ms));
    }
    if partition.retention_offset >= Offset(0) {
        let _ = writeln!(
            text,
            "  RETENTION takes open records from offset {} on at {}",
            partition.retention_offset,
            times::shown(partition.retention_ms)
        );
    }
    if partition.complete == 0 {
        let _ = writeln!(text, "  (the keys below are those of the oldest part of what was read)");
    }
    text
}

fn worst(keys: &[KeyShareDescribedKey]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let row = |key: &KeyShareDescribedKey| {
        vec![
            hash(key.key_hash),
            key.first_offset.to_string(),
            key.backlog.to_string(),
            key.deliveries.to_string(),
            measures(key.measures).join(", "),
        ]
    };
    let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
    table(2, &["KEY HASH", "FIRST", "BACKLOG", "FAILED", "WORST BY"], &rows)
}

fn measures(sum: i8) -> Vec<&'static str> {
    let all = [(WORST_BY_AGE, "age"), (WORST_BY_BACKLOG, "backlog"), (WORST_BY_DELIVERIES, "deliveries")];
    all.into_iter().filter(|(measure, _)| sum & measure != 0).map(|(_, word)| word).collect()
}

fn stopped(keys: &[KeyShareStoppedKey]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let row = |key: &KeyShareStoppedKey| {
        vec![
            if key.has_key == 0 { "(no key)".to_owned() } else { hash(key.key_hash) },
            key.offset.to_string(),
            if key.follows == 0 { "parked" } else { "to the dead letters" }.to_owned(),
            times::shown(key.since_ms),
            stop_reason(key.reason).to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
    let mut text =
        format!("  stopped keys:\n{}", table(4, &["KEY HASH", "AT", "STATE", "SINCE", "WHY"], &rows));
    if keys.iter().any(|key| key.has_key != 0 && key.reason == BY_OPERATOR) {
        text.push_str(
            "    (AT of a key parked by hand: its next record of that moment; where it had none, how far the log was read)\n",
        );
    }
    text
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn stop_reason(code: i8) -> &'static str {
    let index = usize::try_from(code).unwrap_or(0).wrapping_sub(1);
    STOP_REASONS.get(index).copied().unwrap_or("for a reason that this command does not know")
}

/// All that is known of one key, partition by partition.
pub(super) fn shown(which: &Which, found: &[Found]) -> String {
    let mut text = String::new();
    for found in found {
        text.push_str(&stands(&which.topic, &found.partition));
        let key = key_of(which, found);
        if let Some(hash) = key {
            let of_key: Vec<KeyShareDescribedKey> =
                found.partition.keys.iter().filter(|key| key.key_hash == hash).cloned().collect();
            text.push_str(&worst(&of_key));
            let of_key: Vec<KeyShareStoppedKey> = found
                .partition
                .stopped
                .iter()
                .filter(|key| key.has_key != 0 && key.key_hash == hash)
                .cloned()
                .collect();
            text.push_str(&stopped(&of_key));
            for span in found.partition.spans.iter().filter(|span| span.key_hash == hash) {
                let _ = writeln!(
                    text,
                    "  about {} records from offset {} on are kept as a span",
                    span.records, span.first_offset
                );
            }
        }
        let of = match (which.offset, key) {
            (Some(_), Some(key)) => format!(" of key {}", hash(key)),
            _ => String::new(),
        };
        let _ = writeln!(text, "  {}{of}: {}", target(which), sentence_of(which, found));
    }
    text
}

/// The key that is meant, where the command line or what is told of the partition says it.
fn key_of(which: &Which, found: &Found) -> Option<KeyHash> {
    let Some(offset) = which.offset.map(Offset) else { return which.hash() };
    let told = &found.partition;
    let behind = Some(found.answer.behind_offset).filter(|offset| offset.get() >= 0);
    let keys = told.keys.iter().map(|key| (key.first_offset, key.key_hash));
    let spans = told.spans.iter().map(|span| (span.first_offset, span.key_hash));
    let stopped = told.stopped.iter().filter(|key| key.has_key != 0).map(|key| (key.offset, key.key_hash));
    let mut all = keys.chain(spans).chain(stopped);
    // An operator may have parked a key at the offset of another one.
    let is_its = |key: &(Offset, KeyHash)| key.0 == offset && !by_operator_at(told, *key);
    let of_record = all.clone().find(is_its);
    of_record
        .or_else(|| all.find(|key| Some(key.0) == behind && !by_operator_at(told, *key)))
        .map(|key| key.1)
}

fn by_operator_at(told: &KeyShareDescribedPartition, (offset, hash): (Offset, KeyHash)) -> bool {
    let is_first = told.keys.iter().any(|key| key.key_hash == hash && key.first_offset == offset);
    let is_parked = |key: &&KeyShareStoppedKey| key.key_hash == hash && key.offset == offset;
    !is_first && told.stopped.iter().find(is_parked).is_some_and(|key| key.reason == BY_OPERATOR)
}

/// One line a partition: why is it not being delivered?
pub(super) fn why(which: &Which, found: &[Found]) -> String {
    let mut text = String::new();
    // A key is in one partition most often: what all others do not know of it would only hide that.
    let told = |found: &&Found| {
        let reason = Reason::from_code(found.answer.reason);
        which.offset.is_some() || !matches!(reason, Some(Reason::UnknownKey | Reason::NotScanned))
    };
    let some = found.iter().any(|found| told(&found));
    for found in found.iter().filter(|found| !some || told(found)) {
        let _ = writeln!(
            text,
            "{}-{}: {}: {}",
            which.topic,
            found.partition.index,
            target(which),
            sentence_of(which, found)
        );
    }
    text
}

fn target(which: &Which) -> String {
    match (&which.key, which.offset) {
        (_, Some(offset)) => format!("offset {offset}"),
        (Some(key), None) => format!("key {key:?} ({})", hash(which.hash().unwrap_or_default())),
        (None, None) => format!("key {}", hash(which.hash().unwrap_or_default())),
    }
}

/// The answer in words, with what else is told of the key.
fn sentence_of(which: &Which, found: &Found) -> String {
    let Found { partition, answer } = found;
    let of_key = |key: &&KeyShareStoppedKey| match which.hash() {
        Some(hash) => key.has_key != 0 && key.key_hash == hash,
        None => key.offset == answer.behind_offset && key.since_ms == answer.time_ms,
    };
    let stop = partition.stopped.iter().find(of_key);
    match (Reason::from_code(answer.reason), stop) {
        (Some(Reason::UnknownKey), _) if partition.order == 0 => {
            "the group keeps no order by key: ask about a record by its offset".to_owned()
        }
        (Some(Reason::NotScanned), _) if which.offset.is_none() && answer.detail.is_some() => {
            let bound = answer.detail.clone().unwrap_or_default();
            format!("no open record of this key was read so far, and reading has stopped at {bound}")
        }
        (Some(Reason::DeadLetter), Some(stop)) if stop.follows != 0 && which.offset.is_none() => {
            let trouble = answer.detail.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            format!(
                "its key follows offset {} to the dead-letter topic since {}{trouble}",
                stop.offset,
                times::shown(stop.since_ms)
            )
        }
        (Some(Reason::Parked), Some(stop)) if stop.has_key != 0 && stop.reason == BY_OPERATOR => {
            format!("its key is parked since {}, by hand", times::shown(stop.since_ms))
        }
        _ => sentence(answer),
    }
}

/// The answer in words.
fn sentence(answer: &KeyShareAnswer) -> String {
    let member = || answer.member.clone().unwrap_or_default();
    let time = || times::shown(answer.time_ms);
    let detail = || answer.detail.clone().unwrap_or_default();
    match Reason::from_code(answer.reason) {
        Some(Reason::Ready) => "nothing holds it back: it goes to the next member that asks".to_owned(),
        Some(Reason::Done) => "it is done: accepted, archived, or gone from the log".to_owned(),
        Some(Reason::UnknownKey) => "no open record of this key was read so far".to_owned(),
        Some(Reason::NotScanned) => match &answer.detail {
            Some(bound) => format!("it was not read yet, and reading has stopped at {bound}"),
            None => "it was not read yet".to_owned(),
        },
        Some(Reason::Unwritten) => format!("it is in an answer to {} that is not written yet", member()),
        Some(Reason::Held) => format!("{} holds it until {}", member(), time()),
        Some(Reason::Recalled) => {
            format!("it was recalled from {}, which has it until {}", member(), time())
        }
        Some(Reason::HeldByGone) => {
            format!("{} holds it until {}, but its connections are gone", member(), time())
        }
        Some(Reason::Behind) => format!("it is behind offset {} of its key", answer.behind_offset),
        Some(Reason::BehindReplay) => "it is behind a replay of its key".to_owned(),
        Some(Reason::Waiting) => format!("it waits for a retry until {}", time()),
        Some(Reason::DeadLetter) => match &answer.detail {
            Some(trouble) => format!("it waits for the dead-letter topic since {}: {trouble}", time()),
            None => "it is being copied to the dead-letter topic".to_owned(),
        },
        Some(Reason::Parked) => {
            format!("its key is parked since {} by offset {}", time(), answer.behind_offset)
        }
        Some(Reason::Bound) => format!("it is ready, but {} keeps it back", detail()),
        None => format!("for a reason that this command does not know ({})", answer.reason),
    }
}

/// [`listed`] for programs.
pub(super) fn listed_json(partitions: &[(String, KeyShareDescribedPartition)]) -> Value {
    partitions.iter().map(|(topic, partition)| partition_json(topic, partition)).collect()
}

/// [`shown`] for programs.
pub(super) fn shown_json(which: &Which, found: &[Found]) -> Value {
    let one = |found: &Found| {
        let mut told = partition_json(&which.topic, &found.partition);
        told["answer"] = answer_json(which, found);
        told
    };
    found.iter().map(one).collect()
}

/// [`why`] for programs: every partition.
pub(super) fn why_json(which: &Which, found: &[Found]) -> Value {
    let one =
        |found: &Found| json!({"partition": found.partition.index, "answer": answer_json(which, found)});
    found.iter().map(one).collect()
}

fn known(offset: Offset) -> Option<i64> {
    Some(offset.get()).filter(|offset| *offset >= 0)
}

fn time(ms: i64) -> Option<i64> {
    Some(ms).filter(|ms| *ms >= 0)
}

fn answer_json(which: &Which, found: &Found) -> Value {
    let answer = &found.answer;
    let reason = match Reason::from_code(answer.reason) {
        Some(reason) => format!("{reason:?}"),
        None => answer.reason.to_string(),
    };
    json!({
        "reason": reason,
        "words": sentence_of(which, found),
        "member": answer.member.as_ref().map(StrBytes::as_str),
        "timeMs": time(answer.time_ms),
        "behindOffset": known(answer.behind_offset),
        "detail": answer.detail.as_ref().map(StrBytes::as_str),
    })
}

fn partition_json(topic: &str, partition: &KeyShareDescribedPartition) -> Value {
    let key = |key: &KeyShareDescribedKey| {
        json!({
            "keyHash": hash(key.key_hash),
            "firstOffset": key.first_offset.get(),
            "backlog": key.backlog,
            "deliveries": key.deliveries,
            "worstBy": measures(key.measures),
        })
    };
    let stopped = |key: &KeyShareStoppedKey| {
        json!({
            "keyHash": (key.has_key != 0).then(|| hash(key.key_hash)),
            "offset": key.offset.get(),
            "deliveries": key.deliveries,
            "sinceMs": key.since_ms,
            "follows": key.follows != 0,
            "reason": stop_reason(key.reason),
        })
    };
    let spans = partition.spans.iter().map(|span| {
        json!({"keyHash": hash(span.key_hash), "firstOffset": span.first_offset.get(), "records": span.records})
    });
    json!({
        "topic": topic,
        "partition": partition.index,
        "error": partition.error_code.is_error().then(|| format!("{:?}", partition.error_code)),
        "errorMessage": partition.error_message.as_ref().map(StrBytes::as_str),
        "order": if partition.order == 0 { "none" } else { "key" },
        "startOffset": known(partition.start_offset),
        "scanOffset": known(partition.scan_offset),
        "endOffset": known(partition.end_offset),
        "lag": time(partition.lag),
        "inFlight": partition.in_flight,
        "leasedKeys": partition.leased_keys,
        "ready": partition.ready,
        "waiting": partition.waiting,
        "parked": partition.parked,
        "following": partition.following,
        "deadLetters": partition.dead_letters,
        "spilled": partition.spilled,
        "bound": partition.bound.as_ref().map(StrBytes::as_str),
        "deadLetterTrouble": partition.dead_letter_trouble.as_ref().map(StrBytes::as_str),
        "oldestMs": time(partition.oldest_ms),
        "retentionOffset": known(partition.retention_offset),
        "retentionMs": time(partition.retention_ms),
        "complete": partition.complete != 0,
        "keys": partition.keys.iter().map(key).collect::<Value>(),
        "spans": spans.collect::<Value>(),
        "stopped": partition.stopped.iter().map(stopped).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_sentence() {
        let mut sentences: Vec<String> = (0..14)
            .map(|reason| {
                sentence(&KeyShareAnswer {
                    reason,
                    member: Some("worker-7".into()),
                    time_ms: 0,
                    behind_offset: Offset(4),
                    detail: Some("the bound".into()),
                })
            })
            .collect();
        assert!(sentences[5].contains("worker-7") && sentences[5].contains("1970-01-01T00:00:00"));
        assert!(sentences[8].contains("offset 4"));
        assert!(sentences[13].contains("the bound"));
        sentences.dedup();
        assert_eq!(sentences.len(), 14);
        let unknown = sentence(&KeyShareAnswer { reason: 99, ..KeyShareAnswer::default() });
        assert!(unknown.contains("99"));
    }

    fn which(key: Option<u64>, offset: Option<i64>) -> Which {
        let (group, topic) = ("g".to_owned(), "t".to_owned());
        Which { group, topic, partition: None, key: None, key_hash: key, offset }
    }

    fn found(order: i8, reason: Reason, detail: Option<&str>, stopped: Vec<KeyShareStoppedKey>) -> Found {
        let partition = KeyShareDescribedPartition {
            order,
            start_offset: Offset(0),
            stopped,
            ..KeyShareDescribedPartition::default()
        };
        let detail = detail.map(Into::into);
        Found { partition, answer: KeyShareAnswer { reason: reason.code(), detail, ..Default::default() } }
    }

    #[test]
    fn more_is_said_of_a_key_than_its_reason() {
        let key = which(Some(7), None);
        let said = |found: &Found| sentence_of(&key, found);
        let unknown = "no open record of this key was read so far";
        assert_eq!(said(&found(1, Reason::UnknownKey, None, vec![])), unknown);
        assert!(said(&found(0, Reason::UnknownKey, None, vec![])).starts_with("the group keeps no order"));
        let bound = found(1, Reason::NotScanned, Some("the.bound"), vec![]);
        assert_eq!(said(&bound), format!("{unknown}, and reading has stopped at the.bound"));
        assert!(sentence_of(&which(None, Some(3)), &bound).starts_with("it was not read yet, and"));

        let stop = |reason, follows| KeyShareStoppedKey {
            has_key: 1,
            key_hash: KeyHash(7),
            offset: Offset(4),
            since_ms: 0,
            follows,
            reason,
            ..KeyShareStoppedKey::default()
        };
        let follows = said(&found(1, Reason::DeadLetter, Some("no room"), vec![stop(1, 1)]));
        assert!(
            follows.starts_with("its key follows offset 4 to the dead-letter topic since 1970"),
            "{follows}"
        );
        assert!(follows.ends_with(": no room"), "{follows}");
        let parked = said(&found(1, Reason::Parked, None, vec![stop(BY_OPERATOR, 0)]));
        assert!(parked.ends_with(", by hand"), "{parked}");
        assert!(said(&found(1, Reason::Parked, None, vec![stop(2, 0)])).contains("by offset"));
    }

    #[test]
    fn the_key_of_an_offset_is_told_where_a_list_has_it() {
        let mut at = found(1, Reason::Behind, None, vec![]);
        at.answer.behind_offset = Offset(3);
        assert_eq!(key_of(&which(None, Some(5)), &at), None);
        at.partition.keys = vec![KeyShareDescribedKey {
            key_hash: KeyHash(8),
            first_offset: Offset(3),
            ..Default::default()
        }];
        assert_eq!(key_of(&which(None, Some(5)), &at), Some(KeyHash(8)), "what it is behind is of its key");
        assert_eq!(key_of(&which(None, Some(3)), &at), Some(KeyHash(8)));
        let ahead = |hash| KeyShareStoppedKey {
            has_key: 1,
            key_hash: KeyHash(hash),
            offset: Offset(5),
            reason: BY_OPERATOR,
            ..KeyShareStoppedKey::default()
        };
        at.partition.stopped = vec![ahead(9)];
        assert_eq!(
            key_of(&which(None, Some(5)), &at),
            Some(KeyHash(8)),
            "9 was parked before anything of it came"
        );
        assert_eq!(key_of(&which(Some(9), None), &at), Some(KeyHash(9)));
    }

    #[test]
    fn stopped_keys_that_are_left_out_are_counted() {
        let partition = KeyShareDescribedPartition {
            start_offset: Offset(0),
            parked: 3,
            following: 1,
            stopped: vec![KeyShareStoppedKey { has_key: 1, reason: 2, ..KeyShareStoppedKey::default() }],
            ..KeyShareDescribedPartition::default()
        };
        let text = listed(&[("t".to_owned(), partition)]);
        assert!(text.contains("    and 3 more: --worst N") && !text.contains("AT of a key"), "{text}");
    }

    #[test]
    fn a_list_shows_where_a_partition_stands_and_its_worst_keys() {
        let partition = KeyShareDescribedPartition {
            order: 1,
            start_offset: Offset(5),
            scan_offset: Offset(20),
            end_offset: Offset(30),
            lag: 25,
            bound: Some("sluice.share.window.bytes".into()),
            complete: 1,
            keys: vec![KeyShareDescribedKey {
                key_hash: KeyHash(0xe6c6_32b6_1e96_4e1f),
                first_offset: Offset(5),
                backlog: 9,
                deliveries: 3,
                measures: 5,
            }],
            stopped: vec![KeyShareStoppedKey { has_key: 1, reason: 2, ..KeyShareStoppedKey::default() }],
            ..KeyShareDescribedPartition::default()
        };
        let text = listed(&[("orders".to_owned(), partition.clone())]);
        for part in [
            "orders-0: every key in order, start 5, read to 20, end 30, 25 not done",
            "kept back by sluice.share.window.bytes",
            "e6c632b61e964e1f  5      9        3       age, deliveries",
            "the delivery limit was reached",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let json = listed_json(&[("orders".to_owned(), partition)]);
        assert_eq!(json[0]["keys"][0]["keyHash"], "e6c632b61e964e1f");
        assert_eq!((&json[0]["lag"], &json[0]["oldestMs"]), (&25.into(), &Value::Null));
    }
}
