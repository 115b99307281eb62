//! DeleteGroups (key 42, v0–v3).
//!
//! Deletes groups of every kind that have no members, with their committed offsets and share state. A group that is
//! named twice is deleted, and answered, once. v3 an error message.

use std::collections::HashSet;

use coordinator::command::Command;
use coordinator::group::GroupError;
use protocol::StrBytes;
use protocol::wire::delete_groups_response::DeletableGroupResult;
use protocol::wire::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::coordination::{call_each, code, has_offsets_topic, text};
use crate::context::{CloseConnection, RequestContext};
use crate::executor::Reply;

/// Answers when it is stored that they are gone.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DeleteGroupsRequest,
) -> Result<DeleteGroupsResponse, CloseConnection> {
    let mut seen = HashSet::new();
    let groups: Vec<StrBytes> =
        request.groups_names.into_iter().filter(|group| seen.insert(group.clone())).collect();
    let outcomes = if has_offsets_topic(cx) {
        let command = |group: &StrBytes| Command::DeleteGroup { group: text(group) };
        call_each(cx, &groups, command).await?
    } else {
        vec![Reply::GroupDeleted(Err(GroupError::GroupNotFound)); groups.len()]
    };
    let mut answer = DeleteGroupsResponse::default();
    let told = groups.into_iter().zip(outcomes).map(|(group, reply)| {
        let Reply::GroupDeleted(outcome) = reply else {
            unreachable!("a delete of a group is answered by {reply:?}")
        };
        let mut told = DeletableGroupResult::default();
        told.group_id = group;
        told.error_code = code(&outcome);
        told.error_message = outcome.err().map(|error| StrBytes::from(error.to_string()));
        told
    });
    answer.results = told.collect();
    Ok(answer)
}
