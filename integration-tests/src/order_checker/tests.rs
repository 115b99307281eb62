use super::*;

/// Records of partition 0 from their keys, in offset order; "-" is keyless.
fn produced(keys: &[&str]) -> Vec<ProducedRecord> {
    (0..)
        .zip(keys)
        .map(|(offset, &key)| ProducedRecord {
            partition: 0,
            offset,
            key: (key != "-").then(|| key.to_owned()),
        })
        .collect()
}

/// A schedule: "member action offset", one step of time each; the key is looked up.
fn events(records: &[ProducedRecord], steps: &[&str]) -> Vec<Event> {
    (1..)
        .zip(steps)
        .map(|(at_ns, step)| {
            let words: Vec<&str> = step.split(' ').collect();
            let offset: i64 = words.get(2).map_or(-1, |word| word.parse().unwrap());
            let what = match words[1] {
                "start" => What::Start,
                "success" => What::Success,
                "release" => What::Release,
                "killed" => What::Killed,
                "end" => What::End,
                other => panic!("{other}"),
            };
            let key = usize::try_from(offset).ok().and_then(|offset| records[offset].key.clone());
            Event { at_ns, member: words[0].to_owned(), what, partition: 0, offset, key, deliveries: 1 }
        })
        .collect()
}

fn judge(keys: &[&str], steps: &[&str]) -> Report {
    let records = produced(keys);
    check(&records, &events(&records, steps))
}

fn key(name: &str) -> KeyName {
    KeyName { partition: 0, key: name.to_owned() }
}

#[test]
fn an_orderly_run_is_clean() {
    let report = judge(
        &["x", "y", "x", "-", "-"],
        &[
            "a start 0",
            "b start 1",
            "b success 1",
            "b start 4",
            "a release 0",
            "b start 0",
            "b success 0",
            "a start 3",
            "b success 4",
            "a success 3",
            "a start 2",
            "a success 2",
        ],
    );
    report.expect_clean();
    assert_eq!(
        (report.records, report.keys, report.starts, report.releases, report.duplicates),
        (5, 2, 6, 1, 0)
    );
    assert_eq!(report.successes, BTreeMap::from([("a".into(), 2), ("b".into(), 3)]));
}

#[test]
fn two_members_at_one_key_are_found() {
    let report = judge(&["x"], &["a start 0", "b start 0", "a success 0", "b success 0"]);
    assert_eq!(
        report.violations,
        [Violation::Overlap { key: key("x"), first: ("a".into(), 0), second: ("b".into(), 0) }]
    );
    assert_eq!(report.duplicates, 1);
}

#[test]
fn an_overlap_behind_a_shorter_one_of_the_same_member_is_found() {
    // b's second start lies within a's long work, although b's own short one ended just before.
    let report = judge(
        &["x", "-"],
        &[
            "a start 0",
            "b start 0",
            "b release 0",
            "b start 0",
            "b success 0",
            "a success 0",
            "a start 1",
            "a success 1",
        ],
    );
    assert_eq!(report.violations.iter().filter(|v| matches!(v, Violation::Overlap { .. })).count(), 2);
}

#[test]
fn a_third_member_is_compared_with_whoever_still_works() {
    let report =
        judge(&["x"], &["a start 0", "b start 0", "b release 0", "a release 0", "c start 0", "c success 0"]);
    assert_eq!(report.order_violations(), 1);
    let report =
        judge(&["x"], &["a start 0", "b start 0", "b release 0", "c start 0", "a release 0", "c success 0"]);
    assert_eq!(
        report.violations[1],
        Violation::Overlap { key: key("x"), first: ("a".into(), 0), second: ("c".into(), 0) }
    );
}

#[test]
fn one_member_with_two_records_of_a_key_at_once_is_found() {
    let report = judge(&["x", "x"], &["a start 0", "a start 1", "a success 0", "a success 1"]);
    assert_eq!(
        report.violations,
        [Violation::Overtake { key: key("x"), earlier: 0, offset: 1, member: "a".into() }]
    );
}

#[test]
fn a_record_that_overtakes_a_released_one_is_found() {
    let report = judge(
        &["x", "x", "x"],
        &[
            "a start 0",
            "a success 0",
            "a start 1",
            "a release 1",
            "a start 2",
            "a success 2",
            "a start 1",
            "a success 1",
        ],
    );
    assert_eq!(
        report.violations,
        [
            Violation::Overtake { key: key("x"), earlier: 1, offset: 2, member: "a".into() },
            Violation::StaleEnd { key: key("x"), offset: 1, later: 2 },
        ]
    );
}

