//! Answers to group commands whose records could not be written.

use crate::group::{GroupError, GroupReply, JoinError};

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
