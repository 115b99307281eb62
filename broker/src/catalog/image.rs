//! All topics and group configurations at one moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coordinator::command::{PartitionRole, TopicImage};
use records::batch::Packing;
use records::batch::validate::Rules;
use records::ids::{PartitionId, TopicId};
use records::{Codec, TimestampType};
use storage::{FlushPolicy, LogConfig};

use super::names::{NameError, metric_name};
use crate::config::definition::list;
use crate::config::topic::INTERNAL_SEGMENT_BYTES;
use crate::config::{Config, Overrides};
use crate::executor::OpenPartition;

/// A topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
    /// How many partitions, from 0.
    pub partitions: i32,
    /// What was set on it.
    pub configs: Overrides,
    /// Clients may not write to it.
    pub internal: bool,
    /// How its batches are packed; `None`: as they came.
    pub packing: Option<Packing>,
    rules: Rules,
}

/// With `flush.policy=interval` a log is synced this often at least: Kafka's own default of `flush.ms` is never.
const FLUSH_MS_MAX: i64 = 1_000;

impl Topic {
    /// A topic with these settings over the broker's.
    #[must_use]
    pub fn new(config: &Config, name: Arc<str>, id: TopicId, partitions: i32, configs: Overrides) -> Self {
        let internal = super::INTERNAL_TOPICS.contains(&&*name);
        let rules = rules(config, &configs);
        let packing = packing(config, &configs);
        Self { name, id, partitions, configs, internal, packing, rules }
    }

    /// The partition with this index, which may be any number.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<PartitionId> {
        (0..self.partitions).contains(&index).then_some(PartitionId { topic: self.id, index })
    }

    /// The settings of its logs.
    #[must_use]
    pub fn log_config(&self, config: &Config) -> LogConfig {
        let number = |name| config.topic_number(name, &self.configs);
        let size = |name| number(name).unsigned_abs();
        let policy = config.topic_text("cleanup.policy", &self.configs);
        let own_segment = self.configs.get(INTERNAL_SEGMENT_BYTES.name).and_then(|bytes| bytes.parse().ok());
        LogConfig {
            segment_bytes: own_segment.unwrap_or_else(|| size("segment.bytes")),
            segment_index_bytes: size("segment.index.bytes"),
            segment_ms: number("segment.ms"),
            segment_jitter_ms: number("segment.jitter.ms"),
            index_interval_bytes: size("index.interval.bytes"),
            retention_bytes: number("retention.bytes"),
            retention_ms: number("retention.ms"),
            delete: list(&policy).contains(&"delete"),
            compact: list(&policy).contains(&"compact"),
            min_cleanable_dirty_ratio: config
                .topic_text("min.cleanable.dirty.ratio", &self.configs)
                .parse()
                .expect("set values are checked"),
            delete_retention_ms: number("delete.retention.ms"),
            min_compaction_lag_ms: number("min.compaction.lag.ms"),
            max_compaction_lag_ms: number("max.compaction.lag.ms"),
            file_delete_delay_ms: number("file.delete.delay.ms"),
            flush: match config.topic_text("flush.policy", &self.configs).as_str() {
                "interval" => FlushPolicy::Interval(number("flush.ms").min(FLUSH_MS_MAX)),
                "os" => FlushPolicy::Os,
                _ => FlushPolicy::Acks,
            },
            timestamp_type: self.rules.timestamp_type,
        }
    }

    /// Its partitions from `first` on, as the executor opens them.
    #[must_use]
    pub fn to_open(&self, config: &Config, first: i32) -> Vec<OpenPartition> {
        let log_config = self.log_config(config);
        (first..self.partitions)
            .map(|index| OpenPartition {
                id: PartitionId { topic: self.id, index },
                topic: self.name.to_string(),
                role: if *self.name == *super::CONSUMER_OFFSETS {
                    PartitionRole::ConsumerOffsets(index)
                } else {
                    PartitionRole::Data
                },
                config: log_config.clone(),
            })
            .collect()
    }

    /// Whether it is meant for the dead letters of share groups. Where records need keys it takes none: most have none.
    fn is_for_dead_letters(&self, config: &Config) -> bool {
        !self.internal && config.topic_text("errors.deadletterqueue.group.enable", &self.configs) == "true"
    }

    /// What a produced batch must be at `now_ms`; zstd is younger than Produce v7 (KIP-110).
    #[must_use]
    pub fn rules(&self, now_ms: i64, produce_version: i16) -> Rules {
        Rules { now_ms, zstd_allowed: produce_version >= 7, ..self.rules }
    }
}

