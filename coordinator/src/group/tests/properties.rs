//! Random schedules: what must hold of every history of a classic group.

use proptest::prelude::*;

use super::*;

/// What one client does next.
#[derive(Clone, Debug)]
enum Step {
    Join {
        client: usize,
        two_steps: bool,
        names: u8,
    },
    Sync {
        client: usize,
    },
    Heartbeat {
        client: usize,
    },
    Commit {
        client: usize,
        offset: i64,
    },
    Leave {
        client: usize,
    },
    /// It loses its id and its connection.
    Crash {
        client: usize,
    },
    Pass {
        ms: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0usize..5;
    prop_oneof![
        4 => (client.clone(), any::<bool>(), 1u8..4)
            .prop_map(|(client, two_steps, names)| Step::Join { client, two_steps, names }),
        4 => client.clone().prop_map(|client| Step::Sync { client }),
        2 => client.clone().prop_map(|client| Step::Heartbeat { client }),
        1 => (client.clone(), 0i64..100).prop_map(|(client, offset)| Step::Commit { client, offset }),
        1 => client.clone().prop_map(|client| Step::Leave { client }),
        1 => client.prop_map(|client| Step::Crash { client }),
        3 => (0i64..4_000).prop_map(|ms| Step::Pass { ms }),
    ]
}

/// A client: the first two are static.
#[derive(Clone, Default)]
struct Client {
    id: Arc<str>,
    generation: i32,
    waits: Option<Ticket>,
}

#[derive(Default)]
struct History {
    clients: Vec<Client>,
    /// Who (which client) had which id.
    owners: BTreeMap<Arc<str>, usize>,
    /// Which client led which generation.
    leaders: BTreeMap<i32, usize>,
    asked: Vec<Ticket>,
}

impl History {
    fn instance(client: usize) -> Option<Arc<str>> {
        (client < 2).then(|| s(&format!("i{client}")))
    }

    /// Takes in what was answered.
    fn hear(&mut self, rig: &mut Rig) -> Result<(), TestCaseError> {
        for client in 0..self.clients.len() {
            let Some(ticket) = self.clients[client].waits else { continue };
            let Some(reply) = rig.replies.remove(&ticket) else { continue };
            self.clients[client].waits = None;
            match reply {
                GroupReply::Joined(Ok(joined)) => {
                    self.owners.insert(joined.member.clone(), client);
                    // A leader may be told of before its own answer is heard.
                    if joined.leader == joined.member {
                        let known = *self.leaders.entry(joined.generation).or_insert(client);
                        prop_assert_eq!(known, client, "one leader a generation");
                        prop_assert!(joined.members.iter().any(|(id, ..)| *id == joined.member));
                    } else {
                        prop_assert!(joined.members.is_empty(), "only the leader sees the others");
                    }
                    prop_assert!(joined.generation >= self.clients[client].generation, "generations rise");
                    self.clients[client].id = joined.member;
                    self.clients[client].generation = joined.generation;
                }
                GroupReply::Joined(Err(JoinError { error: GroupError::MemberIdRequired, member })) => {
                    self.owners.insert(member.clone(), client);
                    self.clients[client].id = member;
                }
                GroupReply::Joined(Err(JoinError {
                    error: GroupError::UnknownMember | GroupError::FencedInstance,
                    ..
                })) => self.clients[client].id = Arc::default(),
                GroupReply::Joined(Err(_)) | GroupReply::Synced(Err(_)) => {}
                GroupReply::Synced(Ok(synced)) => {
                    // The leader assigns to everyone its id, or the one that it had before.
                    let owner =
                        std::str::from_utf8(&synced.assignment).ok().and_then(|id| self.owners.get(id));
                    prop_assert!(
                        owner == Some(&client) || synced.assignment.is_empty(),
                        "another's assignment"
                    );
                }
                other => prop_assert!(false, "unexpected {other:?}"),
            }
        }
        Ok(())
    }

