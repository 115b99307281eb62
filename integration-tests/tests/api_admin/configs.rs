//! DescribeConfigs and IncrementalAlterConfigs of topics and brokers.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use super::support::{
    APPEND, BROKER, DEFAULT, DELETE, Fixture, SET, SET_ON_TOPIC, SUBTRACT, TOPIC, resource, text,
};

#[test]
fn a04_bad_config_values_change_nothing() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    for (key, value) in [
        ("compression.type", "foo"),
        ("cleanup.policy", "compactt"),
        ("retention.ms", "abc"),
        ("no.such.setting", "1"),
    ] {
        let changes = [("flush.ms", SET, Some("5")), (key, SET, Some(value))];
        let (code, message) = fixture.alter(TOPIC, "t", &changes);
        assert_eq!(code, 40, "{key}");
        assert!(message.contains(key), "{message}");
        assert_eq!(fixture.value(TOPIC, "t", "flush.ms").1, DEFAULT, "all or nothing");
    }
}

#[test]
fn a05_list_operations() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let policy = "cleanup.policy";
    for (operation, value, after) in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
    ] {
        assert_eq!(fixture.alter(TOPIC, "t", &[(policy, operation, Some(value))]).0, 0);
        assert_eq!(fixture.value(TOPIC, "t", policy), (after.to_owned(), SET_ON_TOPIC));
    }
    assert_eq!(fixture.alter(TOPIC, "t", &[("retention.ms", APPEND, Some("5"))]).0, 40);
    assert_eq!(fixture.alter(TOPIC, "t", &[(policy, APPEND, None)]).0, 42);
    assert_eq!(fixture.alter(TOPIC, "t", &[(policy, SET, None)]).0, 42);
    let twice = [("retention.ms", SET, Some("5")), ("retention.ms", DELETE, None)];
    assert_eq!(fixture.alter(TOPIC, "t", &twice).0, 42);
    assert_eq!(fixture.alter(TOPIC, "t", &[("retention.ms", 9, Some("5"))]).0, 42);
    assert_eq!(fixture.alter_as(TOPIC, "t", &[("retention.ms", SET, Some("5"))], true).0, 0);
    assert_eq!(fixture.value(TOPIC, "t", "retention.ms").1, DEFAULT);
    assert_eq!(fixture.alter(TOPIC, "nope", &[("retention.ms", SET, Some("5"))]).0, 3);
    assert_eq!(fixture.alter(TOPIC, "a b", &[("retention.ms", SET, Some("5"))]).0, 17);
    assert_eq!(fixture.alter(TOPIC, "", &[("retention.ms", SET, Some("5"))]).0, 42);
    assert_eq!(fixture.alter(TOPIC, "t", &[(policy, DELETE, None)]).0, 0);
    assert_eq!(fixture.value(TOPIC, "t", policy), ("delete".to_owned(), DEFAULT));
}

#[test]
fn resources_that_stand_twice_or_do_not_exist_are_refused() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let one = || resource(TOPIC, "t", &[("retention.ms", SET, Some("5"))]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![one(), one()]);
    let responses = fixture.client.call(1, &request).responses;
    assert_eq!(responses.iter().map(|one| one.error_code).collect::<Vec<_>>(), [42, 42]);
    for kind in [0, 3, 7, 8, 16, -1] {
        assert_eq!(fixture.alter(kind, "1", &[("a", SET, Some("5"))]).0, 42, "type {kind}");
        assert_eq!(fixture.describe(kind, "1", None).error_code, 42, "type {kind}");
    }
}

#[test]
fn a06_describe_configs() {
    let mut fixture = Fixture::start();
    fixture.topic_with("t", 1, &[("segment.bytes", "2000000")]);
    assert_eq!(fixture.describe(TOPIC, "t", None).configs.len(), 37);
    assert_eq!(fixture.describe(TOPIC, "t", Some(&[])).configs.len(), 37);
    assert_eq!(fixture.describe(TOPIC, "t", Some(&["retention.ms"])).configs.len(), 1);
    let unknown = fixture.describe(TOPIC, "t", Some(&["zz"]));
    assert_eq!((unknown.error_code, unknown.configs.len()), (0, 0));
    assert_eq!(fixture.describe(TOPIC, "nope", None).error_code, 3);
    assert_eq!(fixture.describe(TOPIC, "a b", None).error_code, 17);
    for setting in fixture.describe(TOPIC, "t", None).configs {
        assert!(setting.documentation.is_some_and(|text| !text.is_empty()), "{:?}", setting.name);
        assert!((1..=7).contains(&setting.config_type), "{:?}", setting.name);
        assert!(!setting.read_only && !setting.is_sensitive);
    }
    let set = fixture.setting(TOPIC, "t", "segment.bytes");
    let synonyms: Vec<(String, String, i8)> = set
        .synonyms
        .iter()
        .map(|one| (one.name.to_string(), one.value.as_deref().unwrap_or_default().to_owned(), one.source))
        .collect();
    let expected = [("segment.bytes", "2000000", SET_ON_TOPIC), ("log.segment.bytes", "1073741824", DEFAULT)];
    assert_eq!(synonyms, expected.map(|(name, value, source)| (name.to_owned(), value.to_owned(), source)));
    assert_eq!(set.config_type, 3);
}

