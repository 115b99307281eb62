//! What is said of groups: tables for people, JSON for programs.

use std::fmt::Write as _;

use client::admin::{GroupDetail, GroupLine, GroupMember};
use protocol::StrBytes;
use protocol::messages::key_share_describe::{KeyShareDescribeResponse, KeyShareDescribedPartition};
use records::ids::Offset;
use serde_json::{Value, json};

use crate::cli::remote::table;

/// Topic, partition, committed offset, and the log's end where it is known.
pub(super) type Stand = (String, i32, i64, Option<i64>);

/// All groups.
pub(super) fn listed(groups: &[GroupLine]) -> String {
    if groups.is_empty() {
        return "there are no groups\n".to_owned();
    }
    let row = |group: &GroupLine| {
        vec![group.group.clone(), group.kind.to_lowercase(), group.state.clone(), group.protocol.clone()]
    };
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    table(0, &["GROUP", "KIND", "STATE", "PROTOCOL"], &rows)
}

/// [`listed`] for programs.
pub(super) fn listed_json(groups: &[GroupLine]) -> Value {
    groups.iter().map(line_json).collect()
}

fn line_json(group: &GroupLine) -> Value {
    json!({
        "group": group.group,
        "kind": group.kind.to_lowercase(),
        "state": group.state,
        "protocol": group.protocol,
    })
}

/// A share group.
pub(super) fn share(line: &GroupLine, detail: &GroupDetail, described: &KeyShareDescribeResponse) -> String {
    let mut text = format!(
        "{}: share group, {}, epoch {}, assignment {}, {} members\n",
        line.group,
        detail.state,
        detail.epoch,
        detail.assignor,
        detail.members.len()
    );
    text.push_str(&members(&detail.members));
    let rows: Vec<Vec<String>> = parts(described).map(|(topic, part)| share_row(topic, part)).collect();
    if rows.is_empty() {
        text.push_str("  it has read nothing so far\n");
    } else {
        let heads = ["TOPIC", "PARTITION", "START", "END", "LAG", "HELD", "WAITING", "PARKED", "NOTE"];
        text.push_str(&table(2, &heads, &rows));
    }
    text
}

fn parts(described: &KeyShareDescribeResponse) -> impl Iterator<Item = (&str, &KeyShareDescribedPartition)> {
    described
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|part| (topic.topic_name.as_str(), part)))
}

fn share_row(topic: &str, part: &KeyShareDescribedPartition) -> Vec<String> {
    let known = |offset: Offset| if offset < Offset(0) { "-".to_owned() } else { offset.to_string() };
    let note = match (&part.error_message, &part.bound) {
        (Some(message), _) => message.to_string(),
        (None, Some(bound)) => format!("kept back by {bound}"),
        (None, None) => String::new(),
    };
    vec![
        topic.to_owned(),
        part.index.to_string(),
        known(part.start_offset),
        known(part.end_offset),
        if part.lag < 0 { "-".to_owned() } else { part.lag.to_string() },
        part.in_flight.to_string(),
        part.waiting.to_string(),
        part.parked.to_string(),
        note,
    ]
}

/// [`share`] for programs.
pub(super) fn share_json(
    line: &GroupLine,
    detail: &GroupDetail,
    described: &KeyShareDescribeResponse,
) -> Value {
    let part = |(topic, part): (&str, &KeyShareDescribedPartition)| {
        let known = |offset: Offset| Some(offset.get()).filter(|offset| *offset >= 0);
        json!({
            "topic": topic,
            "partition": part.index,
            "startOffset": known(part.start_offset),
            "endOffset": known(part.end_offset),
            "lag": Some(part.lag).filter(|lag| *lag >= 0),
            "inFlight": part.in_flight,
            "waiting": part.waiting,
            "parked": part.parked,
            "bound": part.bound.as_ref().map(StrBytes::as_str),
            "error": part.error_message.as_ref().map(StrBytes::as_str),
        })
    };
    let mut told = detail_json(line, detail);
    told["epoch"] = detail.epoch.into();
    told["partitions"] = parts(described).map(part).collect();
    told
}

/// A group of the classic protocol.
pub(super) fn classic(line: &GroupLine, detail: &GroupDetail, stands: &[Stand]) -> String {
    let mut text = format!(
        "{}: {} group, {}, protocol {}, {} members\n",
        line.group,
        line.kind.to_lowercase(),
        detail.state,
        if detail.assignor.is_empty() { "-" } else { &detail.assignor },
        detail.members.len()
    );
    text.push_str(&members(&detail.members));
    if stands.is_empty() {
        text.push_str("  it has committed nothing\n");
        return text;
    }
    let row = |(topic, partition, offset, end): &Stand| {
        let end_text = end.map_or_else(|| "-".to_owned(), |end| end.to_string());
        let lag = end.map_or_else(|| "-".to_owned(), |end| (end - offset).max(0).to_string());
        vec![topic.clone(), partition.to_string(), offset.to_string(), end_text, lag]
    };
    let rows: Vec<Vec<String>> = stands.iter().map(row).collect();
    text.push_str(&table(2, &["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"], &rows));
    text
}

