//! The broker's own settings: THE table of names, defaults and meanings.
//!
//! Names and defaults are Apache Kafka 4.4's (`KafkaConfig`, `SocketServerConfigs`, `GroupCoordinatorConfig`,
//! `ServerLogConfigs`) where Kafka has the setting. Ours begin with `sluice.` or stand under `group.sluice.`.

use super::definition::{Definition, Kind};

const I32: Kind = Kind::Int(i32::MIN, i32::MAX);
const I32_FROM_0: Kind = Kind::Int(0, i32::MAX);
const I32_FROM_1: Kind = Kind::Int(1, i32::MAX);
const I64: Kind = Kind::Long(i64::MIN, i64::MAX);
const I64_FROM_0: Kind = Kind::Long(0, i64::MAX);
const I64_FROM_MINUS_1: Kind = Kind::Long(-1, i64::MAX);
const FOREVER: Option<&str> = Some("9223372036854775807");

/// `sluice.share.assignment`.
pub(super) const ASSIGNMENT: Kind = Kind::Choice(&["dynamic", "sticky"]);
/// `sluice.share.poison`.
pub(super) const POISON: Kind = Kind::Choice(&["auto", "skip", "dead-letter", "follow", "park"]);
/// `sluice.share.window.bytes`.
pub(super) const WINDOW_BYTES: Kind = Kind::Long(1 << 16, 1 << 34);
/// `sluice.share.stuck.keys.max`.
pub(super) const STUCK_KEYS: Kind = Kind::Long(1, 100_000_000);
/// `sluice.share.sync.ms`.
pub(super) const SYNC_MS: Kind = Kind::Long(0, 10_000);

/// `flush.policy`.
pub(super) const FLUSH_POLICY: Kind = Kind::Choice(&["acks", "interval", "os"]);

