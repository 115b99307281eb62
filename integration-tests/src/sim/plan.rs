//! What a seed stands for: topics, groups, clients and how unkind the world is. Each run draws its own mixture, so
//! that rare combinations meet.

use std::sync::Arc;

use coordinator::share::{Poison, ShareAssignment, ShareConfig, ShareOrder, ShareReset, WindowLimits};
use records::Codec;

use super::node::DEAD_LETTERS;
use super::random::Random;

/// The ways of poison; skipping is Kafka's.
pub const POISON: [Poison; 5] =
    [Poison::Skip, Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park];

/// In so many worlds of a hundred little is said.
const QUIET_PERCENT: u64 = 15;
/// Members of a group there.
const QUIET_MEMBERS_MAX: usize = 2;
/// How often they send a heartbeat, milliseconds.
const QUIET_HEARTBEAT_MS: i32 = 15_000;
/// How long its locks last, milliseconds.
const QUIET_LOCK_MS: i64 = 2_000;
/// Percent of records on which work outlasts the lock, at least.
const QUIET_SLOW_PERCENT: u64 = 5;

/// A share group and its members.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Its name.
    pub name: Arc<str>,
    /// Its settings.
    pub config: Arc<ShareConfig>,
    /// How its members behave.
    pub members: Vec<Manners>,
    /// Readers without membership, in its stead.
    pub standalone: Vec<StandalonePlan>,
}

/// A reader without membership.
#[derive(Clone, Copy, Debug)]
pub struct StandalonePlan {
    /// Percent of its sessions in which it takes more than its lane.
    pub greedy_percent: u64,
    /// Percent of its requests before which it leaves.
    pub leave_percent: u64,
    /// Percent of what it is done with that it commits, instead of acknowledging.
    pub commit_percent: u64,
    /// Percent of commits that name what lies between, too.
    pub wide_percent: u64,
}

/// How a member's client behaves (`share-clients.md`: who fetches ahead, when acknowledgements leave, what follows a
/// lost connection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Java: fetches when its buffer is empty, acknowledgements ride on that fetch.
    JavaPoll,
    /// Java with a commit after each record, and one fetch ahead now and then.
    JavaCommit,
    /// franz-go: always a fetch ahead; acknowledges in between.
    Franz,
    /// librdkafka: a fetch a poll; leaves by heartbeat before it closes its session.
    Rdkafka,
    /// The key-share client: delivery numbers, heeds recalls.
    KeyShare,
}

/// One producer.
#[derive(Clone, Copy, Debug)]
pub struct ProducerPlan {
    /// Sequence numbers, and endless retries of a batch.
    pub idempotent: bool,
    /// Waits for the sync.
    pub acks_all: bool,
    /// How it compresses.
    pub codec: Codec,
    /// Records that it sends in all.
    pub records: u64,
    /// Records of a batch at most.
    pub batch_max: u64,
    /// Between two batches, at most, microseconds.
    pub pause_us_max: u64,
}

/// One transactional producer.
#[derive(Clone, Copy, Debug)]
pub struct TransactorPlan {
    /// What it writes, and how.
    pub records: ProducerPlan,
    /// Percent of transactions that it takes back.
    pub abort_percent: u64,
    /// Percent of batches behind which it waits for long.
    pub waits_percent: u64,
    /// For how long, at most, microseconds.
    pub wait_us: u64,
    /// Each transaction has an epoch of its own (KIP-890).
    pub bumps_epochs: bool,
}

/// The dead-letter topic.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetterPlan {
    /// Its partitions.
    pub partitions: i32,
    /// It is made after so long, milliseconds.
    pub made_after_ms: u64,
    /// Share groups may write to it after so long.
    pub enabled_after_ms: u64,
}

/// What operators do.
#[derive(Clone, Copy, Debug)]
pub struct OperatorPlan {
    /// Between two commands, at most, milliseconds; 0: there is no operator.
    pub every_ms: u64,
    /// Share-partitions are reset, too.
    pub resets: bool,
}

/// How often what goes wrong. "One in n"; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Between two happenings of the world, milliseconds on average.
    pub every_ms: u64,
    /// Weights of the happenings: connection breaks, answer stalls, member leaves, member dies, clean stop, kill,
    /// power cut, sync fails, disk is full for a while, wall clock steps, records are deleted, a group gets other settings.
    pub weights: [u64; 12],
    /// An append to a log fails, one in so many.
    pub append_fails: u64,
    /// An append of share events or a snapshot fails.
    pub events_fail: u64,
    /// A read fails.
    pub read_fails: u64,
    /// A kill comes right behind a share reply, one in so many.
    pub kill_behind_reply: u64,
}