fn rules(config: &Config, configs: &Overrides) -> Rules {
    let number = |name| config.topic_number(name, configs);
    let size = |name| usize::try_from(number(name)).unwrap_or(usize::MAX);
    Rules {
        record_bytes_max: size("max.decompressed.message.bytes"),
        batch_bytes_max: size("max.message.bytes"),
        keys_required: list(&config.topic_text("cleanup.policy", configs)).contains(&"compact"),
        timestamp_type: match config.topic_text("message.timestamp.type", configs).as_str() {
            "LogAppendTime" => TimestampType::LogAppend,
            _ => TimestampType::Create,
        },
        before_ms: number("message.timestamp.before.max.ms"),
        after_ms: number("message.timestamp.after.max.ms"),
        ..Rules::new(0)
    }
}

fn packing(config: &Config, configs: &Overrides) -> Option<Packing> {
    let level = |name| i32::try_from(config.topic_number(name, configs)).ok();
    Some(match config.topic_text("compression.type", configs).as_str() {
        "uncompressed" => Packing { codec: Codec::None, level: None },
        // −1 is zlib's own default.
        "gzip" => Packing {
            codec: Codec::Gzip,
            level: level("compression.gzip.level").filter(|level| *level != -1),
        },
        "snappy" => Packing { codec: Codec::Snappy, level: None },
        "lz4" => Packing { codec: Codec::Lz4, level: None },
        "zstd" => Packing { codec: Codec::Zstd, level: level("compression.zstd.level") },
        _ => return None,
    })
}

/// All topics and group configurations. Never changes; a change makes another.
#[derive(Clone, Debug, Default)]
pub struct Image {
    topics: BTreeMap<Arc<str>, Arc<Topic>>,
    names: HashMap<TopicId, Arc<str>>,
    groups: BTreeMap<Arc<str>, Arc<Overrides>>,
}

impl Image {
    /// The topic with this name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.names.get(&id).and_then(|name| self.topics.get(name))
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// What was set on a group, if anything was.
    #[must_use]
    pub fn group(&self, group: &str) -> Option<&Arc<Overrides>> {
        self.groups.get(group)
    }

    /// Groups on which something was set, by id.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<Overrides>)> {
        self.groups.iter()
    }

    /// Refuses a new name that metrics could not tell from an existing one (A14).
    pub(super) fn check_collision(&self, name: &str) -> Result<(), NameError> {
        if !name.contains(['.', '_']) {
            return Ok(());
        }
        let metric = metric_name(name);
        match self.topics.keys().find(|other| ***other != *name && metric_name(other) == metric) {
            Some(other) => Err(NameError::Collides(other.to_string())),
            None => Ok(()),
        }
    }

    /// As the shard is told it.
    #[must_use]
    pub fn for_shard(&self, config: &Config) -> TopicImage {
        let topics = self
            .topics
            .iter()
            .map(|(name, topic)| (Arc::clone(name), (topic.id, topic.partitions)))
            .collect();
        let for_letters = self.topics.iter().filter(|(_, topic)| topic.is_for_dead_letters(config));
        let (compacted, able): (Vec<_>, Vec<_>) =
            for_letters.partition(|(_, topic)| topic.rules.keys_required);
        let dead_letter_topics =
            able.into_iter().map(|(name, topic)| (Arc::clone(name), topic.rules.batch_bytes_max as u64));
        let dead_letter_compacted = compacted.into_iter().map(|(name, _)| Arc::clone(name));
        let prefix = config.text("errors.deadletterqueue.topic.name.prefix");
        let dead_letter_prefix = prefix.unwrap_or_default().to_owned();
        let dead_letter_create =
            config.text("errors.deadletterqueue.auto.create.topics.enable") == Some("true");
        TopicImage {
            topics,
            dead_letter_topics: dead_letter_topics.collect(),
            dead_letter_compacted: dead_letter_compacted.collect(),
            dead_letter_prefix,
            dead_letter_create,
        }
    }

    /// Adds a topic, or replaces the one of its name.
    pub fn put_topic(&mut self, topic: Topic) -> Arc<Topic> {
        let topic = Arc::new(topic);
        self.names.insert(topic.id, Arc::clone(&topic.name));
        self.topics.insert(Arc::clone(&topic.name), Arc::clone(&topic));
        topic
    }

    pub(super) fn remove_topic(&mut self, topic: &Topic) {
        self.names.remove(&topic.id);
        self.topics.remove(&topic.name);
    }

    /// Replaces a group's settings; an empty set is none.
    pub fn put_group(&mut self, group: Arc<str>, configs: Overrides) {
        if configs.is_empty() {
            self.groups.remove(&group);
        } else {
            self.groups.insert(group, Arc::new(configs));
        }
    }
}
