//! What the handlers of group requests share: the way to the group coordinator, and its words on the wire.

use std::sync::Arc;

use coordinator::command::{Command, Fact};
use coordinator::group::{GroupCommand, GroupError, GroupReply};
use futures::future::join_all;
use protocol::{ErrorCode, StrBytes};

use crate::catalog::CONSUMER_OFFSETS;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Commands of one request that the shard has at a time.
const AT_ONCE_MAX: usize = 64;

/// Makes `__consumer_offsets` where it is not there yet: the first one who coordinates a group needs it.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE where it cannot be made now.
pub(super) async fn ensure_offsets_topic(cx: &RequestContext) -> Result<(), ErrorCode> {
    if has_offsets_topic(cx) {
        return Ok(());
    }
    match cx.broker.catalog.ensure_offsets_topic().await {
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!("{CONSUMER_OFFSETS} cannot be made, groups wait for it: {error}");
            Err(ErrorCode::CoordinatorNotAvailable)
        }
    }
}

/// Whether any group can exist.
pub(super) fn has_offsets_topic(cx: &RequestContext) -> bool {
    cx.broker.catalog.image().topic(CONSUMER_OFFSETS).is_some()
}

/// Has the coordinator serve a command, and makes the topic of groups first where it is missing.
///
/// # Errors
/// Where the broker stops.
pub(super) async fn call(cx: &RequestContext, command: GroupCommand) -> Result<GroupReply, CloseConnection> {
    // Where it cannot be made, the coordinator refuses, in the form that the command's answer has.
    let _ = ensure_offsets_topic(cx).await;
    ask(cx, command).await
}

/// Has the coordinator serve a command about what is there already.
///
/// # Errors
/// Where the broker stops.
pub(super) async fn ask(cx: &RequestContext, command: GroupCommand) -> Result<GroupReply, CloseConnection> {
    match cx.call(Command::Group(command)).await? {
        Reply::Group(reply) => Ok(reply),
        other => unreachable!("a group command is answered by {other:?}"),
    }
}

/// Has the shard serve one command for each item, a bounded number at a time; replies in the order of the items.
///
/// # Errors
/// Where the broker stops.
pub(super) async fn call_each<T>(
    cx: &RequestContext,
    items: &[T],
    command: impl Fn(&T) -> Command,
) -> Result<Vec<Reply>, CloseConnection> {
    let mut replies = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE_MAX) {
        for reply in join_all(some.iter().map(|item| cx.broker.shard.call(command(item)))).await {
            replies.push(reply?);
        }
    }
    Ok(replies)
}

/// Tells the shard that this connection speaks for a member of a share group.
pub(super) fn tell_member(cx: &RequestContext, group: &Arc<str>, member: &Arc<str>, begins: bool) {
    if cx.members_seen.is_news(group, member, begins) {
        cx.broker.shard.fact(Fact::MemberSeen {
            connection: cx.connection,
            group: Arc::clone(group),
            member: Arc::clone(member),
        });
    }
}

/// The code of an outcome.
pub(super) fn code<T>(outcome: &Result<T, GroupError>) -> i16 {
    match outcome {
        Ok(_) => ErrorCode::None.code(),
        Err(error) => error_map::group(error).code(),
    }
}

/// A text of a request as the coordinator keeps it.
pub(super) fn text(wire: &StrBytes) -> Arc<str> {
    Arc::from(wire.as_str())
}

/// A text that may be missing.
pub(super) fn optional(wire: Option<&StrBytes>) -> Option<Arc<str>> {
    wire.map(text)
}

/// A text of the coordinator for an answer.
pub(super) fn wire(text: &str) -> StrBytes {
    StrBytes::from(text)
}

/// What went wrong, in words.
pub(super) fn words(error: &impl std::fmt::Display) -> Option<StrBytes> {
    Some(StrBytes::from(error.to_string()))
}
