use std::io::Write as _;

use super::*;

fn load(text: &str) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(&CommandLine { file: Some(file.path().to_owned()), ..CommandLine::default() })
}

#[test]
fn every_default_of_every_table_is_a_value_of_its_setting() {
    for table in [broker::BROKER, topic::TOPIC, group::GROUP] {
        for definition in table {
            if let Some(default) = definition.default {
                assert_eq!(definition.parse(default).as_deref(), Ok(default), "{}", definition.name);
            }
            for fallback in definition.fallbacks {
                assert!(find(broker::BROKER, fallback.name).is_some(), "{}", fallback.name);
            }
        }
        let names: std::collections::BTreeSet<_> = table.iter().map(|definition| definition.name).collect();
        assert_eq!(names.len(), table.len(), "a name stands twice");
    }
    assert!(broker::WITHOUT_EFFECT.iter().all(|name| find(broker::BROKER, name).is_none()));
}

#[test]
fn a03_topics_have_kafkas_37_settings() {
    assert_eq!(topic::TOPIC.len(), 37);
    assert!(topic::TOPIC.is_sorted_by_key(|definition| definition.name));
}

#[test]
fn defaults_are_kafkas() {
    let config = Config::defaults();
    assert_eq!(config.listen, HostPort { host: "127.0.0.1".to_owned(), port: 9092 });
    assert_eq!(config.node_id, 1);
    assert_eq!(config.partitions_default, 1);
    assert!(config.auto_create_topics);
    assert_eq!(config.request_bytes_max, 104_857_600);
    assert_eq!(config.topic_number("retention.ms", &Overrides::new()), 604_800_000);
    assert_eq!(config.topic_number("segment.ms", &Overrides::new()), 604_800_000);
    assert_eq!(config.topic_text("flush.ms", &Overrides::new()), i64::MAX.to_string());
}

#[test]
fn a_file_in_kafkas_format_is_read() {
    let config = load(
        "process.roles=broker,controller\nnode.id=7\nlisteners=PLAINTEXT://:0\nnum.partitions=3\n\
                       log.retention.hours=1\nlog.dirs=/var/lib/sluice\n",
    )
    .unwrap();
    assert_eq!(config.node_id, 7);
    assert_eq!(config.partitions_default, 3);
    assert_eq!(config.data_dir, PathBuf::from("/var/lib/sluice"));
    assert_eq!(config.without_effect(), ["process.roles"]);
    assert_eq!(config.topic_number("retention.ms", &Overrides::new()), 3_600_000);
    let own: Overrides = [("retention.ms".to_owned(), "5".to_owned())].into();
    assert_eq!(config.topic_number("retention.ms", &own), 5);
}

#[test]
fn unknown_settings_are_named_with_their_line() {
    let error = load("# x\nnum.partition=3\n").unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("num.partition "), "{error}");
    assert!(error.contains("did you mean num.partitions?"), "{error}");
    for (theirs, own) in [
        ("sluice.share.order=key", "group.sluice.share.order"),
        ("share.delivery.count.limit=3", "group.share.delivery.count.limit"),
        ("cleanup.policy=compact", "log.cleanup.policy"),
    ] {
        let error = load(theirs).unwrap_err().to_string();
        assert!(error.contains(&format!("did you mean {own}?")), "{error}");
    }
}

#[test]
fn values_that_do_not_fit_are_named_with_their_file_and_line() {
    let error = load("# x\n\nnum.partitions=many\n").unwrap_err().to_string();
    assert!(error.starts_with('/') && error.contains(": line 3: invalid value many for"), "{error}");
}

#[test]
fn what_cannot_be_met_is_refused() {
    for text in [
        "num.partitions=0",
        "num.partitions=x",
        "listeners=SSL://:9093",
        "log.dirs=/a,/b",
        "group.share.record.lock.duration.ms=70000",
        "queued.max.request.bytes=5",
        "group.min.session.timeout.ms=2000000",
        "advertised.listeners=PLAINTEXT://:9092",
    ] {
        assert!(load(text).is_err(), "{text}");
    }
    let missing = CommandLine { file: Some("/no/such/file".into()), ..CommandLine::default() };
    assert!(matches!(Config::load(&missing), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn the_command_line_wins() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"listeners=PLAINTEXT://:1\nnode.id=2\nlog.dirs=/a,/b\n").unwrap();
    let line = CommandLine {
        file: Some(file.path().to_owned()),
        listen: Some("[::1]:0".to_owned()),
        advertise: Some("example.org:9".to_owned()),
        data_dir: Some("/x,y".into()),
        node_id: Some(3),
    };
    let config = Config::load(&line).unwrap();
    assert_eq!(config.listen.to_string(), "[::1]:0");
    assert_eq!(config.advertise.unwrap().to_string(), "example.org:9");
    assert_eq!(config.data_dir, PathBuf::from("/x,y"));
    assert_eq!(config.node_id, 3);
}
