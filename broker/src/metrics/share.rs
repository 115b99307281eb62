//! Share groups on the page that Prometheus reads: asked of the shard when somebody reads, so that they cost nothing else.

use std::fmt::Write as _;
use std::sync::Arc;

use coordinator::share::ShareGroupView;

use super::escaped;

/// Groups that have series of their own; what is beyond, by name, is only counted.
const GROUPS_MAX: usize = 1_000;

/// Name behind `sluice_share_`, type, meaning, value.
type Series = (&'static str, &'static str, &'static str, fn(&ShareGroupView) -> i64);

const SERIES: [Series; 17] = [
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
    ("delayed_keys", "gauge", "Keys that wait for a retry", |view| count(view.delayed)),
    ("memory_bytes", "gauge", "Memory, about", |view| wide(view.heap_bytes)),
    ("deliveries_total", "counter", "Records handed out", |view| wide(view.counters.granted)),
    ("accepted_total", "counter", "Records accepted", |view| wide(view.counters.accepted)),
    (
        "archived_total",
        "counter",
        "Records that ended otherwise: rejected, at the delivery limit, unreadable",
        |view| wide(view.counters.archived),
    ),
    ("corrupt_total", "counter", "Records whose stored batch cannot be read", |view| {
        wide(view.counters.corrupt)
    }),
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

/// The text of all series. Counters begin anew when a share-partition is loaded again.
pub(super) fn page(groups: &[(Arc<str>, ShareGroupView)]) -> String {
    let mut page = String::new();
    let shown = &groups[..groups.len().min(GROUPS_MAX)];
    for (name, kind, meaning, value) in SERIES {
        let _ = writeln!(page, "# HELP sluice_share_{name} {meaning}\n# TYPE sluice_share_{name} {kind}");
        for (group, view) in shown {
            let _ = writeln!(page, "sluice_share_{name}{{group=\"{}\"}} {}", escaped(group), value(view));
        }
    }
    let _ = writeln!(
        page,
        "# HELP sluice_share_groups Share groups that are known\n# TYPE sluice_share_groups gauge"
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
    fn a_flood_of_groups_has_few_series() {
        let groups: Vec<_> = (0..GROUPS_MAX + 10)
            .map(|number| (Arc::from(format!("g{number}")), ShareGroupView::default()))
            .collect();
        let page = page(&groups);
        assert_eq!(page.matches("sluice_share_members{").count(), GROUPS_MAX);
        assert!(page.ends_with(&format!("sluice_share_groups {}\n", GROUPS_MAX + 10)));
    }
}
