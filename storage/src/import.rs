//! Takes over the data directory of a stopped Apache Kafka broker (4.x, without ZooKeeper) into one of ours.
//!
//! Inputs: the broker's directories, read only ([`Source`]), and a locked data directory with its metadata store.
//! Everything is read and checked first ([`Source::plan`]); only then is anything written ([`take_over`]), and it counts
//! only with the one change of the metadata store that comes last: until then a start of the broker sweeps away what
//! lies there, and the same import can be done again. What it copies is noted in the store first: only that may be removed.
//!
//! Invariants: no record below the source's log start or at or above its high watermark is ever readable here; every
//! leader epoch and producer id that is used from now on is above all of the source's.

mod cluster;
mod copy;
mod error;
mod plan;
mod record;
mod source;
#[cfg(test)]
mod tests;
mod transactions;

use crate::checkpoints::{self, OffsetCheckpoint};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::metadata::{Configs, Metadata, TakenOver, TopicMetadata};
use crate::options::LogConfig;
use crate::strays::remove_directory;
use records::ids::Offset;

pub use cluster::Cluster;
pub(crate) use cluster::METADATA_LOG;
pub use error::ImportError;
pub use plan::PartitionPlan;
pub use record::LeftOut;
pub use source::Source;
pub use transactions::Endings;

/// A topic that is taken over.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// Name, id, partitions, and the settings that it will have.
    pub topic: TopicMetadata,
    /// The same settings for its logs.
    pub config: LogConfig,
    /// All its partitions.
    pub partitions: Vec<PartitionPlan>,
}

/// Copies what was planned, and writes it down. Settings of groups that the target has already stay.
///
/// # Errors
/// [`ImportError`]; then nothing was taken over, and what was copied is removed again where the disk lets it.
pub fn take_over(
    source: &Source,
    plans: &[TopicPlan],
    group_configs: &[(String, Configs)],
    endings: &Endings,
    target: &DataDir,
    metadata: &Metadata,
    now_ms: i64,
) -> Result<(), ImportError> {
    refuse_existing(plans.iter().map(|plan| &plan.topic), metadata)?;
    let mut made = Vec::new();
    let done = copy_all(source, plans, endings, target, metadata, now_ms, &mut made).and_then(
        |(leader_epoch, next_producer)| {
            let taken = TakenOver {
                topics: plans.iter().map(|plan| plan.topic.clone()).collect(),
                group_configs: group_configs.to_vec(),
                cluster_id: source.cluster_id().to_owned(),
                leader_epoch,
                next_producer,
            };
            match metadata.take_over(&taken)? {
                None => Ok(()),
                Some(name) => Err(ImportError::Exists(name)),
            }
        },
    );
    if done.is_err() {
        for directory in &made {
            // What stays is swept away by the next start, as no topic is known for it.
            if let Err(error) = remove_directory(&**target.disk(), directory) {
                tracing::debug!(%error, "what was copied is not removed");
            }
        }
    }
    done
}

/// Whether the target has none of the topics.
///
/// # Errors
/// [`ImportError::Exists`] with the first that it has, by name or by id.
pub fn refuse_existing<'a>(
    mut topics: impl Iterator<Item = &'a TopicMetadata>,
    metadata: &Metadata,
) -> Result<(), ImportError> {
    let existing = metadata.topics()?;
    let clash =
        topics.find(|topic| existing.iter().any(|other| other.name == topic.name || other.id == topic.id));
    clash.map_or(Ok(()), |topic| Err(ImportError::Exists(topic.name.clone())))
}

/// The leader epoch from now on, and the first producer id that may be handed out.
fn copy_all(
    source: &Source,
    plans: &[TopicPlan],
    endings: &Endings,
    target: &DataDir,
    metadata: &Metadata,
    now_ms: i64,
    made: &mut Vec<String>,
) -> Result<(i32, i64), ImportError> {
    let disk = target.disk();
    // Before this one adds to them.
    let unfinished = metadata.unfinished_import()?;
    metadata.note_import(plans.iter().map(|plan| plan.topic.id))?;
    let partitions = || plans.iter().flat_map(|plan| &plan.partitions);
    let highest =
        partitions().map(|plan| plan.leader_epoch).max().unwrap_or(-1).max(source.cluster().leader_epoch);
    let leader_epoch = metadata.leader_epoch()?.max(highest.saturating_add(1));
    let next_producer =
        partitions().map(|plan| plan.next_producer).max().unwrap_or(0).max(source.cluster().next_producer);
    let read = |file| checkpoints::read(&**disk, file);
    let mut recovery_points = read(checkpoints::RECOVERY_POINT)?;
    let mut ends = read(checkpoints::HIGH_WATERMARK)?;
    let mut log_starts = read(checkpoints::LOG_START)?;
    let mut cleaned = read(checkpoints::CLEANED)?;
    let mut holes = read(checkpoints::HOLES)?;
    let to = copy::To { disk, leader_epoch, endings, now_ms, unfinished: &unfinished };
    for plan in plans {
        for partition in &plan.partitions {
            let name = (plan.topic.name.clone(), partition.partition);
            let facts = copy::partition(source, &plan.topic, &plan.config, partition, &to, made)?;
            recovery_points.insert(name.clone(), facts.end);
            ends.insert(name.clone(), facts.end);
            set(&mut log_starts, &name, facts.log_start);
            set(&mut holes, &name, partition.cleaned);
            set(&mut cleaned, &name, partition.compacted);
        }
    }
    for (file, offsets) in [
        (checkpoints::HOLES, &holes),
        (checkpoints::CLEANED, &cleaned),
        (checkpoints::LOG_START, &log_starts),
        (checkpoints::HIGH_WATERMARK, &ends),
        (checkpoints::RECOVERY_POINT, &recovery_points),
    ] {
        checkpoints::write(&**disk, file, offsets)?;
    }
    if partitions().any(|plan| plan.bytes_behind > 0) {
        // Committed offsets may point behind what was cut off: a start after an unclean stop lowers them.
        target.clear_clean()?;
    } else if is_new(metadata)? {
        // Nothing but what was checked and synced just now: the first start need not look at it again.
        target.mark_clean(0)?;
    }
    Ok((leader_epoch, next_producer))
}

fn set(offsets: &mut OffsetCheckpoint, name: &(String, i32), offset: Offset) {
    if offset > Offset::ZERO {
        offsets.insert(name.clone(), offset);
    } else {
        offsets.remove(name);
    }
}

/// Whether no broker ever ran on the data directory, and nothing was imported into it.
fn is_new(metadata: &Metadata) -> Result<bool, StorageError> {
    Ok(metadata.boots()? == 0 && metadata.topics()?.is_empty())
}
