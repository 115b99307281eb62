//! Which coordinator partition serves a group.

use crate::group::GroupCommand;

/// The group that a command is about; `None`: all.
pub(super) fn group_of(command: &GroupCommand) -> Option<&str> {
    Some(match command {
        GroupCommand::Join(join) => &join.group,
        GroupCommand::Sync(sync) => &sync.group,
        GroupCommand::Commit(commit) => &commit.group,
        GroupCommand::ShareHeartbeat(heartbeat) => &heartbeat.group,
        GroupCommand::Heartbeat { group, .. }
        | GroupCommand::Leave { group, .. }
        | GroupCommand::FetchOffsets { group, .. }
        | GroupCommand::DeleteOffsets { group, .. }
        | GroupCommand::Describe { group }
        | GroupCommand::DescribeShare { group } => group,
        GroupCommand::List => return None,
    })
}

/// Which of `count` partitions serves a group (`GroupCoordinatorService.partitionFor`): Java's `String.hashCode` over
/// UTF-16 units, made positive as `Utils.abs` does it.
pub(super) fn partition_of(group: &str, count: i32) -> i32 {
    let hash =
        group.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let positive = hash.checked_abs().unwrap_or(0);
    positive % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::partition_of;

    /// As `Utils.abs(group.hashCode()) % 50` gives it on a JVM; one is beyond 16 bits, two hash to −2³¹.
    #[test]
    fn groups_are_found_where_kafka_finds_them() {
        let known = [
            ("", 0),
            ("a", 47),
            ("my-group", 12),
            ("console-consumer-12345", 6),
            ("g\u{e4}ste", 23),
            ("\u{1f600}", 49),
            ("polygenelubricants", 0),
            ("share-1", 31),
            ("connect-cluster", 13),
            ("GydZG_", 0),
        ];
        for (group, partition) in known {
            assert_eq!(partition_of(group, 50), partition, "{group}");
        }
    }
}