const fn on(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Definition {
    Definition::new(name, kind, default, doc)
}

/// Every setting that a configuration file may hold and that has an effect.
#[rustfmt::skip] // one setting a line
pub const BROKER: &[Definition] = &[
    // Identity and listeners.
    on("node.id", I32_FROM_0, None, "The number of this node in what clients are told."),
    on("broker.id", I32, None, "Older name of node.id."),
    on("listeners", Kind::Text, Some("PLAINTEXT://127.0.0.1:9092"), "Where to listen: PLAINTEXT://HOST:PORT; an empty host means every address, port 0 any free port."),
    on("advertised.listeners", Kind::Text, None, "What clients are told to connect to; the listener's own address where unset."),
    on("log.dirs", Kind::Text, None, "The data directory (one)."),
    on("log.dir", Kind::Text, Some("./sluice-data"), "The data directory, where log.dirs is unset."),
    // Connections.
    on("socket.request.max.bytes", I32_FROM_1, Some("104857600"), "A longer request closes its connection before anything is allocated for it."),
    on("connections.max.idle.ms", I64_FROM_0, Some("600000"), "A connection without progress for so long is closed."),
    on("max.connections", I32_FROM_0, Some("2147483647"), "So many connections are served at a time; others wait to be accepted."),
    on("queued.max.request.bytes", I64_FROM_MINUS_1, Some("-1"), "Memory for requests that are being read or served; reading pauses beyond it. -1: the broker's own bound of 512 MiB."),
    // Topics.
    on("num.partitions", I32_FROM_1, Some("1"), "Partitions of a topic that does not say how many."),
    on("default.replication.factor", I32_FROM_1, Some("1"), "Replicas of a topic that does not say how many; only 1 can be met."),
    on("auto.create.topics.enable", Kind::Boolean, Some("true"), "Whether asking for a topic that does not exist creates it."),
    on("delete.topic.enable", Kind::Boolean, Some("true"), "Whether topics can be deleted."),
    on("message.max.bytes", I32_FROM_0, Some("1048588"), "Largest batch a topic takes, as sent."),
    on("max.decompressed.message.bytes", I32_FROM_1, Some("2147483639"), "Largest record of a compressed batch that a topic takes. A batch unpacks to 64 MiB at most, whatever is set."),
    on("min.insync.replicas", I32_FROM_1, Some("1"), "Shown to tools; there is one replica."),
    on("compression.type", Kind::Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Some("producer"), "Codec of stored batches; producer keeps what was sent. A batch of another codec is packed anew, which costs the broker time; max.message.bytes holds for what was sent and for what is stored."),
    on("compression.gzip.level", Kind::MinusOneOr(1, 9), Some("-1"), "Level of gzip where the broker compresses; -1: zlib's own."),
    on("compression.lz4.level", Kind::Int(1, 17), Some("9"), "Kept and shown, without effect: the broker's lz4 has one level."),
    on("compression.zstd.level", Kind::Int(-131_072, 22), Some("3"), "Level of zstd where the broker compresses."),
    on("unclean.leader.election.enable", Kind::Boolean, Some("false"), "Shown to tools; there is one replica."),
    on("log.cleanup.policy", Kind::List(&["compact", "delete"]), Some("delete"), "How old records leave a topic."),
    on("log.segment.bytes", Kind::Int(1 << 20, i32::MAX), Some("1073741824"), "A log file is closed at this size."),
    on("log.roll.ms", Kind::Long(1, i64::MAX), None, "A log file is closed at this age."),
    on("log.roll.hours", I32_FROM_1, Some("168"), "The same in hours, where log.roll.ms is unset."),
    on("log.roll.jitter.ms", I64_FROM_0, None, "Spread of that age."),
    on("log.roll.jitter.hours", I32_FROM_0, Some("0"), "The same in hours, where log.roll.jitter.ms is unset."),
    on("log.retention.ms", I64_FROM_MINUS_1, None, "Records older than this may be deleted; -1: never."),
    on("log.retention.minutes", I32, None, "The same in minutes, where log.retention.ms is unset."),
    on("log.retention.hours", I32, Some("168"), "The same in hours, where the two others are unset."),
    on("log.retention.bytes", I64, Some("-1"), "A partition may be cut to this size; -1: no bound."),
    on("log.retention.check.interval.ms", Kind::Long(1, i64::MAX), Some("300000"), "How often old records are looked for."),
    on("log.index.interval.bytes", I32_FROM_0, Some("4096"), "Bytes of log per entry of the offset index."),
    on("log.index.size.max.bytes", Kind::Int(4, i32::MAX), Some("10485760"), "Largest offset index of a log file."),
    on("log.segment.delete.delay.ms", I64_FROM_0, Some("60000"), "How long the files of deleted records stay under another name."),
    on("log.flush.policy", FLUSH_POLICY, Some("acks"), "When what is appended is synced to disk. acks: before acks=all is answered. interval: log.flush.interval.ms after it was written, at most a second; os: when a log file is full. With these two acks=all is answered when it is written: a power cut may take the last moments, a crash of the broker takes nothing."),
    on("log.flush.interval.messages", Kind::Long(1, i64::MAX), FOREVER, "Shown to tools; what acks=all answers is synced already."),
    on("log.flush.interval.ms", I64_FROM_0, None, "With log.flush.policy=interval: how long after a write it is synced, at most a second."),
    on("log.flush.scheduler.interval.ms", I64_FROM_0, FOREVER, "Shown to tools; what acks=all answers is synced already."),
    on("log.preallocate", Kind::Boolean, Some("false"), "Shown to tools; files grow as they are written."),
    on("log.message.timestamp.type", Kind::Choice(&["CreateTime", "LogAppendTime"]), Some("CreateTime"), "Whose clock stamps records: the producer's or the broker's."),
    on("log.message.timestamp.before.max.ms", I64_FROM_0, FOREVER, "How far a producer's timestamp may lie in the past."),
    on("log.message.timestamp.after.max.ms", I64_FROM_0, Some("3600000"), "How far a producer's timestamp may lie in the future."),
    on("log.cleaner.enable", Kind::Boolean, Some("true"), "Whether topics whose cleanup.policy holds compact are compacted, __consumer_offsets among them."),
    on("log.cleaner.threads", I32_FROM_0, Some("1"), "Logs that are compacted at a time."),
    on("log.cleaner.io.max.bytes.per.second", Kind::Double(1.0, f64::MAX), Some("1.7976931348623157E308"), "Bytes that compaction reads and writes in a second, over all threads."),
    on("log.cleaner.dedupe.buffer.size", Kind::Long(1 << 20, i64::MAX), Some("134217728"), "Most memory that finds the last record of each key, over all threads; taken while a log is compacted, as far as it is needed."),
    on("log.cleaner.io.buffer.size", I32_FROM_0, Some("524288"), "Bytes that compaction reads and writes at once, over all threads."),
    on("log.cleaner.io.buffer.load.factor", Kind::Double(0.01, 1.0), Some("0.9"), "How full that memory may become before the rest is left to the next compaction."),
    on("log.cleaner.backoff.ms", I64_FROM_0, Some("15000"), "How long compaction waits where no log needed it."),
    on("log.cleaner.delete.retention.ms", I64_FROM_0, Some("86400000"), "How long deletion marks stay in a compacted topic."),
    on("log.cleaner.min.compaction.lag.ms", I64_FROM_0, Some("0"), "Younger records are not compacted."),
    on("log.cleaner.max.compaction.lag.ms", Kind::Long(1, i64::MAX), FOREVER, "Older records are compacted in any case."),
    on("log.cleaner.min.cleanable.ratio", Kind::Double(0.0, 1.0), Some("0.5"), "Share of uncompacted bytes from which a log is compacted."),
    on("log.local.retention.ms", Kind::Long(-2, i64::MAX), Some("-2"), "Shown to tools; there is no tiered storage."),
    on("log.local.retention.bytes", Kind::Long(-2, i64::MAX), Some("-2"), "Shown to tools; there is no tiered storage."),
    on("log.remote.copy.lag.ms", Kind::Long(-1, i64::MAX), Some("0"), "Shown to tools; there is no tiered storage."),
    on("log.remote.copy.lag.bytes", Kind::Long(-1, i64::MAX), Some("-1"), "Shown to tools; there is no tiered storage."),
    // Producers.
    on("producer.id.expiration.ms", I32_FROM_1, Some("86400000"), "A producer that is silent for so long is forgotten."),
    // Fetches.
    on("fetch.max.bytes", Kind::Int(1024, i32::MAX), Some("57671680"), "Largest answer to a fetch, whatever the client asks."),
    on("max.incremental.fetch.session.cache.slots", I32_FROM_0, Some("1000"), "Fetch sessions that are kept."),
    // Groups.
    on("group.min.session.timeout.ms", I32, Some("6000"), "Shortest session timeout a member may ask for."),
    on("group.max.session.timeout.ms", I32, Some("1800000"), "Longest session timeout a member may ask for."),
    on("group.initial.rebalance.delay.ms", I32_FROM_0, Some("3000"), "How long the first rebalance of an empty group waits for more members."),
    on("group.max.size", I32_FROM_1, Some("2147483647"), "Most members of a group."),
    on("offsets.topic.num.partitions", Kind::Int(1, 10_000), Some("50"), "Partitions of __consumer_offsets; fixed once it exists."),
    on("offsets.topic.segment.bytes", I32_FROM_1, Some("104857600"), "Size of log files of __consumer_offsets."),
    on("offsets.retention.minutes", I32_FROM_1, Some("10080"), "How long offsets of an empty group are kept."),
    on("offset.metadata.max.bytes", I32_FROM_0, Some("4096"), "Longest text a client may commit beside an offset."),
    on("group.consumer.session.timeout.ms", I32_FROM_1, Some("45000"), "A member of a consumer group that is silent for so long has left."),
    on("group.consumer.min.session.timeout.ms", I32_FROM_1, Some("45000"), "Least consumer.session.timeout.ms of a group."),
    on("group.consumer.max.session.timeout.ms", I32_FROM_1, Some("60000"), "Largest consumer.session.timeout.ms of a group."),
    on("group.consumer.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "How often members of consumer groups are told to report."),
    on("group.consumer.min.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "Least consumer.heartbeat.interval.ms of a group."),
    on("group.consumer.max.heartbeat.interval.ms", I32_FROM_1, Some("15000"), "Largest consumer.heartbeat.interval.ms of a group."),
    on("group.consumer.assignment.interval.ms", I32_FROM_0, Some("1000"), "Least time between two assignments of a consumer group of the newer protocol."),
    on("group.consumer.min.assignment.interval.ms", I32_FROM_0, Some("0"), "Least consumer.assignment.interval.ms of a group."),
    on("group.consumer.max.assignment.interval.ms", I32_FROM_0, Some("15000"), "Largest consumer.assignment.interval.ms of a group."),
    // Streams groups.
    on("group.streams.session.timeout.ms", I32_FROM_1, Some("45000"), "A member of a streams group that is silent for so long has left."),
    on("group.streams.min.session.timeout.ms", I32_FROM_1, Some("45000"), "Least streams.session.timeout.ms of a group."),
    on("group.streams.max.session.timeout.ms", I32_FROM_1, Some("60000"), "Largest streams.session.timeout.ms of a group."),
    on("group.streams.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "How often members of streams groups are told to report."),
    on("group.streams.min.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "Least streams.heartbeat.interval.ms of a group."),
    on("group.streams.max.heartbeat.interval.ms", I32_FROM_1, Some("15000"), "Largest streams.heartbeat.interval.ms of a group."),
    on("group.streams.assignment.interval.ms", I32_FROM_0, Some("1000"), "Least time between two assignments of a streams group."),
    on("group.streams.min.assignment.interval.ms", I32_FROM_0, Some("0"), "Least streams.assignment.interval.ms of a group."),
    on("group.streams.max.assignment.interval.ms", I32_FROM_0, Some("15000"), "Largest streams.assignment.interval.ms of a group."),
    on("group.streams.num.standby.replicas", I32_FROM_0, Some("0"), "Standby tasks of a streams group."),
    on("group.streams.max.standby.replicas", I32_FROM_0, Some("2"), "Largest streams.num.standby.replicas of a group."),
    on("group.streams.initial.rebalance.delay.ms", I32_FROM_0, Some("3000"), "How long the first assignment of a streams group waits for more members."),
    on("group.streams.assignors", Kind::List(&["sticky"]), Some("sticky"), "Ways of assigning the tasks of streams groups, the default first."),
    on("group.streams.rack.aware.assignment.tags", Kind::List(&[]), Some(""), "Client tags by which standby tasks of streams groups are spread."),
    // Share groups.
    on("group.share.max.size", Kind::Int(1, 1_000), Some("200"), "Most members of a share group."),
    on("group.share.max.share.sessions", I32_FROM_1, Some("2000"), "Most share sessions of this broker."),
    on("group.share.session.timeout.ms", I32_FROM_1, Some("45000"), "A member silent for so long has left."),
    on("group.share.min.session.timeout.ms", I32_FROM_1, Some("45000"), "Least share.session.timeout.ms of a group."),
    on("group.share.max.session.timeout.ms", I32_FROM_1, Some("60000"), "Largest share.session.timeout.ms of a group."),
    on("group.share.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "How often members are told to report."),
    on("group.share.min.heartbeat.interval.ms", I32_FROM_1, Some("5000"), "Least share.heartbeat.interval.ms of a group."),
    on("group.share.max.heartbeat.interval.ms", I32_FROM_1, Some("15000"), "Largest share.heartbeat.interval.ms of a group."),
    on("group.share.record.lock.duration.ms", Kind::Int(1_000, 3_600_000), Some("30000"), "How long a record stays with the member that took it."),
    on("group.share.min.record.lock.duration.ms", Kind::Int(1_000, 30_000), Some("15000"), "Least share.record.lock.duration.ms of a group."),
    on("group.share.max.record.lock.duration.ms", Kind::Int(30_000, 3_600_000), Some("60000"), "Largest share.record.lock.duration.ms of a group."),
    on("group.share.delivery.count.limit", Kind::Int(2, 25), Some("5"), "How often a record is delivered at most."),
    on("group.share.min.delivery.count.limit", Kind::Int(2, 5), Some("2"), "Least share.delivery.count.limit of a group."),
    on("group.share.max.delivery.count.limit", Kind::Int(5, 25), Some("10"), "Largest share.delivery.count.limit of a group."),
    on("group.share.partition.max.record.locks", Kind::Int(100, 10_000), Some("2000"), "Records of a partition that may be with members at a time."),
    on("group.share.min.partition.max.record.locks", Kind::Int(100, 2_000), Some("100"), "Least share.partition.max.record.locks of a group."),
    on("group.share.max.partition.max.record.locks", Kind::Int(2_000, 10_000), Some("4000"), "Largest share.partition.max.record.locks of a group."),
    on("group.share.assignment.interval.ms", I32_FROM_0, Some("1000"), "Least time between two assignments of a share group."),
    on("group.share.min.assignment.interval.ms", I32_FROM_0, Some("0"), "Least share.assignment.interval.ms of a group."),
    on("group.share.max.assignment.interval.ms", I32_FROM_0, Some("15000"), "Largest share.assignment.interval.ms of a group."),
    // Dead letters.
    on("errors.deadletterqueue.auto.create.topics.enable", Kind::Boolean, Some("false"), "Whether a dead-letter topic that a share group names and that is missing is created, with num.partitions partitions and errors.deadletterqueue.group.enable=true, when there is something to write to it."),
    on("errors.deadletterqueue.topic.name.prefix", Kind::Text, Some("dlq."), "What the name of a dead-letter topic must begin with; empty: anything."),
    // Key order.
    on("group.sluice.share.order", Kind::Choice(&["none", "key"]), Some("none"), "Order of share groups that do not say which: none, or every key in order."),
    on("group.sluice.share.key.max.inflight", Kind::Int(1, 1_000), Some("1"), "Records of a key that a member may hold at a time."),
    on("group.sluice.share.assignment", ASSIGNMENT, Some("dynamic"), "Which member takes a ready key. dynamic: any that is free. sticky: its home among the members at work."),
    on("group.sluice.share.poison", POISON, Some("auto"), "What becomes of a record that is rejected, delivered too often, or cannot be read."),
    on("group.sluice.share.retry.backoff.ms", Kind::Long(0, 3_600_000), Some("0"), "How long a key waits after its first release; doubled each time."),
    on("group.sluice.share.retry.backoff.max.ms", Kind::Long(0, 86_400_000), Some("60000"), "Longest such wait."),
    on("group.sluice.share.disconnect.grace.ms", Kind::Long(-1, 3_600_000), Some("-1"), "How long a member without a connection keeps its records; -1: one and a half heartbeat intervals."),
    on("group.sluice.share.hold.target.ms", Kind::Long(0, 3_600_000), Some("100"), "A member holds about as many records as it works off in this time; 0: no such bound."),
    on("group.sluice.share.window.bytes", WINDOW_BYTES, Some("16777216"), "Memory of one share-partition."),
    on("group.sluice.share.stuck.keys.max", STUCK_KEYS, Some("1000000"), "Scanning of a share-partition stops at so many waiting or parked keys."),
    on("group.sluice.share.sync.ms", SYNC_MS, Some("100"), "Acknowledgements are synced to disk at the latest after this time."),
    // Operations.
    on("sluice.metrics.listen", Kind::Text, Some(""), "HOST:PORT at which Prometheus may read metrics; empty: nowhere."),
    on("sluice.metrics.logs.max", Kind::Int(0, 10_000), Some("100"), "How many logs, the largest first, have series of their own among the metrics; sums over all logs are there in any case."),
];

/// Settings that Kafka users have in their files and that mean nothing here: taken, and said so in the log.
pub const WITHOUT_EFFECT: &[&str] = &[
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "num.network.threads",
    "num.io.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "background.threads",
    "queued.max.requests",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "socket.listen.backlog.size",
    "offsets.topic.replication.factor",
    "offsets.topic.compression.codec",
    "offsets.load.buffer.size",
    "offsets.retention.check.interval.ms",
    "offsets.commit.timeout.ms",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.segment.bytes",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "group.coordinator.rebalance.protocols",
    "group.coordinator.threads",
    "group.coordinator.append.linger.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "metadata.log.dir",
    "controlled.shutdown.enable",
    "broker.rack",
];
