//! Readers without membership: for a while all members are gone, and two readers read ranges of keys, commit, lose
//! their connections and each other's ranges.

use std::sync::Arc;

use coordinator::command::{
    AckRange, KeyRange, KeyShareTerms, ShareAcknowledge, ShareFetch, ShareFetchPart, StandaloneCommit,
    StandaloneFetch, Ticket,
};
use coordinator::reply::Reply;
use coordinator::share::{LeftBy, ShareCommand, ShareError};
use proptest::prelude::*;
use records::ids::KeyHash;

use super::{KEYS, MEMBERS, Run, State};
use crate::common::{ACCEPT, REJECT, RELEASE, RENEW, each, got, group, key, partition, range};

const READERS: [&str; 2] = ["R0", "R1"];

/// What a reader does.
#[derive(Clone, Debug)]
pub(super) enum ReaderStep {
    Produce(Vec<usize>),
    Fetch {
        reader: usize,
        max: i32,
    },
    Commit {
        reader: usize,
        from: i64,
        count: i64,
    },
    Ack {
        reader: usize,
        pick: usize,
        kind: i8,
    },
    Pass(i64),
    Lose(usize),
    /// It begins anew, with all keys or with its own.
    Claim {
        reader: usize,
        all: bool,
    },
    Restart,
}

/// What is known of the readers.
#[derive(Debug, Default)]
pub(super) struct Readers {
    epochs: [i32; 2],
    all: [bool; 2],
}

impl Readers {
    /// A reader's number by the name that it has inside: its start of the broker, and its connection.
    pub(super) fn number_of(&self, name: &str, boot: u32) -> usize {
        let inside = name.strip_prefix("\u{0}standalone/").expect("neither a member nor a reader");
        let (of_boot, connection) = inside.split_once('/').expect("a start and a connection");
        assert_eq!(of_boot, boot.to_string(), "a reader of before the restart holds something");
        // Connections are handed out alternately: see `connection_of`.
        usize::from(connection.parse::<u64>().unwrap() % 2 == 1)
    }
}

pub(super) fn reader_steps() -> impl Strategy<Value = Vec<ReaderStep>> {
    let reader = 0..READERS.len();
    let kind = prop::sample::select(vec![ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]);
    let step = prop_oneof![
        2 => prop::collection::vec(0..KEYS.len(), 1..6).prop_map(ReaderStep::Produce),
        6 => (reader.clone(), 1..8_i32).prop_map(|(reader, max)| ReaderStep::Fetch { reader, max }),
        3 => (reader.clone(), 0..30_i64, 1..6_i64)
            .prop_map(|(reader, from, count)| ReaderStep::Commit { reader, from, count }),
        4 => (reader.clone(), 0..8_usize, kind).prop_map(|(reader, pick, kind)| ReaderStep::Ack { reader, pick, kind }),
        1 => prop::sample::select(vec![50, 4_000, 15_000]).prop_map(ReaderStep::Pass),
        1 => reader.clone().prop_map(ReaderStep::Lose),
        1 => (reader, any::<bool>()).prop_map(|(reader, all)| ReaderStep::Claim { reader, all }),
        1 => Just(ReaderStep::Restart),
    ];
    prop::collection::vec(step, 1..12)
}

impl Run {
    /// The group is read without membership for a while.
    pub(super) fn read_standalone(&mut self, steps: &[ReaderStep]) {
        if !self.keyed {
            return;
        }
        for (member, name) in MEMBERS.iter().enumerate() {
            self.stops(member);
            drop(self.world.close_session(name, vec![]));
            self.world.left(name, LeftBy::SessionTimeout);
            self.world.reopen(name);
        }
        self.world.live(&[]);
        self.readers = Readers::default();
        for step in steps {
            self.trace.push(format!("{step:?}"));
            match *step {
                ReaderStep::Produce(ref keys) => self.produce(keys),
                ReaderStep::Fetch { reader, max } => self.reader_fetches(reader, max),
                ReaderStep::Commit { reader, from, count } => self.reader_commits(reader, from, count),
                ReaderStep::Ack { reader, pick, kind } => self.reader_acks(reader, pick, kind),
                ReaderStep::Pass(ms) => self.world.pass_ms(ms),
                ReaderStep::Lose(reader) => self.reader_lost(reader),
                ReaderStep::Claim { reader, all } => {
                    self.reader_lost(reader);
                    self.readers.all[reader] = all;
                }
                ReaderStep::Restart => {
                    self.works.clear();
                    self.readers.epochs = [0; 2];
                    self.copied.extend(self.world.letter_offsets());
                    self.cold = true;
                    self.world.restart(0);
                    self.world.live(&[]);
                }
            }
        }
        READERS.iter().enumerate().for_each(|(reader, _)| self.reader_lost(reader));
        // From now on members are at work again.
        self.world.live(&MEMBERS);
    }

    /// Its connection, which is even for the first reader and odd for the other.
    fn connection_of(&mut self, reader: usize) -> coordinator::command::ConnectionId {
        let name = READERS[reader];
        loop {
            let connection = self.world.connection(name);
            if connection.0 % 2 == reader as u64 {
                return connection;
            }
            self.world.connections.remove(name);
        }
    }

    fn reader_lost(&mut self, reader: usize) {
        self.stops(MEMBERS.len() + reader);
        self.readers.epochs[reader] = 0;
        self.world.lose(READERS[reader]);
    }

    fn ranges_of(&self, reader: usize) -> KeyRange {
        // The first one has a and b, the other one the rest.
        let middle = key(KEYS[1]).unwrap().0;
        match (self.readers.all[reader], reader) {
            (true, _) => KeyRange { first: KeyHash(0), last: KeyHash(u64::MAX) },
            (false, 0) => KeyRange { first: KeyHash(0), last: KeyHash(middle) },
            (false, _) => KeyRange { first: KeyHash(middle + 1), last: KeyHash(u64::MAX) },
        }
    }

