//! What an import writes: everything in one step.

use std::collections::BTreeSet;

use records::ids::TopicId;
use redb::{ReadableDatabase, ReadableTable};

use super::{
    BOOT, CLUSTER_ID, COUNTERS, Configs, GROUP_CONFIGS, IMPORTING, LEADER_EPOCH, Metadata, NAMES,
    NEXT_PRODUCER, TOPIC_CONFIGS, TOPICS, TopicMetadata,
};
use crate::data_dir::{base64, from_base64};
use crate::error::StorageError;

/// What is taken over from another broker's data directory, in one step.
#[derive(Clone, Debug, Default)]
pub struct TakenOver {
    /// Its topics.
    pub topics: Vec<TopicMetadata>,
    /// Settings of groups, which only a group without any gets.
    pub group_configs: Vec<(String, Configs)>,
    /// Its cluster's id, which a store without one gets.
    pub cluster_id: String,
    /// The leader epoch from now on, unless it is higher.
    pub leader_epoch: i32,
    /// The next producer id that may be handed out, unless it is higher.
    pub next_producer: i64,
}

impl Metadata {
    /// Takes everything over, or nothing: then the name of a topic that is there already, by name or by id.
    pub fn take_over(&self, taken: &TakenOver) -> Result<Option<String>, StorageError> {
        let existing = self.topics()?;
        let clash = |topic: &&TopicMetadata| {
            existing.iter().any(|other| other.name == topic.name || other.id == topic.id)
        };
        if let Some(topic) = taken.topics.iter().find(clash) {
            return Ok(Some(topic.name.clone()));
        }
        let with_configs = self.group_configs()?;
        self.write(|transaction| {
            let mut topics = transaction.open_table(TOPICS)?;
            let mut configs = transaction.open_table(TOPIC_CONFIGS)?;
            for topic in &taken.topics {
                topics.insert(topic.name.as_str(), (topic.id.0, topic.partitions))?;
                for (name, value) in &topic.configs {
                    configs.insert((topic.name.as_str(), name.as_str()), value.as_str())?;
                }
            }
            let mut groups = transaction.open_table(GROUP_CONFIGS)?;
            for (group, configs) in &taken.group_configs {
                if with_configs.contains_key(group) {
                    continue;
                }
                for (name, value) in configs {
                    groups.insert((group.as_str(), name.as_str()), value.as_str())?;
                }
            }
            let mut counters = transaction.open_table(COUNTERS)?;
            for (counter, least) in
                [(LEADER_EPOCH, i64::from(taken.leader_epoch)), (NEXT_PRODUCER, taken.next_producer)]
            {
                let least = u64::try_from(least).unwrap_or(0);
                let current = counters.get(counter)?.map_or(0, |value| value.value());
                counters.insert(counter, current.max(least))?;
            }
            let mut names = transaction.open_table(NAMES)?;
            names.remove(IMPORTING)?;
            if names.get(CLUSTER_ID)?.is_none() && !taken.cluster_id.is_empty() {
                names.insert(CLUSTER_ID, taken.cluster_id.as_str())?;
            }
            Ok(None)
        })
    }

    /// Writes down which topics are about to be copied here: until [`Metadata::take_over`] their directories are what an
    /// import left unfinished, and nothing else. Those noted before stay noted.
    pub fn note_import(&self, topics: impl Iterator<Item = TopicId>) -> Result<(), StorageError> {
        let mut noted = self.unfinished_import()?;
        noted.extend(topics);
        let text: Vec<String> = noted.iter().map(|id| base64(&id.0)).collect();
        self.write(|transaction| {
            transaction.open_table(NAMES)?.insert(IMPORTING, text.join(" ").as_str())?;
            Ok(())
        })
    }

    /// The topics that an import was to copy here which did not come to its end.
    pub fn unfinished_import(&self) -> Result<BTreeSet<TopicId>, StorageError> {
        let transaction = self.database.begin_read()?;
        let text = transaction.open_table(NAMES)?.get(IMPORTING)?.map(|text| text.value().to_owned());
        let ids = text.unwrap_or_default();
        Ok(ids.split(' ').filter_map(from_base64).map(TopicId).collect())
    }

    /// Nothing is left of what an import left unfinished.
    pub fn forget_import(&self) -> Result<(), StorageError> {
        self.write(|transaction| {
            transaction.open_table(NAMES)?.remove(IMPORTING)?;
            Ok(())
        })
    }

    /// The broker's leader epoch.
    pub fn leader_epoch(&self) -> Result<i32, StorageError> {
        Ok(i32::try_from(self.counter(LEADER_EPOCH)?).unwrap_or(i32::MAX))
    }

    /// How many lives the broker has had.
    pub fn boots(&self) -> Result<u64, StorageError> {
        self.counter(BOOT)
    }

    fn counter(&self, counter: &str) -> Result<u64, StorageError> {
        let transaction = self.database.begin_read()?;
        Ok(transaction.open_table(COUNTERS)?.get(counter)?.map_or(0, |value| value.value()))
    }
}
