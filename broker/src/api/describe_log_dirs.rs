//! DescribeLogDirs (key 35, v1–v5).
//!
//! The data directory, the partitions in it and their bytes on disk (KIP-113), from v4 on the size of the disk and what
//! of it is free (KIP-827). A null list of topics asks for all. Partitions that do not exist are left out, as in
//! Kafka. A lag is always 0: no replica is behind or on its way to another directory.

use std::collections::BTreeMap;

use protocol::ErrorCode;
use protocol::wire::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use protocol::wire::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use records::ids::PartitionId;

use super::coordination::wire;
use crate::catalog::{Image, Topic};
use crate::context::{CloseConnection, RequestContext};

/// Answers for the one directory that there is.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DescribeLogDirsRequest,
) -> Result<DescribeLogDirsResponse, CloseConnection> {
    let sizes: BTreeMap<PartitionId, u64> = cx.broker.shard.sizes().await?.into_iter().collect();
    let mut result = DescribeLogDirsResult::default();
    result.topics = topics(&request, &cx.broker.catalog.image(), &sizes);
    let dir = &cx.broker.config.data_dir;
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    result.log_dir = wire(&dir.to_string_lossy());
    (result.total_bytes, result.usable_bytes) = (-1, -1);
    if cx.api_version >= 4 {
        match rustix::fs::statvfs(&dir) {
            Ok(disk) => {
                let bytes =
                    |blocks: u64| i64::try_from(blocks.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
                (result.total_bytes, result.usable_bytes) = (bytes(disk.f_blocks), bytes(disk.f_bavail));
            }
            Err(error) => tracing::warn!("the size of the disk is unknown: {error}"),
        }
    }
    result.error_code = ErrorCode::None.code();
    let mut answer = DescribeLogDirsResponse::default();
    answer.results.push(result);
    Ok(answer)
}

fn topics(
    request: &DescribeLogDirsRequest,
    image: &Image,
    sizes: &BTreeMap<PartitionId, u64>,
) -> Vec<DescribeLogDirsTopic> {
    match &request.topics {
        None => image.topics().map(|topic| described(topic, 0..topic.partitions, sizes)).collect(),
        Some(topics) => topics
            .iter()
            .filter_map(|asked| {
                Some(described(image.topic(&asked.topic)?, asked.partitions.iter().copied(), sizes))
            })
            .collect(),
    }
}

fn described(
    topic: &Topic,
    indexes: impl Iterator<Item = i32>,
    sizes: &BTreeMap<PartitionId, u64>,
) -> DescribeLogDirsTopic {
    let mut told = DescribeLogDirsTopic::default();
    told.name = wire(&topic.name);
    for index in indexes {
        let Some(bytes) = topic.partition(index).and_then(|id| sizes.get(&id)) else { continue };
        let mut partition = DescribeLogDirsPartition::default();
        partition.partition_index = index;
        partition.partition_size = i64::try_from(*bytes).unwrap_or(i64::MAX);
        told.partitions.push(partition);
    }
    told
}
