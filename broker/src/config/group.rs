//! Settings of groups: Apache Kafka 4.4's `GroupConfig`, and ours for key order.

use std::sync::Arc;

use coordinator::share::{Poison, ShareAssignment, ShareConfig, ShareOrder, ShareReset};

use super::broker::{ASSIGNMENT, POISON, STUCK_KEYS, SYNC_MS, WINDOW_BYTES};
use super::definition::{Definition, InvalidValue, Kind, broker, on};
use super::{Config, Overrides};

const DEAD_LETTER_TOPIC: &str = "errors.deadletterqueue.topic.name";
const ANY: Kind = Kind::Int(1, i32::MAX);
const FROM_0: Kind = Kind::Int(0, i32::MAX);

/// The settings that a group may have, by name. Those of Kafka keep its meaning; ours begin with `sluice.`.
#[rustfmt::skip] // one setting a line
pub const GROUP: &[Definition] = &[
    on("consumer.assignment.interval.ms", FROM_0, None, broker!("group.consumer.assignment.interval.ms"), "Kept and shown, without effect so far: least time between two assignments of a consumer group of the newer protocol."),
    on("consumer.heartbeat.interval.ms", ANY, None, broker!("group.consumer.heartbeat.interval.ms"), "Kept and shown, without effect so far: how often members of consumer groups of the newer protocol are told to report."),
    on("consumer.session.timeout.ms", ANY, None, broker!("group.consumer.session.timeout.ms"), "Kept and shown, without effect so far: a member of a consumer group of the newer protocol that is silent for so long has left."),
    on("errors.deadletterqueue.copy.record.enable", Kind::Boolean, Some("false"), &[], "Whether dead letters carry key and value of their record."),
    on("errors.deadletterqueue.topic.name", Kind::Text, Some(""), &[], "Topic to which records are copied that are rejected, delivered too often or unreadable, before they are archived; it must have errors.deadletterqueue.group.enable=true, and a cleanup.policy without compact. Empty: nowhere."),
    on("share.assignment.interval.ms", FROM_0, None, broker!("group.share.assignment.interval.ms"), "Kept and shown, without effect so far: least time between two assignments of a share group."),
    on("share.auto.offset.reset", Kind::Text, Some("latest"), &[], "Where the group starts in a partition that it has no state of: latest, earliest, or by_duration:DURATION (ISO 8601)."),
    on("share.delivery.count.limit", ANY, None, broker!("group.share.delivery.count.limit"), "How often a record is delivered at most."),
    on("share.heartbeat.interval.ms", ANY, None, broker!("group.share.heartbeat.interval.ms"), "How often members are told to report."),
    on("share.isolation.level", Kind::Choice(&["read_committed", "read_uncommitted"]), Some("read_uncommitted"), &[], "Whether records of open and aborted transactions are delivered."),
    on("share.partition.max.record.locks", ANY, None, broker!("group.share.partition.max.record.locks"), "Records of a partition that may be with members at a time."),
    on("share.record.lock.duration.ms", ANY, None, broker!("group.share.record.lock.duration.ms"), "How long a record stays with the member that took it."),
    on("share.renew.acknowledge.enable", Kind::Boolean, Some("true"), &[], "Whether members may renew their locks."),
    on("share.session.timeout.ms", ANY, None, broker!("group.share.session.timeout.ms"), "A member silent for so long has left."),
    on("sluice.share.assignment", ASSIGNMENT, None, broker!("group.sluice.share.assignment"), "Which member takes a ready key. dynamic: any that is free. sticky: its home among the members at work; it moves when they change and it has nothing in flight."),
    on("sluice.share.disconnect.grace.ms", Kind::Long(-1, 3_600_000), None, broker!("group.sluice.share.disconnect.grace.ms"), "How long a member without a connection keeps its records; -1: one and a half heartbeat intervals."),
    on("sluice.share.hold.target.ms", Kind::Long(0, 3_600_000), None, broker!("group.sluice.share.hold.target.ms"), "A member holds about as many records as it works off in this time; 0: no such bound."),
    on("sluice.share.key.max.inflight", Kind::Int(1, 1_000), None, broker!("group.sluice.share.key.max.inflight"), "Records of a key that a member may hold at a time."),
    on("sluice.share.order", Kind::Choice(&["none", "key"]), None, broker!("group.sluice.share.order"), "none: as Apache Kafka; key: every key in order, at one member at a time."),
    on("sluice.share.poison", POISON, None, broker!("group.sluice.share.poison"), "What becomes of a record that is rejected, delivered too often or cannot be read. skip: it is archived, its key goes on. dead-letter: copied to the group's dead-letter topic first. follow: the rest of its key goes there too, until someone resumes it. park: its key alone stops until someone resumes, skips or drops it. auto: dead-letter where the group names a dead-letter topic, else skip."),
    on("sluice.share.retry.backoff.max.ms", Kind::Long(0, 86_400_000), None, broker!("group.sluice.share.retry.backoff.max.ms"), "Longest wait of a key after a release."),
    on("sluice.share.retry.backoff.ms", Kind::Long(0, 3_600_000), None, broker!("group.sluice.share.retry.backoff.ms"), "How long a key waits after its first release; doubled each time."),
    on("sluice.share.stuck.keys.max", STUCK_KEYS, None, broker!("group.sluice.share.stuck.keys.max"), "Scanning of a share-partition stops at so many keys that wait for a retry or are parked."),
    on("sluice.share.sync.ms", SYNC_MS, None, broker!("group.sluice.share.sync.ms"), "Acknowledgements are synced to disk at the latest after this time."),
    on("sluice.share.window.bytes", WINDOW_BYTES, None, broker!("group.sluice.share.window.bytes"), "Memory of one share-partition of the group; keys that wait for a retry or are parked take some of it, too."),
    on("streams.assignment.interval.ms", FROM_0, None, broker!("group.streams.assignment.interval.ms"), "Kept and shown; streams groups are not served so far."),
    on("streams.assignor.name", Kind::Choice(&["sticky"]), None, broker!("group.streams.assignors"), "Kept and shown; streams groups are not served so far."),
    on("streams.heartbeat.interval.ms", ANY, None, broker!("group.streams.heartbeat.interval.ms"), "Kept and shown; streams groups are not served so far."),
    on("streams.initial.rebalance.delay.ms", FROM_0, None, broker!("group.streams.initial.rebalance.delay.ms"), "Kept and shown; streams groups are not served so far."),
    on("streams.num.standby.replicas", FROM_0, None, broker!("group.streams.num.standby.replicas"), "Kept and shown; streams groups are not served so far."),
    on("streams.rack.aware.assignment.tags", Kind::List(&[]), None, broker!("group.streams.rack.aware.assignment.tags"), "Kept and shown; streams groups are not served so far."),
    on("streams.session.timeout.ms", ANY, None, broker!("group.streams.session.timeout.ms"), "Kept and shown; streams groups are not served so far."),
];