/// Everything that a run draws before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Partitions of the topic.
    pub partitions: i32,
    /// How many different keys.
    pub keys: u64,
    /// Percent of records without a key.
    pub keyless_percent: u64,
    /// Share groups.
    pub groups: Vec<GroupPlan>,
    /// Producers.
    pub producers: Vec<ProducerPlan>,
    /// Transactional producers.
    pub transactors: Vec<TransactorPlan>,
    /// Plain consumers.
    pub readers: usize,
    /// Clients that commit offsets.
    pub committers: usize,
    /// The longest ordinary disk operation, microseconds.
    pub disk_us_max: u64,
    /// The longest sync.
    pub sync_us_max: u64,
    /// The longest way over the network.
    pub net_us_max: u64,
    /// The longest that a round waits for its thread.
    pub round_us_max: u64,
    /// Ordinary work on one record at most, microseconds.
    pub work_us_max: u64,
    /// Percent of records on which work outlasts the lock.
    pub slow_percent: u64,
    /// Percent of records that are released, and that are rejected.
    pub release_percent: u64,
    /// See above.
    pub reject_percent: u64,
    /// Where dead letters go.
    pub dead_letters: DeadLetterPlan,
    /// What operators do.
    pub operator: OperatorPlan,
    /// Event bytes behind a snapshot.
    pub snapshot_after_bytes: u64,
    /// What share-partitions keep in memory.
    pub window: Arc<WindowLimits>,
    /// Bytes of a scan.
    pub scan_bytes_max: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// How long it may go wrong, milliseconds.
    pub chaos_ms: u64,
}

impl Plan {
    /// What `seed` stands for.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x51ce_5eed);
        let random = &mut random;
        let calm = random.percent(15);
        let partitions = random.pick(&[1, 1, 1, 2, 3]);
        let group_count = random.pick(&[1, 1, 1, 2]);
        let keys = random.pick(&[1, 2, 5, 20, 200]);
        let records = random.pick(&[40, 80, 120, 200]);
        let producers = random.between(1, 3);
        let transactors = random.pick(&[0, 0, 1, 1, 2]);
        let share = records / (producers + transactors) + 1;
        let mut plan = Self {
            partitions,
            keys,
            keyless_percent: random.pick(&[0, 0, 10, 50, 100]),
            groups: (0..group_count).map(|index| group(random, index)).collect(),
            producers: (0..producers).map(|_| producer(random, share)).collect(),
            transactors: (0..transactors).map(|_| transactor(random, share)).collect(),
            readers: random.index(2),
            committers: random.index(2),
            disk_us_max: random.pick(&[50, 300, 5_000]),
            sync_us_max: random.pick(&[500, 5_000, 40_000]),
            net_us_max: random.pick(&[100, 1_000, 20_000]),
            round_us_max: random.pick(&[0, 50, 2_000]),
            work_us_max: random.pick(&[100, 5_000, 100_000, 1_000_000]),
            slow_percent: random.pick(&[0, 0, 1, 3]),
            release_percent: random.pick(&[0, 5, 15, 40]),
            reject_percent: random.pick(&[0, 0, 2, 10]),
            dead_letters: DeadLetterPlan {
                partitions: random.pick(&[1, 1, 2]),
                made_after_ms: random.pick(&[0, 0, 3_000, 60_000]),
                enabled_after_ms: random.pick(&[0, 0, 0, 10_000]),
            },
            operator: OperatorPlan {
                every_ms: random.pick(&[0, 0, 200, 2_000, 10_000]),
                resets: random.percent(20),
            },
            snapshot_after_bytes: random.pick(&[200, 2_000, 1 << 20]),
            window: Arc::new(window(random)),
            scan_bytes_max: random.pick(&[100, 1_000, 1 << 20]),
            segment_bytes: random.pick(&[1_500, 1 << 20]),
            faults: if calm { Faults::default() } else { faults(random) },
            chaos_ms: random.pick(&[5_000, 30_000, 90_000]),
        };
        if random.percent(QUIET_PERCENT) {
            plan.be_quiet();
        }
        plan
    }

    /// Next to nobody says anything of his own accord: what the shard does not do by its own deadlines stays undone.
    fn be_quiet(&mut self) {
        (self.readers, self.committers, self.operator.every_ms) = (0, 0, 0);
        self.slow_percent = self.slow_percent.max(QUIET_SLOW_PERCENT);
        self.groups.truncate(1);
        for group in &mut self.groups {
            group.members.truncate(QUIET_MEMBERS_MAX);
            group.standalone.truncate(QUIET_MEMBERS_MAX);
            let config = Arc::make_mut(&mut group.config);
            config.heartbeat_interval_ms = QUIET_HEARTBEAT_MS;
            config.window_bytes_max = ShareConfig::default().window_bytes_max;
            config.lock_ms = QUIET_LOCK_MS;
        }
    }
}

