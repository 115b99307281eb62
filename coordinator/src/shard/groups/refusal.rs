//! Answers to group commands that could not be served.

use crate::group::{GroupCommand, GroupError, GroupReply, JoinError};

/// The answer to a command that was not even looked at.
pub(super) fn refuse(command: &GroupCommand, error: GroupError) -> GroupReply {
    match command {
        GroupCommand::Join(join) => GroupReply::Joined(Err(JoinError { error, member: join.member.clone() })),
        GroupCommand::Sync(_) => GroupReply::Synced(Err(error)),
        // A member need not hear of a restart (`GroupCoordinatorService.heartbeat`).
        GroupCommand::Heartbeat { .. } if error == GroupError::Loading => GroupReply::Heartbeat(Ok(())),
        GroupCommand::Heartbeat { .. } => GroupReply::Heartbeat(Err(error)),
        GroupCommand::Leave { .. } => GroupReply::Left(Err(error)),
        GroupCommand::Commit(commit) => GroupReply::Committed(vec![Err(error); commit.offsets.len()]),
        GroupCommand::FetchOffsets { .. } => GroupReply::Offsets(Err(error)),
        GroupCommand::DeleteOffsets { .. } => GroupReply::OffsetsDeleted(Err(error)),
        GroupCommand::Describe { .. } => GroupReply::Described(Err(error)),
        GroupCommand::List => GroupReply::Listed(Err(error)),
        GroupCommand::ShareHeartbeat(_) => GroupReply::ShareHeartbeat(Err(error)),
        GroupCommand::DescribeShare { .. } => GroupReply::ShareDescribed(Err(error)),
    }
}

/// What goes out in place of an answer whose records could not be written.
pub(super) fn not_available(reply: GroupReply) -> GroupReply {
    let error = GroupError::NotAvailable;
    match reply {
        GroupReply::Joined(Ok(joined)) => GroupReply::Joined(Err(JoinError { error, member: joined.member })),
        GroupReply::Joined(Err(refused)) => GroupReply::Joined(Err(JoinError { error, ..refused })),
        GroupReply::Synced(_) => GroupReply::Synced(Err(error)),
        GroupReply::Heartbeat(_) => GroupReply::Heartbeat(Err(error)),
        GroupReply::Left(_) => GroupReply::Left(Err(error)),
        GroupReply::Committed(offsets) => GroupReply::Committed(vec![Err(error); offsets.len()]),
        GroupReply::Offsets(_) => GroupReply::Offsets(Err(error)),
        GroupReply::OffsetsDeleted(_) => GroupReply::OffsetsDeleted(Err(error)),
        GroupReply::Described(_) => GroupReply::Described(Err(error)),
        GroupReply::Listed(_) => GroupReply::Listed(Err(error)),
        GroupReply::ShareHeartbeat(_) => GroupReply::ShareHeartbeat(Err(error)),
        GroupReply::ShareDescribed(_) => GroupReply::ShareDescribed(Err(error)),
    }
}
