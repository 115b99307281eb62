//! Who is assigned which partitions of a share group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::TopicId;

use super::ShareMember;
use crate::command::TopicImage;
use crate::group::stored::Assignment;

/// A partition of a topic, as an assignment names it.
type Place = (TopicId, i32);

/// Everyone gets every partition of its topics: with keys in order, any member may take any ready key.
pub(super) fn assign_all(members: &BTreeMap<Arc<str>, ShareMember>, topics: &TopicImage) -> Vec<Assignment> {
    members
        .values()
        .map(|member| {
            let known = member.topics.iter().filter_map(|name| topics.topics.get(name));
            known.map(|(id, count)| (*id, (0..*count).collect())).collect()
        })
        .collect()
}

/// Partitions spread evenly over the members, with little movement (`SimpleAssignor`, KIP-932): each partition goes to
/// equally many members, one where there are enough partitions; the sizes of two members' shares differ by one at
/// most; within that, members keep what they have.
///
/// Topics with the same subscribers are spread together, others apart.
pub(super) fn assign_simple(
    members: &BTreeMap<Arc<str>, ShareMember>,
    topics: &TopicImage,
) -> Vec<Assignment> {
    let mut result = vec![Assignment::new(); members.len()];
    let mut by_subscribers: BTreeMap<Vec<usize>, Vec<Place>> = BTreeMap::new();
    let names: BTreeSet<&Arc<str>> = members.values().flat_map(|member| &member.topics).collect();
    for name in names {
        let Some((id, count)) = topics.topics.get(name) else { continue };
        let subscribers = members.values().enumerate().filter(|(_, member)| member.topics.contains(name));
        let places = by_subscribers.entry(subscribers.map(|(index, _)| index).collect()).or_default();
        places.extend((0..*count).map(|partition| (*id, partition)));
    }
    let members: Vec<&ShareMember> = members.values().collect();
    for (subscribers, places) in by_subscribers {
        spread(&members, &subscribers, &places, &mut result);
    }
    for partitions in result.iter_mut().flat_map(BTreeMap::values_mut) {
        partitions.sort_unstable();
    }
    result
}

/// Spreads partitions over their subscribers.
fn spread(members: &[&ShareMember], subscribers: &[usize], places: &[Place], result: &mut [Assignment]) {
    if places.is_empty() {
        return;
    }
    let sharing = subscribers.len().div_ceil(places.len());
    let slots = places.len() * sharing;
    let held: Vec<Vec<Place>> = subscribers.iter().map(|index| held_of(members[*index], places)).collect();

    // Who has most keeps most: the shares that are larger by one go to them.
    let mut by_held: Vec<usize> = (0..subscribers.len()).collect();
    by_held.sort_by_key(|index| (std::cmp::Reverse(held[*index].len()), *index));
    let mut quota = vec![slots / subscribers.len(); subscribers.len()];
    for index in by_held.iter().take(slots % subscribers.len()) {
        quota[*index] += 1;
    }

    let mut takers: BTreeMap<Place, usize> = places.iter().map(|place| (*place, 0)).collect();
    let mut shares: Vec<BTreeSet<Place>> = vec![BTreeSet::new(); subscribers.len()];
    for index in 0..subscribers.len() {
        for place in &held[index] {
            let taken = takers.get_mut(place).expect("what is held was filtered by the places");
            if shares[index].len() < quota[index] && *taken < sharing {
                *taken += 1;
                shares[index].insert(*place);
            }
        }
    }
    // The rest in order: the partition with the fewest takers first, to whom lacks most.
    for index in 0..subscribers.len() {
        while shares[index].len() < quota[index] {
            let free =
                takers.iter().filter(|(place, taken)| **taken < sharing && !shares[index].contains(*place));
            let Some((place, _)) = free.min_by_key(|(place, taken)| (**taken, **place)) else { break };
            let place = *place;
            *takers.get_mut(&place).expect("it was found there") += 1;
            shares[index].insert(place);
        }
    }
    for (index, share) in shares.into_iter().enumerate() {
        for (topic, partition) in share {
            result[subscribers[index]].entry(topic).or_default().push(partition);
        }
    }
}

fn held_of(member: &ShareMember, places: &[Place]) -> Vec<Place> {
    let holds = |place: &&Place| member.target.get(&place.0).is_some_and(|held| held.contains(&place.1));
    places.iter().filter(holds).copied().collect()
}
