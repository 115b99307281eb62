//! Replica assignments that clients give by hand. There is one broker: each partition can be on it, once.

use protocol::ErrorCode;

use super::refusal::Refusal;

/// Checks the replicas of one partition (`ReplicationControlManager.validateManualPartitionAssignment`).
///
/// # Errors
/// INVALID_REPLICA_ASSIGNMENT.
pub(super) fn check(node_id: i32, replicas: &[i32]) -> Result<(), Refusal> {
    match replicas {
        [only] if *only == node_id => Ok(()),
        [] => Err(refuse("a partition's assignment names no broker: name one".to_owned())),
        all if all.iter().all(|id| *id == node_id) => {
            Err(refuse(format!("a partition's assignment names broker {node_id} twice: name it once")))
        }
        all => {
            let other = all.iter().find(|id| **id != node_id).expect("not all are this broker");
            Err(refuse(format!("there is no broker {other}: assign to {node_id}")))
        }
    }
}

/// Checks the assignment of a new topic: how many partitions it makes.
///
/// # Errors
/// INVALID_REPLICA_ASSIGNMENT.
pub(super) fn partitions(node_id: i32, given: &[(i32, &[i32])]) -> Result<i32, Refusal> {
    let mut indexes: Vec<i32> = given.iter().map(|(index, _)| *index).collect();
    indexes.sort_unstable();
    if let Some(twice) = indexes.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refuse(format!("partition {} is assigned twice: assign it once", twice[0])));
    }
    for (_, replicas) in given {
        check(node_id, replicas)?;
    }
    if (0..).zip(&indexes).any(|(expected, index)| expected != *index) {
        return Err(refuse("partitions are not numbered from 0 without gaps: number them so".to_owned()));
    }
    Ok(i32::try_from(given.len()).unwrap_or(i32::MAX))
}

fn refuse(text: String) -> Refusal {
    Refusal::new(ErrorCode::InvalidReplicaAssignment, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_is_here_once() {
        assert_eq!(partitions(1, &[(1, &[1]), (0, &[1])]), Ok(2));
        let bad: [&[(i32, &[i32])]; 7] = [
            &[(0, &[2])],
            &[(0, &[-1])],
            &[(0, &[1, 1])],
            &[(0, &[])],
            &[(1, &[1])],
            &[(0, &[1]), (2, &[1])],
            &[(0, &[1]), (0, &[1])],
        ];
        for given in bad {
            let refusal = partitions(1, given).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidReplicaAssignment, "{given:?}");
        }
    }
}
