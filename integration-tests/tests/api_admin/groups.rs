//! Settings of groups, which are made before the groups are.

use kafka_protocol::messages::ListConfigResourcesRequest;

use super::support::{APPEND, BROKER, DEFAULT, DELETE, Fixture, GROUP, SET, SET_ON_GROUP, TOPIC};

impl Fixture {
    /// Types and names of the resources of these types.
    fn resources(&mut self, types: &[i8]) -> (i16, Vec<(i8, String)>) {
        let request = ListConfigResourcesRequest::default().with_resource_types(types.to_vec());
        let answer = self.client.call(1, &request);
        let named = answer.config_resources.iter();
        let named = named.map(|one| (one.resource_type, one.resource_name.to_string())).collect();
        (answer.error_code, named)
    }
}

#[test]
fn a07_groups_have_settings_before_they_exist() {
    let mut fixture = Fixture::start();
    let before = fixture.describe(GROUP, "g", None);
    assert_eq!(before.error_code, 0);
    assert!(before.configs.iter().all(|one| one.config_source == DEFAULT && one.value.is_some()));
    assert_eq!(fixture.alter(GROUP, "g", &[("share.auto.offset.reset", SET, Some("earliest"))]).0, 0);
    assert_eq!(fixture.value(GROUP, "g", "share.auto.offset.reset"), ("earliest".to_owned(), SET_ON_GROUP));
    let (code, message) = fixture.alter(GROUP, "g", &[("consumer.session.timeout.ms", SET, Some("1"))]);
    assert_eq!(code, 40);
    assert!(message.contains("45000") && message.contains("60000"), "{message}");
    assert_eq!(fixture.describe(GROUP, "", None).error_code, 42);
    assert_eq!(fixture.alter(GROUP, "", &[("share.auto.offset.reset", SET, Some("latest"))]).0, 42);
}

#[test]
fn s15_group_configs() {
    let mut fixture = Fixture::start();
    for (key, value, code) in [
        ("share.record.lock.duration.ms", "1000", 40),
        ("share.record.lock.duration.ms", "15000", 0),
        ("share.delivery.count.limit", "1", 40),
        ("share.delivery.count.limit", "11", 40),
        ("share.isolation.level", "x", 40),
        ("no.such.setting", "1", 40),
        ("share.auto.offset.reset", "foo", 40),
        ("share.auto.offset.reset", "by_duration:PT1H", 0),
        ("sluice.share.order", "key", 0),
        ("sluice.share.order", "keys", 40),
        ("sluice.share.assignment", "sticky", 0),
        ("sluice.share.assignment", "stuck", 40),
        ("sluice.share.poison", "park", 0),
        ("sluice.share.poison", "parked", 40),
        ("sluice.share.key.max.inflight", "0", 40),
        ("sluice.share.retry.backoff.ms", "500", 0),
        ("errors.deadletterqueue.topic.name", "__dlq", 40),
        ("errors.deadletterqueue.topic.name", "dlq", 0),
        ("errors.deadletterqueue.topic.name", "dlq.t", 0),
    ] {
        let (answered, message) = fixture.alter(GROUP, "g", &[(key, SET, Some(value))]);
        assert_eq!(answered, code, "{key}={value}: {message}");
        assert!(code == 0 || message.contains(key), "{message}");
    }
    assert_eq!(fixture.alter(GROUP, "g", &[("share.isolation.level", APPEND, Some("x"))]).0, 40);
    let names: Vec<String> =
        fixture.describe(GROUP, "g", None).configs.iter().map(|one| one.name.to_string()).collect();
    for name in [
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.delivery.count.limit",
        "share.record.lock.duration.ms",
        "share.partition.max.record.locks",
        "share.renew.acknowledge.enable",
        "share.heartbeat.interval.ms",
        "share.assignment.interval.ms",
        "share.session.timeout.ms",
        "errors.deadletterqueue.topic.name",
        "sluice.share.order",
        "sluice.share.assignment",
        "sluice.share.poison",
        "sluice.share.key.max.inflight",
        "sluice.share.window.bytes",
        "sluice.share.stuck.keys.max",
        "sluice.share.retry.backoff.ms",
        "sluice.share.retry.backoff.max.ms",
        "sluice.share.disconnect.grace.ms",
        "sluice.share.sync.ms",
    ] {
        assert!(names.iter().any(|one| one == name), "{name} is missing");
    }
}

#[test]
fn s30_groups_without_members_are_listed_by_their_settings() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.resources(&[GROUP]), (0, vec![]));
    fixture.alter(GROUP, "g", &[("share.auto.offset.reset", SET, Some("earliest"))]);
    let group = (GROUP, "g".to_owned());
    assert_eq!(fixture.resources(&[GROUP]), (0, vec![group.clone()]));
    let all = [(TOPIC, "t".to_owned()), (BROKER, "1".to_owned()), group.clone()];
    assert_eq!(fixture.resources(&[]), (0, all.to_vec()));
    assert_eq!(fixture.resources(&[TOPIC, GROUP]), (0, vec![all[0].clone(), group.clone()]));
    assert_eq!(fixture.resources(&[3]), (35, vec![]));
    fixture.kill_and_restart();
    assert_eq!(fixture.resources(&[GROUP]), (0, vec![group]));
    assert_eq!(fixture.value(GROUP, "g", "share.auto.offset.reset").0, "earliest");
    assert_eq!(fixture.alter(GROUP, "g", &[("share.auto.offset.reset", DELETE, None)]).0, 0);
    assert_eq!(fixture.resources(&[GROUP]), (0, vec![]));
}

#[test]
fn a17_group_ids_are_any_string() {
    let mut fixture = Fixture::start();
    let long = "x".repeat(300);
    let longest = "y".repeat(32_000);
    let ids = [
        "a/../b",
        "../../x",
        ".",
        "..",
        "/",
        "a\0b",
        "a\nb",
        "a:b",
        " ",
        &long,
        &longest,
        "G",
        "g",
        "\u{1b}[31m",
    ];
    for (place, id) in ids.iter().enumerate() {
        let timeout = (45_000 + place).to_string();
        assert_eq!(fixture.alter(GROUP, id, &[("share.session.timeout.ms", SET, Some(&timeout))]).0, 0);
    }
    fixture.kill_and_restart();
    for (place, id) in ids.iter().enumerate() {
        let expected = ((45_000 + place).to_string(), SET_ON_GROUP);
        assert_eq!(fixture.value(GROUP, id, "share.session.timeout.ms"), expected, "{id:?}");
    }
    let (code, mut listed) = fixture.resources(&[GROUP]);
    listed.sort();
    let mut expected: Vec<(i8, String)> = ids.iter().map(|id| (GROUP, (*id).to_owned())).collect();
    expected.sort();
    assert_eq!((code, listed), (0, expected));
    for id in ids {
        assert_eq!(fixture.alter(GROUP, id, &[("share.session.timeout.ms", DELETE, None)]).0, 0);
    }
    assert_eq!(fixture.resources(&[GROUP]), (0, vec![]));
    let log = fixture.broker.log();
    assert!(log.chars().all(|c| !c.is_control() || c == '\n'), "the log bears no control characters");
}