#[test]
fn a06_what_is_not_asked_for_is_not_told() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    for version in 1..=4 {
        let described = fixture.client.call(version, &request).results.remove(0);
        assert_eq!(described.configs.len(), 37);
        for one in described.configs {
            let told = one.documentation.is_some_and(|text| !text.is_empty());
            assert!(one.synonyms.is_empty() && !told, "{} in v{version}", &*one.name);
        }
    }
}

#[test]
fn a15_cleanup_policy_to_the_letter() {
    let mut fixture = Fixture::start();
    fixture.topic_with("t", 1, &[("cleanup.policy", "compact")]);
    assert_eq!(fixture.value(TOPIC, "t", "cleanup.policy"), ("compact".to_owned(), SET_ON_TOPIC));
}

#[test]
fn settings_of_topics_survive_a_crash() {
    let mut fixture = Fixture::start();
    fixture.topic_with("t", 1, &[("retention.ms", "5000"), ("flush.ms", "7")]);
    fixture.alter(TOPIC, "t", &[("retention.ms", SET, Some("6000")), ("flush.ms", DELETE, None)]);
    fixture.kill_and_restart();
    assert_eq!(fixture.value(TOPIC, "t", "retention.ms"), ("6000".to_owned(), SET_ON_TOPIC));
    assert_eq!(fixture.value(TOPIC, "t", "flush.ms").1, DEFAULT);
}

#[test]
fn the_broker_shows_its_settings_and_keeps_them() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("server.properties");
    std::fs::write(&file, "num.partitions=3\nlog.roll.hours=7\n").expect("it can be written");
    let mut fixture = Fixture::start_with(&["--config", file.to_str().expect("a plain path")]);
    let all = fixture.describe(BROKER, "1", None);
    assert_eq!(all.error_code, 0);
    assert!(all.configs.iter().all(|one| one.read_only && one.documentation.is_some()));
    let partitions = fixture.setting(BROKER, "1", "num.partitions");
    assert_eq!((partitions.value.as_deref(), partitions.config_source), (Some("3"), 4));
    let sources: Vec<i8> = partitions.synonyms.iter().map(|one| one.source).collect();
    assert_eq!(sources, [4, 5]);
    // A topic inherits it, in its own unit.
    fixture.topic("t", -1);
    assert_eq!(fixture.value(TOPIC, "t", "segment.ms"), ("25200000".to_owned(), 4));
    assert_eq!(fixture.describe(BROKER, "", None).configs.len(), 0);
    assert_eq!(fixture.describe(BROKER, "2", None).error_code, 42);
    assert_eq!(fixture.describe(BROKER, "x", None).error_code, 42);
    for (name, key) in
        [("1", "num.partitions"), ("", "log.retention.ms"), ("2", "num.partitions"), ("x", "a")]
    {
        let (code, message) = fixture.alter(BROKER, name, &[(key, SET, Some("5"))]);
        assert_eq!(code, 42, "{message}");
    }
    assert_eq!(fixture.alter(BROKER, "1", &[("num.partitions", DELETE, None)]).0, 0);
    assert_eq!(fixture.value(BROKER, "1", "num.partitions").0, "3");
}

#[test]
fn a_topic_says_when_it_is_synced() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    let listed = |fixture: &mut Fixture| {
        let described = fixture.describe(TOPIC, "t", None);
        described.configs.iter().find(|one| &*one.name == "flush.policy").map(|one| one.value.clone())
    };
    assert_eq!(listed(&mut fixture), None, "Kafka's tools expect Kafka's settings");
    assert_eq!(fixture.alter(TOPIC, "t", &[("flush.policy", SET, Some("never"))]).0, 40);
    for policy in ["interval", "os", "acks"] {
        assert_eq!(fixture.alter(TOPIC, "t", &[("flush.policy", SET, Some(policy))]).0, 0);
        assert_eq!(listed(&mut fixture).flatten().as_deref(), Some(policy));
        assert_eq!(fixture.produce("t", &[1], records::Codec::None).0, 0);
    }
    fixture.kill_and_restart();
    assert_eq!(listed(&mut fixture).flatten().as_deref(), Some("acks"));
}
