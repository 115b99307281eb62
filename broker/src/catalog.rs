//! Topics and group configurations: what exists, and its changes.
//!
//! Readers take an [`Image`], which never changes. Changes are made one at a time: checked, stored, told to the shard
//! and its executor, and only then visible.

pub mod alter;
pub mod image;
pub mod names;

use std::ops::Range;
use std::sync::Arc;

use coordinator::command::Fact;
use coordinator::share::ShareConfig;
use parking_lot::RwLock;
use records::ids::{PartitionId, ProducerId, TopicId};
use storage::{Metadata, StorageError, TopicMetadata};

use crate::config::definition::InvalidValue;
use crate::config::{self, Config, Overrides, group, topic};
use crate::entropy;
use crate::executor::{ShardHandle, Stopped};
pub use alter::Change;
pub use image::{Image, Topic};
pub use names::NameError;

/// Partitions of one topic: each costs a directory and memory.
pub const PARTITIONS_MAX: i32 = 10_000;

/// Producer ids that are reserved at a time (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
const PRODUCER_ID_BLOCK: u32 = 1_000;

/// Internal topic of groups and committed offsets (`Topic.GROUP_METADATA_TOPIC_NAME`).
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// Topics that clients may not write to (`Topic.INTERNAL_TOPICS`).
pub const INTERNAL_TOPICS: [&str; 3] = [CONSUMER_OFFSETS, "__transaction_state", "__share_group_state"];

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The name is not one of a topic (INVALID_TOPIC_EXCEPTION).
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is a topic of that name (TOPIC_ALREADY_EXISTS).
    #[error("topic {0} already exists")]
    Exists(Arc<str>),
    /// There is no topic of that name (UNKNOWN_TOPIC_OR_PARTITION).
    #[error("there is no such topic")]
    UnknownTopic,
    /// There is no topic of that id (UNKNOWN_TOPIC_ID).
    #[error("there is no topic with this id")]
    UnknownTopicId,
    /// The number of partitions cannot be (INVALID_PARTITIONS).
    #[error("{0}")]
    Partitions(String),
    /// More than the broker does in one go (POLICY_VIOLATION).
    #[error("{0}")]
    Policy(String),
    /// There is one replica only (INVALID_REPLICATION_FACTOR).
    #[error("replication factor {0} is not possible: there is one broker, use 1 or -1")]
    ReplicationFactor(i16),
    /// A setting's value or name (INVALID_CONFIG).
    #[error("{0}")]
    Config(String),
    /// The metadata or the logs could not be written (KAFKA_STORAGE_ERROR).
    #[error("the change could not be stored: {0}")]
    Storage(String),
    /// The broker stops (NOT_CONTROLLER: ask another, or again).
    #[error("the broker stops")]
    Stopped,
}

impl From<InvalidValue> for CatalogError {
    fn from(error: InvalidValue) -> Self {
        Self::Config(error.to_string())
    }
}

impl From<Stopped> for CatalogError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// A topic that someone wants to have.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: Arc<str>,
    /// How many partitions; −1: `num.partitions`.
    pub partitions: i32,
    /// How many replicas; −1: `default.replication.factor`, which is 1 here.
    pub replication_factor: i16,
    /// Its settings, as they came.
    pub configs: Vec<(String, Option<String>)>,
}

/// Topics and group configurations.
#[derive(Debug)]
pub struct Catalog {
    image: RwLock<Arc<Image>>,
    /// Held during a change: they are made one at a time.
    change: tokio::sync::Mutex<()>,
    /// Reserved producer ids that nobody has so far.
    producer_ids: tokio::sync::Mutex<Range<i64>>,
    config: Arc<Config>,
    metadata: Arc<Metadata>,
    shard: ShardHandle,
}

impl Catalog {
    /// A catalogue of what the store holds; the shard has been told already.
    #[must_use]
    pub fn new(image: Image, config: Arc<Config>, metadata: Arc<Metadata>, shard: ShardHandle) -> Self {
        let change = tokio::sync::Mutex::new(());
        let producer_ids = tokio::sync::Mutex::new(0..0);
        Self { image: RwLock::new(Arc::new(image)), change, producer_ids, config, metadata, shard }
    }

    /// What is there now.
    #[must_use]
    pub fn image(&self) -> Arc<Image> {
        Arc::clone(&self.image.read())
    }

