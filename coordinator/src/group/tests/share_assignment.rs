//! How the partitions of a share group are spread (order `none`), as KIP-932's `SimpleAssignor` does it.

use proptest::prelude::*;

use super::*;

/// Joins the members, lets each hear of its assignment, and returns who has what.
fn assigned(rig: &mut Rig, members: &[&str], topics: &[&str]) -> BTreeMap<Arc<str>, Vec<(TopicId, i32)>> {
    for member in members {
        rig.share(member, 0, topics).unwrap();
    }
    current(rig)
}

fn current(rig: &mut Rig) -> BTreeMap<Arc<str>, Vec<(TopicId, i32)>> {
    let ids: Vec<_> = rig.partition.share_members(GROUP).cloned().collect();
    for id in ids {
        rig.share(&id, 0, &["t"]).unwrap();
    }
    let Ok(group) = rig.describe_share(GROUP) else { return BTreeMap::new() };
    let list = |member: &DescribedShareMember| {
        let each = |(topic, _, partitions): &(TopicId, Arc<str>, Vec<i32>)| {
            partitions.iter().map(|partition| (*topic, *partition)).collect::<Vec<_>>()
        };
        member.assignment.iter().flat_map(each).collect()
    };
    group.members.iter().map(|member| (member.member.clone(), list(member))).collect()
}

#[test]
fn partitions_are_shared_out_among_few_members() {
    let mut rig = Rig::new();
    let shares = assigned(&mut rig, &["a", "b"], &["t"]);
    let sizes: Vec<usize> = shares.values().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1]);
    let mut all: Vec<i32> = shares.values().flatten().map(|(_, partition)| *partition).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2], "each partition goes to one of them");
}

#[test]
fn members_share_partitions_where_there_are_too_few() {
    let mut rig = Rig::new();
    let shares = assigned(&mut rig, &["a", "b", "c", "d", "e"], &["t"]);
    assert!(shares.values().all(|share| !share.is_empty()));
}

#[test]
fn members_keep_what_they_have() {
    let mut rig = Rig::new();
    rig.topics.topics.insert(s("t"), (TopicId([1; 16]), 12));
    let before = assigned(&mut rig, &["a", "b", "c"], &["t"]);
    let after = assigned(&mut rig, &["d"], &["t"]);
    for (member, share) in &after {
        assert_eq!(share.len(), 3);
        if let Some(before) = before.get(member) {
            assert!(share.iter().all(|place| before.contains(place)), "{member} got something new");
        }
    }
    rig.share("d", -1, &[]).unwrap();
    let back = current(&mut rig);
    for (member, share) in &back {
        assert!(after[member].iter().all(|place| share.contains(place)), "{member} lost something");
    }
}

proptest! {
    #[test]
    fn every_partition_is_read_and_nobody_has_much_more(
        partitions in 1i32..20,
        steps in prop::collection::vec((0usize..12, any::<bool>()), 1..30),
    ) {
        let mut rig = Rig::new();
        rig.topics.topics.insert(s("t"), (TopicId([1; 16]), partitions));
        for (index, joins) in steps {
            let member = format!("m{index}");
            if joins {
                rig.share(&member, 0, &["t"]).unwrap();
            } else {
                let _ = rig.share(&member, -1, &[]);
            }
            let shares = current(&mut rig);
            if shares.is_empty() {
                continue;
            }
            let mut takers = vec![0; partitions as usize];
            for (_, partition) in shares.values().flatten() {
                takers[*partition as usize] += 1;
            }
            let sharing = shares.len().div_ceil(partitions as usize);
            prop_assert!(takers.iter().all(|taken| (1..=sharing).contains(taken)), "{takers:?} of {sharing}");
            let sizes = || shares.values().map(Vec::len);
            prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            prop_assert!(sizes().min().unwrap() >= 1 || shares.len() <= partitions as usize);
        }
    }

    #[test]
    fn nobody_gets_a_topic_that_it_did_not_ask_for(
        subscriptions in prop::collection::vec(prop::collection::btree_set(0usize..4, 1..4), 1..8),
        order in prop_oneof![Just(ShareOrder::None), Just(ShareOrder::Key)],
    ) {
        let mut rig = Rig::new();
        rig.set_order(GROUP, order);
        let names = ["t0", "t1", "t2", "t3"];
        for (index, name) in names.iter().enumerate() {
            rig.topics.topics.insert(s(name), (TopicId([index as u8 + 10; 16]), index as i32 + 1));
        }
        let mut read = std::collections::BTreeSet::new();
        for (index, subscription) in subscriptions.iter().enumerate() {
            let topics: Vec<&str> = subscription.iter().map(|topic| names[*topic]).collect();
            rig.share(&format!("m{index}"), 0, &topics).unwrap();
        }
        for (index, subscription) in subscriptions.iter().enumerate() {
            let topics: Vec<&str> = subscription.iter().map(|topic| names[*topic]).collect();
            let assignment = rig.share(&format!("m{index}"), 0, &topics).unwrap().assignment.unwrap();
            for (topic, partitions) in assignment {
                let topic = usize::from(topic.0[0]) - 10;
                prop_assert!(subscription.contains(&topic));
                prop_assert!(partitions.iter().all(|partition| (0..=topic as i32).contains(partition)));
                if order == ShareOrder::Key {
                    prop_assert_eq!(partitions.len(), topic + 1);
                }
                read.extend(partitions.into_iter().map(|partition| (topic, partition)));
            }
        }
        let asked: std::collections::BTreeSet<usize> = subscriptions.iter().flatten().copied().collect();
        let expected: usize = asked.iter().map(|topic| topic + 1).sum();
        prop_assert_eq!(read.len(), expected, "every partition of every topic is read by someone");
    }
}
