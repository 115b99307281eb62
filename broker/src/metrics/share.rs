//! Share groups on the page that Prometheus reads: asked of the shard when somebody reads, so that they cost nothing else.

use std::fmt::Write as _;
use std::sync::Arc;

use coordinator::share::{ShareGroupView, ShareKeyView};

use super::escaped;

/// Groups that have series of their own; what is beyond, by name, is only counted.
const GROUPS_MAX: usize = 1_000;

/// Groups whose worst keys have series.
const KEYED_GROUPS_MAX: usize = 100;

/// Name behind `sluice_share_`, type, meaning, value.
type Series = (&'static str, &'static str, &'static str, fn(&ShareGroupView) -> i64);

const SERIES: [Series; 21] = [
    ("partitions", "gauge", "Share-partitions in memory", |view| count(view.partitions)),
    (
        "bound_partitions",
        "gauge",
        "Share-partitions that grant less than the log holds, since a bound is hit",
        |view| count(view.bound),
    ),
    ("broken_partitions", "gauge", "Share-partitions whose state the disk refuses", |view| {
        count(view.broken)
    }),
    ("members", "gauge", "Members that heartbeat", |view| count(view.members)),
    ("lag_records", "gauge", "Records that are not done, in partitions in memory", |view| view.lag),
    ("in_flight_records", "gauge", "Records in the hands of members", |view| count(view.out)),
    ("ready_records", "gauge", "Records, about, that could be delivered now", |view| count(view.ready)),
    ("leased_keys", "gauge", "Keys that are leased to a member", |view| count(view.leased_keys)),
    (
        "delayed_keys",
        "gauge",
        "Keys that wait for a retry; records that keep no order count as one each",
        |view| count(view.waiting_keys),
    ),
    ("parked_keys", "gauge", "Keys that are parked", |view| count(view.parked_keys)),
    ("followed_keys", "gauge", "Keys whose rest goes to the dead-letter topic", |view| {
        count(view.followed_keys)
    }),
    (
        "waiting_dead_letters",
        "gauge",
        "Records that wait until they are copied to the dead-letter topic",
        |view| count(view.dead_letters),
    ),
    (
        "dead_letter_trouble_partitions",
        "gauge",
        "Share-partitions whose dead letters cannot be copied",
        |view| count(view.dead_letter_troubles),
    ),
    (
        "retention_warning_partitions",
        "gauge",
        "Share-partitions of which retention will soon take records that are not done",
        |view| count(view.retention_warnings),
    ),
    ("memory_bytes", "gauge", "Memory, about", |view| wide(view.heap_bytes)),
    ("deliveries_total", "counter", "Records handed out", |view| wide(view.counters.granted)),
    ("accepted_total", "counter", "Records accepted", |view| wide(view.counters.accepted)),
    (
        "corrupt_total",
        "counter",
        "Records whose stored batch was found to be unreadable, whatever became of them",
        |view| wide(view.counters.corrupt),
    ),
    (
        "recalled_total",
        "counter",
        "Records recalled from their holder, since an earlier one of their key came back",
        |view| wide(view.counters.recalled),
    ),
    ("locks_expired_total", "counter", "Locks that ran out", |view| wide(view.counters.locks_expired)),
    ("left_log_total", "counter", "Records that left the log before they were done", |view| {
        wide(view.counters.left_log)
    }),
];

const OLDEST: (&str, &str) = (
    "oldest_record_timestamp_ms",
    "Timestamp of the oldest record that is not done, or of one that was the oldest a few seconds ago",
);

/// Why records ended otherwise than by an accept.
type Reason = (&'static str, fn(&ShareGroupView) -> u64);

const ARCHIVED: (&str, &str) =
    ("archived_total", "Records that ended otherwise than by an accept, by what ended them");
const REASONS: [Reason; 6] = [
    ("rejected", |view| view.counters.rejected),
    ("delivery_limit", |view| view.counters.limit_reached),
    ("corrupt", |view| view.counters.corrupt_skipped),
    ("gap", |view| view.counters.gaps),
    ("dead_lettered", |view| view.counters.dead_lettered),
    ("skipped", |view| view.counters.skipped),
];

/// A key's part of the page: name, meaning, value.
type KeySeries =
    (&'static str, &'static str, fn(&ShareGroupView) -> &[ShareKeyView], fn(&ShareKeyView) -> i64);

const KEYS: [KeySeries; 3] = [
    (
        "key_backlog_records",
        "Unsettled records of the keys that have most of them, as far as they were read ahead",
        |view| &view.by_backlog,
        |key| wide(key.line.backlog),
    ),
    (
        "key_behind_records",
        "How far the oldest unsettled record lies behind the end of its log, of the keys where it is oldest",
        |view| &view.by_age,
        |key| key.behind,
    ),
    (
        "key_failed_deliveries",
        "Deliveries of its next record that failed, of the keys where most did",
        |view| &view.by_deliveries,
        |key| i64::from(key.line.deliveries),
    ),
];

/// The text of all series.
pub(super) fn page(groups: &[(Arc<str>, ShareGroupView)]) -> String {
    let mut page = String::new();
    let shown = &groups[..groups.len().min(GROUPS_MAX)];
    for (name, kind, meaning, value) in SERIES {
        let _ = writeln!(page, "# HELP sluice_share_{name} {meaning}\n# TYPE sluice_share_{name} {kind}");
        for (group, view) in shown {
            let _ = writeln!(page, "sluice_share_{name}{{group=\"{}\"}} {}", escaped(group), value(view));
        }
    }
    // None where nothing waits: an alert on the age of a 0 would see decades.
    let (name, meaning) = OLDEST;
    let _ = writeln!(page, "# HELP sluice_share_{name} {meaning}\n# TYPE sluice_share_{name} gauge");
    for (group, oldest) in shown.iter().filter_map(|(group, view)| Some((group, view.oldest_ms?))) {
        let _ = writeln!(page, "sluice_share_{name}{{group=\"{}\"}} {oldest}", escaped(group));
    }
    let (name, meaning) = ARCHIVED;
    let _ = writeln!(page, "# HELP sluice_share_{name} {meaning}\n# TYPE sluice_share_{name} counter");
    for (group, view) in shown {
        let group = escaped(group);
        for (reason, value) in REASONS {
            let value = value(view);
            let _ = writeln!(page, "sluice_share_{name}{{group=\"{group}\",reason=\"{reason}\"}} {value}");
        }
    }
    for (name, meaning, keys, value) in KEYS {
        let _ = writeln!(page, "# HELP sluice_share_{name} {meaning}\n# TYPE sluice_share_{name} gauge");
        for (group, view) in &shown[..shown.len().min(KEYED_GROUPS_MAX)] {
            let group = escaped(group);
            for key in keys(view) {
                let (topic, partition) = (format!("{:?}", key.partition.topic), key.partition.index);
                let (hash, value) = (key.line.key.0, value(key));
                let _ = writeln!(
                    page,
                    "sluice_share_{name}{{group=\"{group}\",topic_id=\"{topic}\",partition=\"{partition}\",key=\"{hash:016x}\"}} {value}"
                );
            }
        }
    }
    let _ = writeln!(
        page,
        "# HELP sluice_share_groups Share groups that have members, or partitions that were asked for\n# TYPE sluice_share_groups gauge"
    );
    let _ = writeln!(page, "sluice_share_groups {}", groups.len());
    page
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn wide(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        let groups = [(Arc::from("a\"b\\c\nd"), ShareGroupView { out: 3, ..ShareGroupView::default() })];
        let page = page(&groups);
        assert!(page.contains("sluice_share_in_flight_records{group=\"a\\\"b\\\\c\\nd\"} 3\n"), "{page}");
    }

    #[test]
    fn keys_that_wait_in_pages_are_counted_as_delayed() {
        let groups = [(Arc::from("g"), ShareGroupView { waiting_keys: 3, ..ShareGroupView::default() })];
        assert!(page(&groups).contains("sluice_share_delayed_keys{group=\"g\"} 3\n"));
    }

    #[test]
    fn where_nothing_waits_there_is_no_oldest_record() {
        let some = ShareGroupView { oldest_ms: Some(1_700_000_000_000), ..ShareGroupView::default() };
        let page = page(&[(Arc::from("g"), ShareGroupView::default()), (Arc::from("h"), some)]);
        let series = page.lines().filter(|line| line.starts_with("sluice_share_oldest_record"));
        assert_eq!(
            series.collect::<Vec<_>>(),
            ["sluice_share_oldest_record_timestamp_ms{group=\"h\"} 1700000000000"]
        );
    }

    #[test]
    fn unreadable_records_are_archived_where_they_are_skipped() {
        let counters =
            coordinator::share::ShareCounters { corrupt: 5, corrupt_skipped: 3, ..Default::default() };
        let page = page(&[(Arc::from("g"), ShareGroupView { counters, ..ShareGroupView::default() })]);
        assert!(page.contains("sluice_share_corrupt_total{group=\"g\"} 5\n"), "{page}");
        assert!(page.contains("sluice_share_archived_total{group=\"g\",reason=\"corrupt\"} 3\n"), "{page}");
    }

    #[test]
    fn a_flood_of_groups_has_few_series() {
        let groups: Vec<_> = (0..GROUPS_MAX + 10)
            .map(|number| (Arc::from(format!("g{number}")), ShareGroupView::default()))
            .collect();
        let page = page(&groups);
        assert_eq!(page.matches("sluice_share_members{").count(), GROUPS_MAX);
        assert!(page.ends_with(&format!("sluice_share_groups {}\n", GROUPS_MAX + 10)));
    }
}