    /// Checks a topic that someone wants, without making it: the partition count and the settings in plain form.
    ///
    /// # Errors
    /// As [`Catalog::create_topic`].
    pub fn check_new(&self, new: &NewTopic) -> Result<(i32, Overrides), CatalogError> {
        let image = self.image();
        names::check(&new.name)?;
        if let Some(topic) = image.topic(&new.name) {
            return Err(CatalogError::Exists(Arc::clone(&topic.name)));
        }
        image.check_collision(&new.name)?;
        if !matches!(new.replication_factor, -1 | 1) {
            return Err(CatalogError::ReplicationFactor(new.replication_factor));
        }
        let partitions = match new.partitions {
            -1 => self.config.partitions_default,
            count => count,
        };
        check_partitions(partitions)?;
        let mut configs = Overrides::new();
        for (name, value) in &new.configs {
            let Some(value) = value else {
                return Err(CatalogError::Config(format!(
                    "null value for configuration {}: leave it out or give it a value",
                    name.escape_debug()
                )));
            };
            let (name, plain) = check_topic_config(name, value)?;
            configs.insert(name.to_owned(), plain);
        }
        topic::check_together(&self.config, &configs)?;
        Ok((partitions, configs))
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// [`CatalogError`], for every reason that Kafka has.
    pub async fn create(&self, new: &NewTopic) -> Result<Arc<Topic>, CatalogError> {
        let _one = self.change.lock().await;
        let (partitions, configs) = self.check_new(new)?;
        self.add(Topic::new(&self.config, Arc::clone(&new.name), entropy::topic_id(), partitions, configs))
            .await
    }

    /// The topic of that name, made with the broker's defaults where there is none: auto-creation.
    ///
    /// # Errors
    /// As [`Catalog::create`].
    pub async fn ensure(&self, name: &str) -> Result<Arc<Topic>, CatalogError> {
        if let Some(topic) = self.image().topic(name) {
            return Ok(Arc::clone(topic));
        }
        if name == CONSUMER_OFFSETS {
            return self.ensure_offsets_topic().await;
        }
        let new =
            NewTopic { name: Arc::from(name), partitions: -1, replication_factor: -1, configs: Vec::new() };
        match self.create(&new).await {
            Err(CatalogError::Exists(_)) => {
                self.image().topic(name).cloned().ok_or(CatalogError::UnknownTopic)
            }
            made => made,
        }
    }

    /// A topic for dead letters of share groups, made with what Kafka's broker asks for (`ShareGroupDLQStateManager`):
    /// letters bear the time of their copy.
    ///
    /// # Errors
    /// As [`Catalog::create`].
    pub async fn create_dead_letter_topic(&self, name: &Arc<str>) -> Result<Arc<Topic>, CatalogError> {
        let configs =
            [("errors.deadletterqueue.group.enable", "true"), ("message.timestamp.type", "CreateTime")];
        let configs = configs.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).into();
        self.create(&NewTopic { name: Arc::clone(name), partitions: -1, replication_factor: -1, configs })
            .await
    }

