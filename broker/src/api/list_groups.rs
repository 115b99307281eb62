//! ListGroups (key 16, v0–v5).
//!
//! All groups of every kind. v4 states, and a filter by them (KIP-518); v5 kinds, and a filter by them (KIP-848). Filters
//! match without regard to case, and what no group can be matches none.

use coordinator::group::{GroupCommand, GroupReply, ListedGroup as Listed};
use protocol::StrBytes;
use protocol::wire::list_groups_response::ListedGroup;
use protocol::wire::{ListGroupsRequest, ListGroupsResponse};

use super::coordination::{ask, has_offsets_topic, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// Answers with the groups that match.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ListGroupsRequest,
) -> Result<ListGroupsResponse, CloseConnection> {
    let mut answer = ListGroupsResponse::default();
    if !has_offsets_topic(cx) {
        return Ok(answer);
    }
    match ask(cx, GroupCommand::List).await? {
        GroupReply::Listed(Ok(groups)) => {
            let matches = |group: &Listed| {
                is_among(&request.states_filter, group.state) && is_among(&request.types_filter, group.kind)
            };
            answer.groups = groups.into_iter().filter(matches).map(|group| told(&group)).collect();
        }
        GroupReply::Listed(Err(error)) => answer.error_code = error_map::group(&error).code(),
        other => unreachable!("a list of groups is answered by {other:?}"),
    }
    Ok(answer)
}

/// An empty filter lets everything through.
fn is_among(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}

fn told(group: &Listed) -> ListedGroup {
    let mut told = ListedGroup::default();
    told.group_id = wire(&group.group);
    told.protocol_type = wire(&group.protocol_type);
    told.group_state = wire(group.state);
    told.group_type = wire(group.kind);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_filters_ignore_case_and_know_no_strangers() {
        let filter = |words: &[&str]| words.iter().map(|word| StrBytes::from(*word)).collect::<Vec<_>>();
        assert!(is_among(&filter(&[]), "Stable"));
        assert!(is_among(&filter(&["empty", "STABLE"]), "Stable"));
        assert!(!is_among(&filter(&["bogus"]), "Stable"));
        assert!(!is_among(&filter(&[""]), "Stable"));
    }
}