    fn is_of(&self, reader: usize, offset: i64) -> bool {
        let ranges = self.ranges_of(reader);
        let hash = key(KEYS[self.records[&offset].key]);
        // What stands for no key is the broker's affair.
        hash.is_none_or(|hash| ranges.first <= hash && hash <= ranges.last)
    }

    fn reader_fetches(&mut self, reader: usize, max: i32) {
        let connection = self.connection_of(reader);
        let epoch = self.readers.epochs[reader];
        let parts =
            if epoch == 0 { vec![ShareFetchPart { partition: partition(0), acks: vec![] }] } else { vec![] };
        let ranges = parts.iter().map(|part| (part.partition, vec![self.ranges_of(reader)])).collect();
        let fetch = ShareFetch {
            connection,
            group: group(),
            member: Arc::from(""),
            epoch,
            wait_max_ms: 0,
            bytes_min: 1,
            bytes_max: 1 << 20,
            records_max: max,
            batch_size: 500,
            strict: true,
            renew: false,
            parts,
            forgotten: vec![],
            key_share: Some(KeyShareTerms::default()),
        };
        let ticket = self.world.command(ShareCommand::StandaloneFetch(StandaloneFetch { fetch, ranges }));
        let Some(answer) = self.world.fetched(READERS[reader], ticket) else { return };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.reader_refused(reader, error),
        };
        self.readers.epochs[reader] += 1;
        let got = each(&got(&answer));
        self.trace.push(format!("{got:?}"));
        assert!(got.len() <= usize::try_from(max).unwrap(), "never more than asked");
        if epoch == 0 && (self.readers.all.contains(&true)) {
            // The newest session has the ranges, and who had any of them nothing more.
            self.stops(MEMBERS.len() + 1 - reader);
        }
        for (offset, count) in got {
            assert!(self.is_of(reader, offset), "{offset} is of no range of reader {reader}");
            self.granted(MEMBERS.len() + reader, offset, count);
        }
    }

    fn reader_refused(&mut self, reader: usize, error: ShareError) {
        self.trace.push(format!("{error:?}"));
        assert!(
            matches!(
                error,
                ShareError::Fenced | ShareError::SessionNotFound | ShareError::InvalidSessionEpoch
            ),
            "{error:?}"
        );
        self.reader_lost(reader);
    }

    fn reader_commits(&mut self, reader: usize, from: i64, count: i64) {
        let connection = self.connection_of(reader);
        let range = (from, from + count - 1);
        let parts = vec![(partition(0), vec![range])];
        let undone: Vec<i64> = (range.0..=range.1).filter(|&offset| self.world_has(offset)).collect();
        let ticket = self.world.command(ShareCommand::StandaloneCommit(StandaloneCommit {
            connection,
            group: group(),
            parts,
        }));
        let outcome = match self.acked_reply(ticket) {
            Ok(outcome) => outcome,
            Err(error) => return self.reader_refused(reader, error),
        };
        self.trace.push(format!("{outcome:?}"));
        match outcome {
            // Beyond what was ever handed out; or of a record that is not at hand.
            Some(ShareError::InvalidRequest | ShareError::Unavailable) => return,
            Some(error) => panic!("{error:?}"),
            None => {}
        }
        for offset in range.0..=range.1 {
            if !self.records.contains_key(&offset) || !self.is_of(reader, offset) {
                continue;
            }
            let keyless = KEYS[self.records[&offset].key] == "-";
            if keyless && self.world_has(offset) {
                continue;
            }
            assert!(
                !self.world_has(offset) || self.records[&offset].replayed,
                "{offset} was committed, and is not done"
            );
            self.works.remove(&offset);
            let record = self.records.get_mut(&offset).unwrap();
            if undone.contains(&offset)
                && matches!(record.state, State::Free | State::Held { .. } | State::Dead)
                && !self.world.machine.is_unsettled("g", partition(0), records::ids::Offset(offset))
            {
                record.state = State::Accepted;
            }
        }
    }

    fn reader_acks(&mut self, reader: usize, pick: usize, kind: i8) {
        let member = MEMBERS.len() + reader;
        let held = self.held_by(member);
        let Some(&offset) = held.get(pick % held.len().max(1)) else { return };
        let before = self.before_ack(offset, offset);
        let connection = self.connection_of(reader);
        let number = self.world.deliveries.get(&(READERS[reader].to_string(), offset)).copied();
        let ack = AckRange { delivery: number, ..range(offset, offset, kind) };
        let request = ShareAcknowledge {
            connection,
            group: group(),
            member: Arc::from(""),
            epoch: self.readers.epochs[reader],
            renew: kind == RENEW,
            parts: vec![(partition(0), vec![ack])],
            key_share: true,
        };
        let ticket = self.world.command(ShareCommand::StandaloneAcknowledge(request));
        let error = match self.acked_reply(ticket) {
            Ok(error) => error,
            Err(error) => return self.reader_refused(reader, error),
        };
        self.readers.epochs[reader] += 1;
        self.acked(member, (offset, offset), kind, error, &before);
    }

    fn acked_reply(&mut self, ticket: Ticket) -> Result<Option<ShareError>, ShareError> {
        match self.world.replies.remove(&ticket).expect("it is answered") {
            Reply::ShareAcknowledged(reply) => {
                let reply = reply?;
                let part = &reply.parts[0];
                Ok(part.error.or(part.results.iter().find_map(|result| result.err())))
            }
            other => panic!("not the answer of an acknowledgement: {other:?}"),
        }
    }
}