/// [`classic`] for programs.
pub(super) fn classic_json(line: &GroupLine, detail: &GroupDetail, stands: &[Stand]) -> Value {
    let stand = |(topic, partition, offset, end): &Stand| {
        json!({
            "topic": topic,
            "partition": partition,
            "committedOffset": offset,
            "endOffset": end,
            "lag": end.map(|end| (end - offset).max(0)),
        })
    };
    let mut told = detail_json(line, detail);
    told["partitions"] = stands.iter().map(stand).collect();
    told
}

fn members(members: &[GroupMember]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let assigned = |member: &GroupMember| {
        let mut text = String::new();
        for (topic, partitions) in &member.assignment {
            let indexes: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            let _ = write!(text, "{}{topic}:{}", if text.is_empty() { "" } else { " " }, indexes.join(","));
        }
        if text.is_empty() { "-".to_owned() } else { text }
    };
    let row = |member: &GroupMember| {
        vec![member.member.clone(), member.client_id.clone(), member.host.clone(), assigned(member)]
    };
    let rows: Vec<Vec<String>> = members.iter().map(row).collect();
    table(2, &["MEMBER", "CLIENT", "HOST", "ASSIGNMENT"], &rows)
}

fn detail_json(line: &GroupLine, detail: &GroupDetail) -> Value {
    let member = |member: &GroupMember| {
        let topic =
            |(topic, partitions): &(String, Vec<i32>)| json!({"topic": topic, "partitions": partitions});
        json!({
            "member": member.member,
            "clientId": member.client_id,
            "host": member.host,
            "assignment": member.assignment.iter().map(topic).collect::<Value>(),
        })
    };
    let mut told = line_json(line);
    told["state"] = detail.state.as_str().into();
    told["assignor"] = detail.assignor.as_str().into();
    told["members"] = detail.members.iter().map(member).collect();
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> GroupLine {
        GroupLine {
            group: "g".to_owned(),
            kind: "Share".to_owned(),
            state: "Stable".to_owned(),
            protocol: "share".to_owned(),
        }
    }

    fn detail() -> GroupDetail {
        let member = GroupMember {
            member: "m".to_owned(),
            client_id: "c".to_owned(),
            host: "/127.0.0.1".to_owned(),
            epoch: 2,
            assignment: vec![("t".to_owned(), vec![0, 1])],
        };
        GroupDetail {
            state: "Stable".to_owned(),
            assignor: "key".to_owned(),
            epoch: 3,
            members: vec![member],
        }
    }

    #[test]
    fn a_share_group_shows_members_and_partitions() {
        use protocol::messages::key_share_describe::KeyShareDescribedTopic;
        let part = KeyShareDescribedPartition {
            start_offset: Offset(7),
            end_offset: Offset(9),
            lag: 2,
            ..KeyShareDescribedPartition::default()
        };
        let unread = KeyShareDescribedPartition { index: 1, ..KeyShareDescribedPartition::default() };
        let described = KeyShareDescribeResponse {
            topics: vec![KeyShareDescribedTopic {
                topic_name: "t".into(),
                partitions: vec![part, unread],
                ..KeyShareDescribedTopic::default()
            }],
            ..KeyShareDescribeResponse::default()
        };
        let text = share(&line(), &detail(), &described);
        assert!(text.starts_with("g: share group, Stable, epoch 3, assignment key, 1 members\n"), "{text}");
        assert!(text.contains("t:0,1") && text.contains("  t      0          7      9    2"), "{text}");
        let json = share_json(&line(), &detail(), &described);
        assert_eq!((&json["kind"], &json["partitions"][0]["lag"]), (&"share".into(), &2.into()));
        assert_eq!(json["partitions"][1]["startOffset"], Value::Null);
        assert_eq!(json["members"][0]["assignment"][0]["partitions"][1], 1);
    }

    #[test]
    fn a_classic_group_shows_what_it_committed() {
        let stands = [("t".to_owned(), 0, 5, Some(9)), ("gone".to_owned(), 0, 5, None)];
        let text = classic(&line(), &GroupDetail::default(), &stands);
        assert!(text.contains("t      0          5          9    4"), "{text}");
        assert!(text.contains("gone   0          5          -    -"), "{text}");
        let json = classic_json(&line(), &GroupDetail::default(), &stands);
        assert_eq!(json["partitions"][0]["lag"], 4);
        assert!(classic(&line(), &GroupDetail::default(), &[]).contains("committed nothing"));
        assert!(listed(&[line()]).contains("g      share  Stable  share"));
    }
}