    /// `__consumer_offsets`, made on first use with Kafka's settings (`GroupCoordinatorService.groupMetadataTopicConfigs`).
    ///
    /// # Errors
    /// As [`Catalog::create`].
    pub async fn ensure_offsets_topic(&self) -> Result<Arc<Topic>, CatalogError> {
        let _one = self.change.lock().await;
        if let Some(topic) = self.image().topic(CONSUMER_OFFSETS) {
            return Ok(Arc::clone(topic));
        }
        let configs: Overrides = [
            ("cleanup.policy", "compact".to_owned()),
            ("compression.type", "producer".to_owned()),
            ("segment.bytes", self.config.number("offsets.topic.segment.bytes").to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let name = Arc::from(CONSUMER_OFFSETS);
        let id = entropy::topic_id();
        self.add(Topic::new(&self.config, name, id, self.config.offsets_partitions, configs)).await
    }

    /// Deletes a topic with all that hangs on it.
    ///
    /// # Errors
    /// Where there is no such topic, or its end could not be stored.
    pub async fn delete(&self, id: TopicId) -> Result<Arc<Topic>, CatalogError> {
        let _one = self.change.lock().await;
        let mut image = Image::clone(&self.image());
        let topic = Arc::clone(image.topic_by_id(id).ok_or(CatalogError::UnknownTopicId)?);
        let name = Arc::clone(&topic.name);
        self.store(move |metadata| metadata.delete_topic(&name)).await?;
        image.remove_topic(&topic);
        self.publish(image);
        let partitions = (0..topic.partitions).map(|index| PartitionId { topic: id, index }).collect();
        if let Err(error) = self.shard.delete(partitions).await {
            // The topic is gone; what is left of it on the disk is set aside at the next start.
            tracing::warn!(topic = &*topic.name, "files of a deleted topic are left: {error}");
        }
        Ok(topic)
    }

    /// Gives a topic more partitions, so that it has `total`.
    ///
    /// # Errors
    /// Where there is no such topic, it has as many already, or the change could not be stored.
    pub async fn add_partitions(&self, name: &str, total: i32) -> Result<Arc<Topic>, CatalogError> {
        let _one = self.change.lock().await;
        let before = self.check_partitions(name, total)?;
        let stored = Arc::clone(&before.name);
        self.store(move |metadata| metadata.add_partitions(&stored, total)).await?;
        let mut grown = Topic::clone(&before);
        grown.partitions = total;
        self.open(&grown, before.partitions).await?;
        Ok(self.publish_topic(grown))
    }

    /// Checks a change of [`Catalog::add_partitions`] without making it: the topic as it is.
    ///
    /// # Errors
    /// As [`Catalog::add_partitions`].
    pub fn check_partitions(&self, name: &str, total: i32) -> Result<Arc<Topic>, CatalogError> {
        let topic = self.image().topic(name).cloned().ok_or(CatalogError::UnknownTopic)?;
        if total <= topic.partitions {
            return Err(CatalogError::Partitions(format!(
                "the topic has {} partitions: name a greater number",
                topic.partitions
            )));
        }
        check_partitions(total)?;
        Ok(topic)
    }

    /// Replaces what is set on a topic; names and values as [`check_topic_config`] gives them.
    ///
    /// # Errors
    /// Where there is no such topic, or the change could not be stored.
    pub async fn set_topic_configs(&self, name: &str, configs: Overrides) -> Result<(), CatalogError> {
        let _one = self.change.lock().await;
        self.replace_topic_configs(name, configs).await
    }

    /// Replaces what is set on a group; names and values as [`check_group_config`] gives them.
    ///
    /// # Errors
    /// Where the change could not be stored.
    pub async fn set_group_configs(&self, group: &Arc<str>, configs: Overrides) -> Result<(), CatalogError> {
        let _one = self.change.lock().await;
        self.replace_group_configs(group, configs).await
    }

    async fn replace_topic_configs(&self, name: &str, configs: Overrides) -> Result<(), CatalogError> {
        let before = self.image().topic(name).cloned().ok_or(CatalogError::UnknownTopic)?;
        let changes = changes(&before.configs, &configs);
        let stored = Arc::clone(&before.name);
        self.store(move |metadata| metadata.set_topic_configs(&stored, &borrowed(&changes))).await?;
        let topic = Topic::new(&self.config, Arc::clone(&before.name), before.id, before.partitions, configs);
        let partitions = (0..topic.partitions).map(|index| PartitionId { topic: topic.id, index }).collect();
        let config = topic.log_config(&self.config);
        self.shard.configure(partitions, config).await.map_err(|error| CatalogError::Storage(error.0))?;
        self.publish_topic(topic);
        Ok(())
    }

    async fn replace_group_configs(&self, group: &Arc<str>, configs: Overrides) -> Result<(), CatalogError> {
        let mut image = Image::clone(&self.image());
        let changes = changes(image.group(group).map_or(&Overrides::new(), |configs| configs), &configs);
        let stored = Arc::clone(group);
        self.store(move |metadata| metadata.set_group_configs(&stored, &borrowed(&changes))).await?;
        let share = group::share_config(&self.config, &configs);
        image.put_group(Arc::clone(group), configs);
        *self.image.write() = Arc::new(image);
        self.shard.fact(Fact::ShareConfigured(Arc::clone(group), Arc::new(share)));
        Ok(())
    }

    /// A group's share settings as they hold.
    #[must_use]
    pub fn share_config(&self, group: &str) -> ShareConfig {
        let image = self.image();
        let own = image.group(group).map(|configs| Overrides::clone(configs)).unwrap_or_default();
        group::share_config(&self.config, &own)
    }

    /// A producer id that nobody has had before. Ids are reserved in blocks (`ProducerIdsBlock`), so that most cost no
    /// disk; what a stopped broker has not given out of its last block is given to nobody.
    ///
    /// # Errors
    /// Where no block could be reserved.
    pub async fn producer_id(&self) -> Result<ProducerId, CatalogError> {
        let mut block = self.producer_ids.lock().await;
        if block.is_empty() {
            let first = self.store(|metadata| metadata.next_producer_ids(PRODUCER_ID_BLOCK)).await?;
            *block = first..first + i64::from(PRODUCER_ID_BLOCK);
        }
        Ok(ProducerId(block.next().expect("a block is not empty")))
    }

    async fn add(&self, topic: Topic) -> Result<Arc<Topic>, CatalogError> {
        let row = TopicMetadata {
            name: topic.name.to_string(),
            id: topic.id,
            partitions: topic.partitions,
            configs: topic.configs.clone(),
        };
        if !self.store(move |metadata| metadata.create_topic(&row)).await? {
            return Err(CatalogError::Exists(topic.name));
        }
        if let Err(error) = self.open(&topic, 0).await {
            let name = Arc::clone(&topic.name);
            self.store(move |metadata| metadata.delete_topic(&name)).await?;
            return Err(error);
        }
        Ok(self.publish_topic(topic))
    }

    /// Opens the partitions from `first` on.
    async fn open(&self, topic: &Topic, first: i32) -> Result<(), CatalogError> {
        let partitions = topic.to_open(&self.config, first);
        self.shard.open(partitions).await.map_err(|error| CatalogError::Storage(error.0))
    }

    /// A change of the store, which waits for the disk: on a thread that may.
    async fn store<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Metadata) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, CatalogError> {
        let metadata = Arc::clone(&self.metadata);
        let done = tokio::task::spawn_blocking(move || change(&metadata)).await;
        done.map_err(|error| CatalogError::Storage(error.to_string()))?
            .map_err(|error| CatalogError::Storage(error.to_string()))
    }

    fn publish_topic(&self, topic: Topic) -> Arc<Topic> {
        let mut image = Image::clone(&self.image());
        let topic = image.put_topic(topic);
        self.publish(image);
        topic
    }

    fn publish(&self, image: Image) {
        let topics = Arc::new(image.for_shard(&self.config));
        *self.image.write() = Arc::new(image);
        self.shard.fact(Fact::Topics(topics));
    }
}

/// What to store so that `before` becomes `after`: name and value, `None` where a name goes.
fn changes(before: &Overrides, after: &Overrides) -> Vec<(String, Option<String>)> {
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), None));
    let set = after.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    gone.chain(set).collect()
}