    fn run(&mut self, rig: &mut Rig, step: &Step) {
        match *step {
            Step::Join { client, two_steps, names } if self.clients[client].waits.is_none() => {
                let all = [(s("range"), subscription(&["t"])), (s("rr"), Bytes::from(vec![names]))];
                let protocols = all.into_iter().enumerate().filter(|(bit, _)| names & (1 << bit) != 0);
                let request = JoinGroup {
                    instance: Self::instance(client),
                    requires_known_member: two_steps,
                    supports_skip_assignment: true,
                    protocols: protocols.map(|(_, protocol)| protocol).collect(),
                    ..again(&self.clients[client].id)
                };
                self.ask(client, rig.join(request));
            }
            Step::Sync { client } if self.clients[client].waits.is_none() => {
                let Client { id, generation, .. } = self.clients[client].clone();
                let assignments =
                    self.owners.keys().map(|id| (id.clone(), Bytes::from(id.to_string()))).collect();
                let instance = Self::instance(client);
                self.ask(client, rig.sync(SyncGroup { assignments, instance, ..asks(&id, generation) }));
            }
            Step::Heartbeat { client } => {
                let Client { id, generation, .. } = &self.clients[client];
                let _ = rig.heartbeat(id, *generation);
            }
            Step::Commit { client, offset } => {
                let Client { id, generation, .. } = &self.clients[client];
                rig.commit_as(id, *generation, vec![part("t", client as i32, offset, "")]);
            }
            Step::Leave { client } => {
                let id = self.clients[client].id.clone();
                let _ = rig.leave(&[(&id, None)]);
            }
            Step::Crash { client } => {
                if let Some(ticket) = self.clients[client].waits.take() {
                    rig.partition.cancel(ticket);
                    self.asked.retain(|asked| *asked != ticket);
                }
                self.clients[client].id = Arc::default();
            }
            Step::Pass { ms } => rig.pass(ms),
            Step::Join { .. } | Step::Sync { .. } => {}
        }
    }

    fn ask(&mut self, client: usize, ticket: Ticket) {
        self.clients[client].waits = Some(ticket);
        self.asked.push(ticket);
    }
}

/// What is durable of a group, as far as it is settled.
fn settled(partition: &mut GroupPartition, rig: &Rig) -> Option<String> {
    let cx =
        GroupContext { topics: &rig.topics, share_configs: &rig.configs, share_default: &rig.share_default };
    let mut ask = |command| partition.handle(rig.now, Ticket(u64::MAX), command, &cx).replies.remove(0).1;
    let group = ask(GroupCommand::Describe { group: s(GROUP) });
    let offsets = ask(GroupCommand::FetchOffsets { group: s(GROUP), member: None, partitions: None });
    match &group {
        GroupReply::Described(Ok(described)) if !matches!(described.state, "Stable" | "Empty") => None,
        _ => Some(format!("{group:?} {offsets:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn one_leader_rising_generations_everyone_answered_and_replay_tells_the_same(
        delay_ms in prop_oneof![Just(0), Just(1_000)],
        members_max in prop_oneof![Just(2usize), Just(100)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let limits =
            GroupLimits { initial_rebalance_delay_ms: delay_ms, members_max, ..GroupLimits::default() };
        let mut rig = Rig::with(limits);
        let mut history = History { clients: vec![Client::default(); 5], ..History::default() };
        let mut generation = -1;
        for step in &steps {
            history.run(&mut rig, step);
            history.hear(&mut rig)?;
            if let Some((last, _)) = history.leaders.last_key_value() {
                prop_assert!(*last >= generation);
                generation = *last;
            }
            let mut live = std::mem::replace(&mut rig.partition, GroupPartition::new(rig.limits.clone()));
            let told = settled(&mut live, &rig);
            rig.partition = live;
            if let Some(told) = told {
                let mut back = replayed(&rig.log, &rig.limits);
                back.loaded(rig.now);
                if members_max == 100 {
                    prop_assert_eq!(settled(&mut back, &rig), Some(told));
                }
            }
        }
        // Nobody does anything any more: sessions and waits run out, and with them every request is answered.
        rig.pass(20 * 60 * 1_000);
        history.hear(&mut rig)?;
        prop_assert!(history.clients.iter().all(|client| client.waits.is_none()), "somebody waits for ever");
        if let Ok(group) = rig.describe(GROUP) {
            prop_assert_eq!((group.state, group.members.len()), ("Empty", 0));
        }
    }
}
