//! The bytes of the records, against what Apache Kafka 4.4's own classes (`OffsetCommitValue`, `GroupMetadataValue`,
//! `ShareGroup*Value`) write for the same values.

use super::super::stored::{
    Change, StoredCurrent, StoredGroup, StoredMember, StoredOffset, StoredShareGroup, StoredShareMember,
    StoredTargets,
};
use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn topic() -> TopicId {
    TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])
}

fn decode(key: &str, value: &str) -> Change {
    Change::decode(&hex(key), Some(&hex(value))).unwrap().unwrap()
}

/// Kafka writes these bytes for this change, and so do we.
fn assert_written(change: &Change, key: &str, value: &str) {
    assert_eq!(&decode(key, value), change);
    let (ours, theirs) = (change.encode(), (hex(key), hex(value)));
    assert_eq!((&ours.0[..], ours.1.as_deref()), (&theirs.0[..], Some(&theirs.1[..])));
    cut_short_is_refused(key, value);
}

fn cut_short_is_refused(key: &str, value: &str) {
    let (key, value) = (hex(key), hex(value));
    for end in 0..value.len() {
        assert!(Change::decode(&key, Some(&value[..end])).is_err(), "{end} bytes of {}", value.len());
    }
    for end in 0..key.len() {
        assert!(Change::decode(&key[..end], Some(&value)).is_err());
    }
}

const OFFSET_KEY: &str = "00010001670005746f70696300000003";

fn offset(leader_epoch: i32, expire_ms: Option<i64>, topic_id: TopicId) -> Change {
    let value =
        StoredOffset { offset: 10, leader_epoch, metadata: s("x"), commit_ms: WALL_MS, expire_ms, topic_id };
    Change::Offset { group: s("g"), topic: s("topic"), partition: 3, value: Some(value) }
}

#[test]
fn committed_offsets() {
    let with_id = "0004000000000000000a0000000302780000018bcfe568000100100102030405060708090a0b0c0d0e0f10";
    assert_written(&offset(3, None, topic()), OFFSET_KEY, with_id);
    assert_written(
        &offset(3, None, TopicId::ZERO),
        OFFSET_KEY,
        "0004000000000000000a0000000302780000018bcfe5680000",
    );
    let with_expiry = "0001000000000000000a0001780000018bcfe568000000018bcfe56be8";
    assert_written(&offset(-1, Some(WALL_MS + 1_000), TopicId::ZERO), OFFSET_KEY, with_expiry);
}

#[test]
fn committed_offsets_of_old_versions() {
    let old = offset(-1, None, TopicId::ZERO);
    assert_eq!(decode(OFFSET_KEY, "0000000000000000000a0001780000018bcfe56800"), old);
    assert_eq!(decode(OFFSET_KEY, "0002000000000000000a0001780000018bcfe56800"), old);
    let v3 = "0003000000000000000a000000030001780000018bcfe56800";
    assert_eq!(decode(OFFSET_KEY, v3), offset(3, None, TopicId::ZERO));
    let v0_key = "00000001670005746f70696300000003";
    assert_eq!(decode(v0_key, v3), offset(3, None, TopicId::ZERO));
}

const GROUP_KEY: &str = "0002000167";

fn group(instance: Option<&str>, rebalance_timeout_ms: i32, state_ms: i64) -> Change {
    let member = StoredMember {
        member: s("m-1"),
        instance: instance.map(s),
        client_id: s("c"),
        client_host: s("/127.0.0.1"),
        rebalance_timeout_ms,
        session_timeout_ms: 6_000,
        subscription: bytes(&[1, 2]),
        assignment: bytes(&[3]),
    };
    let value = StoredGroup {
        protocol_type: s("consumer"),
        generation: 2,
        protocol: Some(s("rr")),
        leader: Some(s("m-1")),
        state_ms,
        members: vec![member],
    };
    Change::Group { group: s("g"), value: Some(value) }
}

#[test]
fn group_metadata() {
    let v3 = "00030008636f6e73756d6572000000020002727200036d2d310000018bcfe568000000000100036d2d310002693100\
              0163000a2f3132372e302e302e3100001b58000017700000000201020000000103";
    assert_written(&group(Some("i1"), 7_000, WALL_MS), GROUP_KEY, v3);
    let empty = StoredGroup {
        protocol_type: s(""),
        generation: 0,
        protocol: None,
        leader: None,
        state_ms: WALL_MS,
        members: Vec::new(),
    };
    let empty = Change::Group { group: s("g"), value: Some(empty) };
    assert_written(&empty, GROUP_KEY, "0003000000000000ffffffff0000018bcfe5680000000000");
}

