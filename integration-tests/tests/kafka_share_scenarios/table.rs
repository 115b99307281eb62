//! The scenarios. What stands beside a step was answered by Apache Kafka 4.4; each run asks it anew.

use integration_tests::share_member::{ACCEPT, ALL, Ask, GAP, REJECT, RELEASE, RENEW};

use super::scenario::Step::{
    Acknowledge, AcknowledgeAt, Bounce, Configure, DeleteRecords, Disconnect, Drain, Fetch, FetchAt,
    Heartbeat, Join, Produce, ProduceAged, Renew, Take, Until, Wait,
};
use super::scenario::{Difference, Scenario};

type Acks = &'static [(i64, i64, &'static [i8])];

const EARLIEST: &[(&str, &str)] = &[("share.auto.offset.reset", "earliest")];
const SHORT_LOCK: &[(&str, &str)] =
    &[("share.auto.offset.reset", "earliest"), ("share.record.lock.duration.ms", "15000")];

const FEW_LOCKS: &[(&str, &str)] =
    &[("share.auto.offset.reset", "earliest"), ("share.partition.max.record.locks", "100")];

const PLAIN: Scenario = Scenario { name: "", group: EARLIEST, data: false, steps: &[], differs: &[] };

/// What is sure to come, however long the first fetch of a group takes.
const PATIENT: Ask<'static> = Ask { wait_ms: 5_000, ..ALL };
const NOW: Ask<'static> = Ask { wait_ms: 0, ..ALL };
/// A renewal that fetches nothing.
const NOTHING: Ask<'static> =
    Ask { wait_ms: 0, bytes_min: 0, bytes_max: 0, records_max: 0, batch_size: 0, renew: true, ..ALL };

const ACCEPT_0: Acks = &[(0, 0, &[ACCEPT])];
const RENEW_0: Acks = &[(0, 0, &[RENEW])];
const RENEW_2: Acks = &[(2, 2, &[RENEW])];

const fn strict(records: i32) -> Ask<'static> {
    Ask { records_max: records, batch_size: records, mode: 1, wait_ms: 5_000, ..ALL }
}

const fn with(acks: Acks) -> Ask<'static> {
    Ask { acks, ..ALL }
}