#[test]
fn a_repeat_after_a_later_success_is_a_stale_end() {
    let report = judge(
        &["x", "x"],
        &["a start 0", "a success 0", "a start 1", "a success 1", "b start 0", "b success 0"],
    );
    assert_eq!(report.violations, [Violation::StaleEnd { key: key("x"), offset: 0, later: 1 }]);
    assert_eq!(report.duplicates, 1);
}

#[test]
fn a_key_that_is_worked_off_once_more_in_order_is_a_rewind() {
    let report = judge(
        &["x", "x"],
        &[
            "a start 0",
            "a success 0",
            "a start 1",
            "a success 1",
            "b start 0",
            "b success 0",
            "c start 1",
            "c success 1",
        ],
    );
    report.expect_clean();
    assert_eq!(report.duplicates, 2);
    let rewind = Rewind { key: key("x"), offset: 0, later: 1, later_member: "a".into() };
    assert_eq!(report.rewinds, [rewind]);
}

#[test]
fn a_repeat_before_the_next_record_is_a_mere_duplicate() {
    let report = judge(
        &["x", "x"],
        &["a start 0", "a success 0", "b start 0", "b success 0", "b start 1", "b success 1"],
    );
    report.expect_clean();
    assert_eq!(report.duplicates, 1);
}

#[test]
fn what_never_succeeded_is_lost() {
    let report =
        judge(&["x", "-", "x"], &["a start 0", "a success 0", "a start 1", "a release 1", "a start 2"]);
    assert_eq!(report.lost(), 2);
    assert_eq!(report.order_violations(), 0);
    assert_eq!(report.violations[0], Violation::Lost(produced(&["x", "-", "x"])[1].clone()));
}

#[test]
fn work_of_a_killed_member_ends_with_it() {
    let clean = judge(&["x"], &["a start 0", "a killed", "b start 0", "b success 0"]);
    clean.expect_clean();
    let open = judge(&["x"], &["a start 0", "b start 0", "b success 0"]);
    assert_eq!(open.order_violations(), 1);
}

#[test]
fn a_record_that_nobody_produced_is_reported() {
    let records = produced(&["x", "y"]);
    let mut seen = events(&records, &["a start 0", "a success 0", "a start 1", "a success 1"]);
    seen[2].key = Some("z".into());
    seen[3].key = Some("z".into());
    let report = check(&records, &seen);
    assert_eq!(report.violations.len(), 2);
    assert!(matches!(&report.violations[0], Violation::Lost(record) if record.offset == 1));
    assert!(
        matches!(&report.violations[1], Violation::Unknown { record, .. } if record.key.as_deref() == Some("z"))
    );
}

#[test]
fn the_same_key_in_two_partitions_has_two_orders() {
    let mut records = produced(&["x", "x"]);
    records[1].partition = 1;
    let mut seen = events(&records, &["a start 0", "b start 1", "a success 0", "b success 1"]);
    for event in seen.iter_mut().filter(|event| event.offset == 1) {
        event.partition = 1;
    }
    let report = check(&records, &seen);
    report.expect_clean();
    assert_eq!(report.keys, 2);
}

#[test]
fn the_order_of_the_logs_does_not_matter() {
    let records = produced(&["x", "x", "y"]);
    let mut seen = events(
        &records,
        &["a start 0", "b start 1", "a success 0", "b success 1", "b start 2", "b success 2"],
    );
    let report = check(&records, &seen);
    seen.reverse();
    // Events of one member with one time keep their order, so only distinct times may be shuffled freely.
    assert_eq!(check(&records, &seen), report);
    assert_eq!(report.order_violations(), 2);
}

#[test]
fn a_violation_is_told_with_its_events() {
    let records = produced(&["x", "x", "x"]);
    let seen = events(
        &records,
        &["a start 0", "b start 1", "b success 1", "a success 0", "a start 2", "a success 2"],
    );
    let text = explain(&check(&records, &seen), &seen, 1);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Overlap"), "{text}");
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[2].ends_with("b: Start of 1, delivery 1"), "{text}");
}

#[test]
fn what_a_member_began_just_before_it_was_killed_holds_up_nobody() {
    let report = judge(&["x"], &["a killed", "a start 0", "b start 0", "b success 0"]);
    assert_eq!(report.violations, []);
    let report = judge(&["x"], &["a start 0", "b start 0", "b success 0"]);
    assert_eq!(report.order_violations(), 1, "one that lives is still at work");
}