/// Broker settings that bound a group's: (group setting, least, largest), where there are such
/// (`GroupConfigManager.validate`).
#[rustfmt::skip] // one setting a line
const BOUNDS: &[(&str, Option<&str>, &str)] = &[
    ("consumer.assignment.interval.ms", Some("group.consumer.min.assignment.interval.ms"), "group.consumer.max.assignment.interval.ms"),
    ("consumer.heartbeat.interval.ms", Some("group.consumer.min.heartbeat.interval.ms"), "group.consumer.max.heartbeat.interval.ms"),
    ("consumer.session.timeout.ms", Some("group.consumer.min.session.timeout.ms"), "group.consumer.max.session.timeout.ms"),
    ("share.assignment.interval.ms", Some("group.share.min.assignment.interval.ms"), "group.share.max.assignment.interval.ms"),
    ("share.session.timeout.ms", Some("group.share.min.session.timeout.ms"), "group.share.max.session.timeout.ms"),
    ("share.heartbeat.interval.ms", Some("group.share.min.heartbeat.interval.ms"), "group.share.max.heartbeat.interval.ms"),
    ("share.record.lock.duration.ms", Some("group.share.min.record.lock.duration.ms"), "group.share.max.record.lock.duration.ms"),
    ("share.delivery.count.limit", Some("group.share.min.delivery.count.limit"), "group.share.max.delivery.count.limit"),
    ("share.partition.max.record.locks", Some("group.share.min.partition.max.record.locks"), "group.share.max.partition.max.record.locks"),
    ("streams.assignment.interval.ms", Some("group.streams.min.assignment.interval.ms"), "group.streams.max.assignment.interval.ms"),
    ("streams.heartbeat.interval.ms", Some("group.streams.min.heartbeat.interval.ms"), "group.streams.max.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", Some("group.streams.min.session.timeout.ms"), "group.streams.max.session.timeout.ms"),
    ("streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
];

/// Checks a group's setting against its kind and the broker's bounds, and gives its plain form.
///
/// # Errors
/// With a message that names the allowed range.
pub fn check(config: &Config, definition: &Definition, value: &str) -> Result<String, InvalidValue> {
    let plain = definition.parse(value)?;
    if let Some((_, least, largest)) = BOUNDS.iter().find(|(name, ..)| *name == definition.name) {
        let (low, high) = (least.map_or(0, |least| config.number(least)), config.number(largest));
        let number: i64 = plain.parse().expect("the kind admits numbers only");
        if number < low || number > high {
            return Err(definition.refuse(value, format!("expected a number from {low} to {high}")));
        }
    }
    match definition.name {
        "share.auto.offset.reset" => match reset(plain.trim()) {
            Some(_) => Ok(plain.trim().to_owned()),
            None => Err(definition.refuse(
                value,
                "expected latest, earliest or by_duration: and an ISO 8601 duration such as by_duration:PT1H"
                    .to_owned(),
            )),
        },
        // As in Kafka the prefix that the broker asks for is looked at when there is something to write.
        DEAD_LETTER_TOPIC if plain.trim().starts_with("__") => {
            Err(definition.refuse(value, "expected a topic name that does not begin with __".to_owned()))
        }
        DEAD_LETTER_TOPIC => Ok(plain.trim().to_owned()),
        _ => Ok(plain),
    }
}

/// A group's share settings: its own over the broker's defaults.
#[must_use]
pub fn share_config(config: &Config, overrides: &Overrides) -> ShareConfig {
    let text = |name: &str| {
        let definition = super::find(GROUP, name).expect("a setting of the table");
        config.value(definition, overrides).unwrap_or_default()
    };
    let number = |name: &str| text(name).parse::<i64>().expect("set values are checked");
    let small = |name: &str| i32::try_from(number(name)).expect("bounded by the table");
    let dead_letter_topic = Some(text(DEAD_LETTER_TOPIC)).filter(|name| !name.is_empty()).map(Arc::from);
    ShareConfig {
        order: match text("sluice.share.order").as_str() {
            "key" => ShareOrder::Key,
            _ => ShareOrder::None,
        },
        assignment: match text("sluice.share.assignment").as_str() {
            "sticky" => ShareAssignment::Sticky,
            _ => ShareAssignment::Dynamic,
        },
        reset: reset(&text("share.auto.offset.reset")).unwrap_or_default(),
        read_committed: text("share.isolation.level") == "read_committed",
        lock_ms: number("share.record.lock.duration.ms"),
        delivery_count_max: i16::try_from(number("share.delivery.count.limit")).unwrap_or(i16::MAX),
        record_locks_max: u32::try_from(number("share.partition.max.record.locks")).unwrap_or(u32::MAX),
        renew: text("share.renew.acknowledge.enable") == "true",
        heartbeat_interval_ms: small("share.heartbeat.interval.ms"),
        session_timeout_ms: small("share.session.timeout.ms"),
        key_inflight_max: u32::try_from(number("sluice.share.key.max.inflight")).unwrap_or(1),
        poison: match text("sluice.share.poison").as_str() {
            "skip" => Poison::Skip,
            "dead-letter" => Poison::DeadLetter,
            "follow" => Poison::Follow,
            "park" => Poison::Park,
            _ if dead_letter_topic.is_some() => Poison::DeadLetter,
            _ => Poison::Skip,
        },
        dead_letter_topic,
        dead_letter_copy: text("errors.deadletterqueue.copy.record.enable") == "true",
        backoff_ms: number("sluice.share.retry.backoff.ms"),
        backoff_max_ms: number("sluice.share.retry.backoff.max.ms"),
        disconnect_grace_ms: Some(number("sluice.share.disconnect.grace.ms")).filter(|ms| *ms >= 0),
        hold_target_ms: number("sluice.share.hold.target.ms"),
        window_bytes_max: number("sluice.share.window.bytes").unsigned_abs(),
        stuck_keys_max: number("sluice.share.stuck.keys.max").unsigned_abs(),
        sync_ms: number("sluice.share.sync.ms"),
    }
}

/// `latest`, `earliest`, `by_duration:P…`; capitals count, but for those of the duration
/// (`ShareGroupAutoOffsetResetStrategy`).
fn reset(text: &str) -> Option<ShareReset> {
    match text {
        "latest" => Some(ShareReset::Latest),
        "earliest" => Some(ShareReset::Earliest),
        _ => {
            let duration = text.strip_prefix("by_duration:")?.to_ascii_lowercase();
            duration_ms(&duration).map(ShareReset::ByDuration)
        }
    }
}

/// Milliseconds of an ISO 8601 duration of days and less (`java.time.Duration.parse`), not negative.
fn duration_ms(text: &str) -> Option<i64> {
    let (days, time) = match text.strip_prefix('p')?.split_once('t') {
        Some((days, time)) => (days, Some(time)),
        None => (text.strip_prefix('p')?, None),
    };
    let mut total: f64 = 0.0;
    let mut parts = 0;
    if !days.is_empty() {
        total += days.strip_suffix('d')?.parse::<u32>().map(f64::from).ok()? * 86_400_000.0;
        parts += 1;
    }
    let mut rest = time.unwrap_or_default();
    if time.is_some_and(str::is_empty) {
        return None;
    }
    for (unit, ms) in [('h', 3_600_000.0), ('m', 60_000.0), ('s', 1_000.0)] {
        if let Some((number, behind)) = rest.split_once(unit) {
            let plain = number.chars().all(|c| c.is_ascii_digit() || (unit == 's' && c == '.'));
            total += number.parse::<f64>().ok().filter(|_| plain)? * ms;
            rest = behind;
            parts += 1;
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "float to integer casts saturate")]
    (parts > 0 && rest.is_empty()).then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_defaults_are_the_coordinators() {
        let config = Config::defaults();
        assert_eq!(share_config(&config, &Overrides::new()), ShareConfig::default());
    }

    #[test]
    fn durations() {
        assert_eq!(reset("by_duration:PT1H"), Some(ShareReset::ByDuration(3_600_000)));
        assert_eq!(reset("by_duration:P2DT3M4.5S"), Some(ShareReset::ByDuration(172_984_500)));
        for bad in
            ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:PT1X", "by_duration:PT-1H", "x"]
        {
            assert_eq!(reset(bad), None, "{bad}");
        }
    }

    #[test]
    fn a07_bounds_are_the_brokers_and_named() {
        let config = Config::defaults();
        let lock = super::super::find(GROUP, "share.record.lock.duration.ms").unwrap();
        let error = check(&config, lock, "1").unwrap_err().to_string();
        assert!(error.contains("15000") && error.contains("60000"), "{error}");
        assert_eq!(check(&config, lock, "20000").unwrap(), "20000");
        let order = super::super::find(GROUP, "sluice.share.order").unwrap();
        assert!(check(&config, order, "keys").is_err());
        let start = super::super::find(GROUP, "share.auto.offset.reset").unwrap();
        assert_eq!(check(&config, start, "earliest").unwrap(), "earliest");
        assert!(check(&config, start, "Earliest").is_err());
        assert_eq!(check(&config, start, "by_duration:PT1H").unwrap(), "by_duration:PT1H");
        assert!(check(&config, start, "yesterday").is_err());
    }

    #[test]
    fn s30_every_bound_holds_and_one_beyond_is_refused() {
        let config = Config::defaults();
        let bounds = [
            ("share.record.lock.duration.ms", 15_000, 60_000),
            ("share.session.timeout.ms", 45_000, 60_000),
            ("share.heartbeat.interval.ms", 5_000, 15_000),
            ("share.assignment.interval.ms", 0, 15_000),
            ("share.delivery.count.limit", 2, 10),
            ("share.partition.max.record.locks", 100, 4_000),
            ("consumer.session.timeout.ms", 45_000, 60_000),
            ("consumer.heartbeat.interval.ms", 5_000, 15_000),
            ("consumer.assignment.interval.ms", 0, 15_000),
            ("streams.session.timeout.ms", 45_000, 60_000),
            ("streams.heartbeat.interval.ms", 5_000, 15_000),
            ("streams.assignment.interval.ms", 0, 15_000),
            ("streams.num.standby.replicas", 0, 2),
        ];
        assert_eq!(bounds.len(), BOUNDS.len());
        for (name, low, high) in bounds {
            let definition = super::super::find(GROUP, name).unwrap();
            for good in [low, high] {
                assert_eq!(
                    check(&config, definition, &good.to_string()).unwrap(),
                    good.to_string(),
                    "{name}"
                );
            }
            for bad in [low - 1, high + 1] {
                assert!(check(&config, definition, &bad.to_string()).is_err(), "{name}={bad}");
            }
        }
    }

    #[test]
    fn s15_all_settings_of_kafka_and_ours_with_their_defaults() {
        let config = Config::defaults();
        let kafkas = GROUP.iter().filter(|definition| !definition.name.starts_with("sluice.")).count();
        assert_eq!(kafkas, 21);
        assert!(GROUP.is_sorted_by_key(|definition| definition.name));
        for (name, default) in [
            ("share.auto.offset.reset", "latest"),
            ("share.isolation.level", "read_uncommitted"),
            ("share.delivery.count.limit", "5"),
            ("share.record.lock.duration.ms", "30000"),
            ("share.partition.max.record.locks", "2000"),
            ("share.renew.acknowledge.enable", "true"),
            ("share.heartbeat.interval.ms", "5000"),
            ("share.assignment.interval.ms", "1000"),
            ("share.session.timeout.ms", "45000"),
            ("errors.deadletterqueue.topic.name", ""),
            ("sluice.share.order", "none"),
            ("sluice.share.assignment", "dynamic"),
            ("sluice.share.poison", "auto"),
            ("sluice.share.key.max.inflight", "1"),
            ("sluice.share.window.bytes", "16777216"),
            ("sluice.share.stuck.keys.max", "1000000"),
            ("sluice.share.retry.backoff.ms", "0"),
            ("sluice.share.retry.backoff.max.ms", "60000"),
            ("sluice.share.disconnect.grace.ms", "-1"),
            ("sluice.share.hold.target.ms", "100"),
            ("sluice.share.sync.ms", "100"),
        ] {
            let definition = super::super::find(GROUP, name).expect(name);
            assert_eq!(config.value(definition, &Overrides::new()).as_deref(), Some(default), "{name}");
        }
    }

    #[test]
    fn k30_the_poison_way_follows_the_dead_letter_topic_where_none_is_set() {
        let config = Config::defaults();
        let poison = |pairs: &[(&str, &str)]| {
            let overrides: Overrides =
                pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let share = share_config(&config, &overrides);
            (share.poison, share.dead_letter_topic.as_deref().map(str::to_owned), share.dead_letter_copy)
        };
        let named = (DEAD_LETTER_TOPIC, "dlq.t");
        let topic = Some("dlq.t".to_owned());
        assert_eq!(poison(&[]), (Poison::Skip, None, false));
        assert_eq!(poison(&[named]), (Poison::DeadLetter, topic.clone(), false));
        assert_eq!(poison(&[("sluice.share.poison", "dead-letter")]).0, Poison::DeadLetter);
        for (value, way) in [("skip", Poison::Skip), ("park", Poison::Park), ("follow", Poison::Follow)] {
            let found = poison(&[named, ("sluice.share.poison", value)]);
            assert_eq!(found, (way, topic.clone(), false), "{value}");
        }
        let copied = poison(&[named, ("errors.deadletterqueue.copy.record.enable", "true")]);
        assert_eq!(copied, (Poison::DeadLetter, topic, true));
    }

    #[test]
    fn s28_names_of_dead_letter_topics() {
        let config = Config::defaults();
        let definition = super::super::find(GROUP, DEAD_LETTER_TOPIC).unwrap();
        for good in ["", "dlq.t", "dlq"] {
            assert_eq!(check(&config, definition, good).unwrap(), good);
        }
        assert!(check(&config, definition, "__dlq.t").is_err());
    }

    #[test]
    fn overrides_win() {
        let config = Config::defaults();
        let overrides: Overrides = [("sluice.share.order".to_owned(), "key".to_owned())].into();
        assert_eq!(share_config(&config, &overrides).order, ShareOrder::Key);
    }
}