/// All of them.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "s11_a_lock_runs_out",
        group: SHORT_LOCK,
        steps: &[
            (Produce(&[2]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-1]x1"),
            (Until(14_000), ""),
            (Fetch("b", NOW), "nothing"),
            (Take("b", ALL), "[0-1]x2"),
            (Acknowledge("a", &[(0, 1, &[ACCEPT])]), "121"),
            (Acknowledge("b", &[(0, 1, &[ACCEPT])]), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s12_a_lock_runs_out_at_the_limit",
        group: &[
            ("share.auto.offset.reset", "earliest"),
            ("share.record.lock.duration.ms", "15000"),
            ("share.delivery.count.limit", "2"),
        ],
        steps: &[
            (Produce(&[1]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0]x1"),
            (Acknowledge("a", &[(0, 0, &[RELEASE])]), "0"),
            (Take("a", ALL), "[0]x2"),
            (Until(16_500), ""),
            (Fetch("b", ALL), "nothing"),
            (Produce(&[1]), ""),
            (Take("b", ALL), "[1]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s27_a_renewal_on_a_fetch",
        group: SHORT_LOCK,
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-3]x1"),
            (Until(10_000), ""),
            (Fetch("a", Ask { acks: RENEW_2, wait_ms: 1, ..NOTHING }), "error 42"),
            (Fetch("a", Ask { acks: RENEW_2, bytes_min: 1, ..NOTHING }), "error 42"),
            (Fetch("a", Ask { acks: RENEW_2, bytes_max: 1, ..NOTHING }), "error 42"),
            (Fetch("a", Ask { acks: RENEW_2, records_max: 1, ..NOTHING }), "error 42"),
            (Fetch("a", Ask { acks: RENEW_2, ..NOTHING }), "ack 0"),
            (Until(14_000), ""),
            (Fetch("b", NOW), "nothing"),
            (Until(15_800), ""),
            (Take("b", ALL), "[0-1]x2, [3]x2"),
            (Until(24_000), ""),
            (Fetch("b", NOW), "nothing"),
            (Until(25_800), ""),
            (Take("b", ALL), "[2]x2"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s16_renewals",
        group: SHORT_LOCK,
        steps: &[
            (Produce(&[2]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-1]x1"),
            (Fetch("a", Ask { renew: true, acks: RENEW_0, ..ALL }), "error 42"),
            (Until(10_000), ""),
            (Renew("a", RENEW_0), "0"),
            (Until(15_800), ""),
            (Take("b", ALL), "[1]x2"),
            (Until(18_000), ""),
            (Acknowledge("a", ACCEPT_0), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s16_renewals_switched_off",
        group: &[("share.auto.offset.reset", "earliest"), ("share.renew.acknowledge.enable", "false")],
        steps: &[
            (Produce(&[2]), ""),
            (Join("a"), ""),
            (Take("a", ALL), "[0-1]x1"),
            (Renew("a", RENEW_0), "121"),
            (Acknowledge("a", ACCEPT_0), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s24_the_span",
        steps: &[
            (Produce(&[500, 500, 500, 500, 500, 500]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Drain("a", 0), "2000 records, 0 to 1999"),
            (Fetch("a", ALL), "nothing"),
            (Fetch("b", ALL), "nothing"),
            (Acknowledge("a", ACCEPT_0), "0"),
            (Drain("b", -1), "1000 records, 2000 to 2999"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s01_session_epochs",
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Fetch("a", PATIENT), "[0-3]x1"),
            (Fetch("a", NOW), "nothing"),
            (Fetch("a", with(&[(9, 9, &[ACCEPT])])), "ack 42"),
            (FetchAt("a", 99, ALL), "error 123"),
            (AcknowledgeAt("a", 99, ACCEPT_0), "error 123"),
            (FetchAt("a", 2, ALL), "error 123"),
            (AcknowledgeAt("a", 2, ACCEPT_0), "error 123"),
            (Acknowledge("a", ACCEPT_0), "0"),
            (FetchAt("stranger", 3, ALL), "error 122"),
            (AcknowledgeAt("stranger", 3, ACCEPT_0), "error 122"),
            (FetchAt("stranger", -1, ALL), "error 122"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s02_acknowledgements_open_no_session",
        steps: &[
            (Produce(&[2]), ""),
            (Join("a"), ""),
            (Fetch("a", PATIENT), "[0-1]x1"),
            (FetchAt("a", 0, with(ACCEPT_0)), "error 42"),
            (AcknowledgeAt("a", 0, ACCEPT_0), "error 123"),
            (Acknowledge("a", ACCEPT_0), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s03_s04_delivery_and_types_per_offset",
        steps: &[
            (Produce(&[4, 4, 4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-11]x1"),
            (Fetch("b", ALL), "nothing"),
            (Fetch("a", with(&[(0, 3, &[ACCEPT, RELEASE, REJECT, ACCEPT])])), "ack 0, [1]x2"),
            (Fetch("a", NOW), "nothing"),
            (Acknowledge("a", &[(4, 11, &[RELEASE])]), "0"),
            (Take("b", ALL), "[4-11]x2"),
            (Acknowledge("a", &[(1, 1, &[ACCEPT])]), "0"),
            (Acknowledge("b", &[(4, 11, &[ACCEPT])]), "0"),
            (Fetch("a", NOW), "nothing"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s05_malformed_acknowledgements",
        steps: &[
            (Produce(&[8]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(4)), "[0-3]x1"),
            (Take("b", strict(4)), "[4-7]x1"),
            (Acknowledge("a", &[(3, 3, &[ACCEPT]), (1, 1, &[ACCEPT])]), "42"),
            (Acknowledge("a", &[(0, 0, &[9])]), "42"),
            (Acknowledge("a", &[(0, 0, &[-1])]), "42"),
            (Acknowledge("a", &[(-5, -1, &[ACCEPT])]), "42"),
            (Acknowledge("a", &[(3, 0, &[ACCEPT])]), "42"),
            (Acknowledge("a", &[(0, 3, &[ACCEPT, ACCEPT])]), "42"),
            (Acknowledge("a", &[(0, 3, &[])]), "42"),
            (Acknowledge("a", RENEW_0), "42"),
            (Acknowledge("a", &[(0, 3, &[ACCEPT])]), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s06_acknowledgements_of_what_is_not_held",
        steps: &[
            (Produce(&[8]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(4)), "[0-3]x1"),
            (Take("b", strict(4)), "[4-7]x1"),
            (Acknowledge("a", &[(4, 4, &[ACCEPT])]), "121"),
            (Acknowledge("a", &[(3, 3, &[ACCEPT])]), "0"),
            (Acknowledge("a", &[(3, 3, &[ACCEPT])]), "121"),
            (Acknowledge("a", &[(2, 5, &[ACCEPT])]), "121"),
            (Acknowledge("a", &[(0, 1 << 62, &[ACCEPT])]), "42"),
            (Acknowledge("a", &[(0, 2, &[ACCEPT])]), "0"),
            (Acknowledge("a", &[(0, 2, &[RELEASE])]), "0"),
            (Acknowledge("b", &[(4, 7, &[ACCEPT])]), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s07_a_bad_acknowledgement_beside_a_good_fetch",
        steps: &[
            (Produce(&[8, 4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(4)), "[0-3]x1"),
            (Take("b", strict(4)), "[4-7]x1"),
            (Fetch("a", with(&[(4, 4, &[ACCEPT])])), "ack 121, [8-11]x1"),
            (Acknowledge("a", &[(0, 3, &[ACCEPT]), (8, 11, &[ACCEPT])]), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s08_closing",
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Fetch("a", PATIENT), "[0-3]x1"),
            (FetchAt("a", -1, with(ACCEPT_0)), "ack 0"),
            (Take("b", ALL), "[1-3]x2"),
            (FetchAt("a", 2, ALL), "error 122"),
            (AcknowledgeAt("a", 2, ACCEPT_0), "error 122"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s08_closing_by_an_acknowledgement",
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Fetch("a", PATIENT), "[0-3]x1"),
            (AcknowledgeAt("a", -1, &[(0, 1, &[ACCEPT])]), "0"),
            (Take("b", ALL), "[2-3]x2"),
            (AcknowledgeAt("a", -1, &[(2, 3, &[ACCEPT])]), "error 122"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s09_a_connection_is_lost",
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-3]x1"),
            (Disconnect("a"), ""),
            (Take("b", ALL), "[0-3]x2"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s10_leaving_by_heartbeat_only",
        steps: &[
            (Produce(&[4]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-3]x1"),
            (Heartbeat("a", -1, false), "0, left"),
            (Wait(1_500), ""),
            (Fetch("b", ALL), "nothing"),
            (Acknowledge("a", &[(0, 3, &[ACCEPT])]), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s12_the_delivery_limit",
        steps: &[
            (Produce(&[1]), ""),
            (Join("a"), ""),
            (Bounce("a", 6), "[0]x1; [0]x2; [0]x3; [0]x4; [0]x5; nothing"),
            (Produce(&[1]), ""),
            (Take("a", ALL), "[1]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s13_the_soft_limit",
        data: true,
        steps: &[
            (Produce(&[10]), ""),
            (Join("a"), ""),
            (Take("a", Ask { records_max: 2, ..ALL }), "[0-9]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s13_the_strict_limit",
        steps: &[(Produce(&[10]), ""), (Join("a"), ""), (Take("a", strict(2)), "[0-1]x1")],
        ..PLAIN
    },
    Scenario {
        name: "s14_latest",
        group: &[],
        steps: &[
            (Produce(&[3]), ""),
            (Join("a"), ""),
            (Fetch("a", Ask { wait_ms: 3_000, ..ALL }), "nothing"),
            (Produce(&[2]), ""),
            (Take("a", ALL), "[3-4]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s14_earliest",
        steps: &[(Produce(&[3, 2]), ""), (Join("a"), ""), (Take("a", ALL), "[0-4]x1")],
        ..PLAIN
    },
    Scenario {
        name: "s14_by_duration",
        group: &[("share.auto.offset.reset", "by_duration:PT1H")],
        steps: &[(ProduceAged(3, 2), ""), (Produce(&[2]), ""), (Join("a"), ""), (Take("a", ALL), "[3-4]x1")],
        ..PLAIN
    },
    Scenario {
        name: "s15_s30_settings_at_and_beyond_their_bounds",
        group: &[],
        steps: &[
            (Configure(&[("share.auto.offset.reset", "foo")]), "40"),
            (Configure(&[("share.auto.offset.reset", "by_duration:PT0S")]), "0"),
            (Configure(&[("share.auto.offset.reset", "by_duration:-PT1H")]), "40"),
            (Configure(&[("share.isolation.level", "x")]), "40"),
            (Configure(&[("share.isolation.level", "read_committed")]), "0"),
            (Configure(&[("no.such.setting", "1")]), "40"),
            (Configure(&[("share.record.lock.duration.ms", "14999")]), "40"),
            (Configure(&[("share.record.lock.duration.ms", "15000")]), "0"),
            (Configure(&[("share.record.lock.duration.ms", "60000")]), "0"),
            (Configure(&[("share.record.lock.duration.ms", "60001")]), "40"),
            (Configure(&[("share.delivery.count.limit", "1")]), "40"),
            (Configure(&[("share.delivery.count.limit", "2")]), "0"),
            (Configure(&[("share.delivery.count.limit", "10")]), "0"),
            (Configure(&[("share.delivery.count.limit", "11")]), "40"),
            (Configure(&[("share.session.timeout.ms", "44999")]), "40"),
            (Configure(&[("share.session.timeout.ms", "60000")]), "0"),
            (Configure(&[("share.session.timeout.ms", "60001")]), "40"),
            (Configure(&[("share.heartbeat.interval.ms", "4999")]), "40"),
            (Configure(&[("share.heartbeat.interval.ms", "15000")]), "0"),
            (Configure(&[("share.heartbeat.interval.ms", "15001")]), "40"),
            (Configure(&[("share.assignment.interval.ms", "-1")]), "40"),
            (Configure(&[("share.assignment.interval.ms", "15000")]), "0"),
            (Configure(&[("share.assignment.interval.ms", "15001")]), "40"),
            (Configure(&[("share.partition.max.record.locks", "99")]), "40"),
            (Configure(&[("share.partition.max.record.locks", "100")]), "0"),
            (Configure(&[("share.partition.max.record.locks", "4000")]), "0"),
            (Configure(&[("share.partition.max.record.locks", "4001")]), "40"),
            (Configure(&[("share.renew.acknowledge.enable", "maybe")]), "40"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s19_heartbeats",
        group: &[],
        steps: &[
            (Heartbeat("a", 0, false), "42"),
            (Heartbeat("a", 5, false), "69"),
            (Heartbeat("", 0, true), "42"),
            (Produce(&[1]), ""),
            (Join("a"), ""),
            (Heartbeat("a", 1_000, false), "110"),
            (Heartbeat("stranger", 3, false), "25"),
            (Heartbeat("a", -2, false), "42"),
            (Heartbeat("a", -1, false), "0, left"),
            (Heartbeat("a", -1, false), "25"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s22_the_soft_limit_over_batches",
        data: true,
        steps: &[
            (Produce(&[20, 20, 20, 20, 20]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", Ask { records_max: 5, batch_size: 5, ..ALL }), "[0-19]x1"),
            (Take("a", Ask { records_max: 30, batch_size: 10, ..ALL }), "[20-39]x1, [40-59]x1"),
            (Take("b", ALL), "[60-99]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s23_the_strict_limit_inside_a_batch",
        steps: &[
            (Produce(&[20, 20]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(5)), "[0-4]x1"),
            (Take("b", strict(5)), "[5-9]x1"),
            (Take("a", strict(15)), "[10-19]x1, [20-24]x1"),
            (Acknowledge("b", &[(5, 9, &[ACCEPT, RELEASE, ACCEPT, RELEASE, ACCEPT])]), "0"),
            (Take("b", strict(3)), "[6]x2, [8]x2, [25]x1"),
        ],
        differs: &[Difference {
            step: 5,
            ours: "[10-24]x1",
            why: "what adjoins and has one count is one range, whatever was cut off before",
        }],
        ..PLAIN
    },
    Scenario {
        name: "s25_near_the_delivery_limit",
        steps: &[
            (Produce(&[4, 4, 4]), ""),
            (Join("a"), ""),
            (
                Bounce("a", 30),
                "[0-11]x1; [0-11]x2; [0-11]x3; [0-5]x4; [0]x5; [1]x5; [2]x5; [3]x5; [4]x5; [5]x5; [6-11]x4; \
                 [6]x5; [7]x5; [8]x5; [9]x5; [10]x5; [11]x5; nothing",
            ),
        ],
        differs: &[Difference {
            step: 2,
            ours: "[0-11]x1; [0-11]x2; [0-11]x3; [0-5]x4; [0]x5; [1]x5; [2]x5; [3]x5; [4]x5; [5]x5; [6-8]x4; \
                   [6]x5; [7]x5; [8]x5; [9]x4; [9]x5; [10]x4; [10]x5; [11]x4; [11]x5; nothing",
            why: "a part is a half of what is left of the run; Kafka remembers how long it was",
        }],
        ..PLAIN
    },
    Scenario {
        name: "s26_two_in_one",
        steps: &[
            (Produce(&[1]), ""),
            (Join("a"), ""),
            (Take("a", ALL), "[0]x1"),
            (Fetch("a", with(&[(0, 0, &[RELEASE])])), "ack 0, [0]x2"),
            (FetchAt("a", 0, ALL), "nothing"),
            (Acknowledge("a", ACCEPT_0), "0"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s29_gaps_and_overlaps",
        steps: &[
            (Produce(&[5]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", ALL), "[0-4]x1"),
            (Acknowledge("a", &[(4, 4, &[GAP])]), "0"),
            (Acknowledge("a", &[(0, 2, &[ACCEPT]), (1, 3, &[ACCEPT])]), "42"),
            (Acknowledge("a", &[(0, 2, &[ACCEPT]), (2, 3, &[ACCEPT])]), "121"),
            (Acknowledge("a", &[(3, 3, &[ACCEPT]), (3, 3, &[ACCEPT])]), "121"),
            (Acknowledge("a", &[(0, 3, &[ACCEPT])]), "0"),
            (Fetch("b", ALL), "nothing"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "records_are_deleted_under_a_group",
        steps: &[
            (Produce(&[10, 10, 10, 10, 10]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(10)), "[0-9]x1"),
            (DeleteRecords(25), "0"),
            (Acknowledge("a", &[(3, 3, &[ACCEPT])]), "0"),
            (Acknowledge("a", &[(4, 9, &[RELEASE])]), "0"),
            (Take("b", Ask { wait_ms: 1_000, ..ALL }), "[20-49]x1"),
        ],
        differs: &[Difference {
            step: 7,
            ours: "[25-49]x1",
            why: "what lies below the start of the log is gone, though its batch is not yet",
        }],
        ..PLAIN
    },
    Scenario {
        name: "s21_the_record_locks_are_used_up",
        group: FEW_LOCKS,
        steps: &[
            (Produce(&[50, 50, 50]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(50)), "[0-49]x1"),
            (Take("b", strict(90)), "[50-99]x1"),
            (Fetch("b", ALL), "nothing"),
            (Acknowledge("a", &[(10, 19, &[ACCEPT])]), "0"),
            (Fetch("b", ALL), "nothing"),
            (Acknowledge("a", &[(0, 9, &[ACCEPT])]), "0"),
            (Take("b", strict(90)), "[100-119]x1"),
        ],
        ..PLAIN
    },
    Scenario {
        name: "s21_the_record_locks_end_inside_a_batch",
        group: FEW_LOCKS,
        steps: &[
            (Produce(&[60, 60]), ""),
            (Join("a"), ""),
            (Join("b"), ""),
            (Take("a", strict(90)), "[0-89]x1"),
            (Take("b", strict(90)), "[90-119]x1"),
        ],
        differs: &[Difference {
            step: 4,
            ours: "[90-99]x1",
            why: "the bound is kept; Kafka counts the rest of a batch that it cut as in flight already",
        }],
        ..PLAIN
    },
];