fn borrowed(changes: &[(String, Option<String>)]) -> Vec<(&str, Option<&str>)> {
    changes.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
}

/// Checks one setting of a topic: its name and its value in plain form.
///
/// # Errors
/// [`CatalogError::Config`], which names the setting.
pub fn check_topic_config(name: &str, value: &str) -> Result<(&'static str, String), CatalogError> {
    let unknown = || CatalogError::Config(format!("unknown topic config name: {}", name.escape_debug()));
    let definition = topic::find(name).ok_or_else(unknown)?;
    Ok((definition.name, definition.parse(value)?))
}

/// Checks one setting of a group: its name and its value in plain form.
///
/// # Errors
/// [`CatalogError::Config`], which names the setting and, where bounds hold, the range.
pub fn check_group_config(
    config: &Config,
    name: &str,
    value: &str,
) -> Result<(&'static str, String), CatalogError> {
    let definition = config::find(group::GROUP, name)
        .ok_or_else(|| CatalogError::Config(format!("unknown group config name: {}", name.escape_debug())))?;
    Ok((definition.name, group::check(config, definition, value)?))
}

fn check_partitions(count: i32) -> Result<(), CatalogError> {
    match count {
        1..=PARTITIONS_MAX => Ok(()),
        _ if count > PARTITIONS_MAX => Err(CatalogError::Policy(format!(
            "{count} partitions are too many: use {PARTITIONS_MAX} at most"
        ))),
        _ => Err(CatalogError::Partitions(format!(
            "{count} partitions are not possible: use 1 to {PARTITIONS_MAX}, or -1 for the default"
        ))),
    }
}