fn group(random: &mut Random, index: usize) -> GroupPlan {
    let keyed = random.percent(85);
    let poison = random.pick(&POISON);
    let named = matches!(poison, Poison::DeadLetter | Poison::Follow) || random.percent(50);
    let config = ShareConfig {
        order: if keyed { ShareOrder::Key } else { ShareOrder::None },
        assignment: if random.percent(40) { ShareAssignment::Sticky } else { ShareAssignment::Dynamic },
        reset: ShareReset::Earliest,
        read_committed: random.percent(60),
        lock_ms: random.pick(&[2_000, 15_000, 15_000, 30_000]),
        delivery_count_max: random.pick(&[2, 3, 5, 5, 10]),
        record_locks_max: random.pick(&[100, 2_000, 2_000]),
        key_inflight_max: random.pick(&[1, 1, 1, 2, 5]),
        poison,
        dead_letter_topic: named.then(|| Arc::from(DEAD_LETTERS)),
        dead_letter_copy: random.percent(50),
        backoff_ms: random.pick(&[0, 0, 0, 300, 3_000]),
        backoff_max_ms: random.pick(&[1_000, 20_000]),
        disconnect_grace_ms: random.pick(&[None, None, None, Some(0), Some(60_000)]),
        hold_target_ms: random.pick(&[0, 0, 100]),
        window_bytes_max: random.pick(&[2_048, 4_096, 16 << 20, 16 << 20]),
        stuck_keys_max: random.pick(&[2, 1_000_000, 1_000_000]),
        sync_ms: random.pick(&[20, 100, 100]),
        heartbeat_interval_ms: 5_000,
        session_timeout_ms: 45_000,
        ..ShareConfig::default()
    };
    let manners =
        [Manners::JavaPoll, Manners::JavaCommit, Manners::Franz, Manners::Rdkafka, Manners::KeyShare];
    let mixed = random.percent(70);
    let one = random.pick(&manners);
    let count = random.between(1, 5);
    let members = (0..count).map(|_| if mixed { random.pick(&manners) } else { one }).collect();
    let name = Arc::from(format!("g{index}"));
    if keyed && random.percent(20) {
        let standalone = (0..count).map(|_| standalone(random)).collect();
        return GroupPlan { name, config: Arc::new(config), members: Vec::new(), standalone };
    }
    GroupPlan { name, config: Arc::new(config), members, standalone: Vec::new() }
}

fn standalone(random: &mut Random) -> StandalonePlan {
    StandalonePlan {
        greedy_percent: random.pick(&[0, 0, 10, 50]),
        leave_percent: random.pick(&[0, 1, 10]),
        commit_percent: random.pick(&[0, 50, 100]),
        wide_percent: random.pick(&[0, 0, 30]),
    }
}

/// Mostly so little that keys are kept as spans and waiting ones page out all the time.
fn window(random: &mut Random) -> WindowLimits {
    if random.percent(30) {
        return WindowLimits::default();
    }
    WindowLimits {
        spill_from_parts: random.pick(&[4, u64::MAX]),
        read_far_bytes: if random.percent(50) { 0 } else { 8 << 20 },
        key_queued_max: random.pick(&[[3, 2, 1], [2, 1, 1], [512, 128, 16]]),
        look_ups_max: random.pick(&[1, 4]),
        waits_max: random.pick(&[0, 1, 3, 16_384]),
        page_keys_max: random.pick(&[1, 2, 3_000]),
        page_lead_ms: random.pick(&[0, 500]),
        chunk_inline_bytes_max: random.pick(&[0, 10, 512]),
        marks_max: random.pick(&[0, 2, 8_000]),
    }
}

fn producer(random: &mut Random, records: u64) -> ProducerPlan {
    ProducerPlan {
        idempotent: random.percent(60),
        acks_all: random.percent(70),
        codec: random.pick(&[Codec::None, Codec::None, Codec::Lz4, Codec::Zstd]),
        records,
        batch_max: random.pick(&[1, 3, 10]),
        pause_us_max: random.pick(&[1_000, 50_000, 500_000]),
    }
}

fn transactor(random: &mut Random, records: u64) -> TransactorPlan {
    TransactorPlan {
        records: producer(random, records),
        abort_percent: random.pick(&[10, 40, 90]),
        waits_percent: random.pick(&[0, 5, 30]),
        wait_us: random.pick(&[2_000_000, 20_000_000]),
        bumps_epochs: random.percent(50),
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut weights = [0; 12];
    for weight in &mut weights {
        *weight = if random.percent(50) { random.between(1, 10) } else { 0 };
    }
    Faults {
        every_ms: random.pick(&[200, 1_000, 4_000]),
        weights,
        append_fails: random.pick(&[0, 0, 50]),
        events_fail: random.pick(&[0, 0, 20, 100]),
        read_fails: random.pick(&[0, 0, 50]),
        kill_behind_reply: random.pick(&[0, 0, 0, 60]),
    }
}