#[test]
fn group_metadata_of_other_versions() {
    let v0 = "00000008636f6e73756d6572000000020002727200036d2d310000000100036d2d31000163000a2f3132372e302e302e31\
              000017700000000201020000000103";
    assert_eq!(decode(GROUP_KEY, v0), group(None, 6_000, -1));
    let v1 = "00010008636f6e73756d6572000000020002727200036d2d310000000100036d2d31000163000a2f3132372e302e302e31\
              00001b58000017700000000201020000000103";
    assert_eq!(decode(GROUP_KEY, v1), group(None, 7_000, -1));
    let v2 = "00020008636f6e73756d6572000000020002727200036d2d310000018bcfe568000000000100036d2d31000163000a2f31\
              32372e302e302e3100001b58000017700000000201020000000103";
    assert_eq!(decode(GROUP_KEY, v2), group(None, 7_000, WALL_MS));
    let v4 = "000409636f6e73756d657200000002037272046d2d310000018bcfe5680002046d2d3103693102630b2f3132372e302e302e\
              3100001b580000177003010202030000";
    assert_eq!(decode(GROUP_KEY, v4), group(Some("i1"), 7_000, WALL_MS));
    cut_short_is_refused(GROUP_KEY, v4);
    assert!(Change::decode(&hex(GROUP_KEY), Some(&hex("0005"))).is_err(), "a version of a later release");
}

#[test]
fn share_groups() {
    let (group, member) = (|| s("sg"), || s("m"));
    let assignment = || BTreeMap::from([(topic(), vec![0, 1])]);

    let value = StoredShareMember {
        rack: None,
        client_id: s("c"),
        client_host: s("/127.0.0.1"),
        topics: [s("a"), s("b")].into(),
    };
    let with_rack = StoredShareMember { rack: Some(s("r")), ..value.clone() };
    let key = "000a0002736700016d";
    let change = Change::ShareMember { group: group(), member: member(), value: Some(value) };
    assert_written(&change, key, "00000002630b2f3132372e302e302e31030261026200");
    let change = Change::ShareMember { group: group(), member: member(), value: Some(with_rack) };
    assert_written(&change, key, "0000027202630b2f3132372e302e302e31030261026200");

    let value = StoredShareGroup { epoch: 5, metadata_hash: 0x1122_3344_5566_7788 };
    let change = Change::ShareGroup { group: group(), value: Some(value) };
    assert_written(&change, "000b00027367", "000000000005112233445566778800");

    let value = StoredTargets { epoch: 5, computed_ms: WALL_MS };
    let change = Change::ShareTargets { group: group(), value: Some(value) };
    assert_written(&change, "000c00027367", "0000000000050100080000018bcfe56800");
    let value = StoredTargets { epoch: 4, computed_ms: 0 };
    let change = Change::ShareTargets { group: group(), value: Some(value) };
    assert_written(&change, "000c00027367", "00000000000400");

    let change = Change::ShareTarget { group: group(), member: member(), value: Some(assignment()) };
    let target = "0000020102030405060708090a0b0c0d0e0f100300000000000000010000";
    assert_written(&change, "000d0002736700016d", target);

    let value = StoredCurrent { epoch: 5, previous_epoch: 4, assignment: assignment() };
    let change = Change::ShareCurrent { group: group(), member: member(), value: Some(value) };
    let current = "0000000000050000000400020102030405060708090a0b0c0d0e0f100300000000000000010000";
    assert_written(&change, "000e0002736700016d", current);
}

#[test]
fn records_of_other_kinds_are_passed_over() {
    // ConsumerGroupMetadata (3), and a type that no release has.
    for key in ["00030001670000", "7fff"] {
        assert_eq!(Change::decode(&hex(key), Some(b"\0\0whatever")), Ok(None));
    }
}

#[test]
fn tombstones() {
    let change = Change::Offset { group: s("g"), topic: s("topic"), partition: 3, value: None };
    assert_eq!(change.encode(), (Bytes::from(hex(OFFSET_KEY)), None));
    assert_eq!(Change::decode(&hex(OFFSET_KEY), None), Ok(Some(change)));
}

#[test]
fn a_hostile_count_allocates_nothing() {
    let claims = "00030000000000000000ffff0000018bcfe568007fffffff";
    assert!(Change::decode(&hex(GROUP_KEY), Some(&hex(claims))).is_err());
    assert!(Change::decode(&hex("000d0002736700016d"), Some(&hex("0000ffffffff0f"))).is_err());
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(kind in 0i16..17, key: Vec<u8>, value: Option<Vec<u8>>) {
        let key = [&kind.to_be_bytes()[..], &key].concat();
        let _ = Change::decode(&key, value.as_deref());
    }
}
