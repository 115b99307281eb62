//! Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, both sides tell changes only.
//!
//! Follows Kafka's `FetchSession`: a full fetch opens a session and answers every partition; an incremental one
//! answers those with news. A partition that sent records goes to the back of the session's order, so that a small
//! limit does not starve the others (case F06).

use std::collections::HashMap;
use std::sync::Arc;

use coordinator::time::{Micros, Mono};
use parking_lot::Mutex;
use protocol::ErrorCode;
use protocol::messages::TopicRef;
use protocol::messages::fetch::{FetchPartition, FetchRequest};
use records::ids::Offset;

use crate::entropy;

/// A full cache gives up a session that was not used for so long (Kafka's `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`).
const EVICTABLE_AFTER: Micros = Micros(120_000_000);

/// The epoch of a request that wants no session, or closes one.
const EPOCH_FINAL: i32 = -1;
/// The epoch of a request that opens a session.
const EPOCH_INITIAL: i32 = 0;

/// All sessions of the broker.
#[derive(Debug)]
pub struct FetchSessions {
    state: Mutex<State>,
    sessions_max: usize,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<i32, (Mono, Arc<Mutex<Session>>)>,
}

#[derive(Debug)]
struct Session {
    epoch_next: i32,
    by_id: bool,
    /// In the order in which they are served.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    wanted: Wanted,
    /// What the client was told last.
    told: Option<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    high_watermark: Offset,
    log_start: Offset,
}

/// One partition that a request fetches, whether it says so or its session does.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The topic in the request's form.
    pub topic: TopicRef,
    /// From where and how much.
    pub partition: FetchPartition,
}

impl Wanted {
    fn is(&self, topic: &TopicRef, index: i32) -> bool {
        self.partition.index == index && self.topic == *topic
    }
}

/// What a request fetches, and how its answer is to be told.
#[derive(Debug)]
pub struct Turn {
    /// The partitions, in the order in which they are served.
    pub wanted: Vec<Wanted>,
    /// The session id for the answer, 0 for none.
    pub session_id: i32,
    /// Partitions without news are left out of the answer.
    pub incremental: bool,
    session: Option<Arc<Mutex<Session>>>,
}

/// What an answer says of one partition, as far as news go.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// The end of what is visible, −1 on error.
    pub high_watermark: Offset,
    /// The log's start, −1 on error.
    pub log_start: Offset,
    /// Whether records go out.
    pub has_records: bool,
    /// Whether it is an error, or something else that must be told.
    pub must_tell: bool,
}

impl FetchSessions {
    /// Keeps at most so many sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        Self { state: Mutex::default(), sessions_max }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().sessions.len()
    }

    /// Takes a request into its session, or opens, closes or does without one, as its epoch says.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR for the whole request.
    pub fn begin(&self, now: Mono, request: &FetchRequest, by_id: bool) -> Result<Turn, ErrorCode> {
        match request.session_epoch {
            EPOCH_FINAL | EPOCH_INITIAL => {
                let wanted = all_of(request);
                let opens = request.session_epoch == EPOCH_INITIAL && !wanted.is_empty();
                let mut state = self.state.lock();
                if request.session_id != 0 {
                    state.sessions.remove(&request.session_id);
                }
                let opened = if opens { self.open(&mut state, now, &wanted, by_id) } else { None };
                drop(state);
                let (session_id, session) = opened.map_or((0, None), |(id, session)| (id, Some(session)));
                Ok(Turn { wanted, session_id, incremental: false, session })
            }
            _ => self.advance(now, request, by_id),
        }
    }

    fn open(
        &self,
        state: &mut State,
        now: Mono,
        wanted: &[Wanted],
        by_id: bool,
    ) -> Option<(i32, Arc<Mutex<Session>>)> {
        if state.sessions.len() >= self.sessions_max {
            let (id, used) =
                state.sessions.iter().map(|(id, (used, _))| (*id, *used)).min_by_key(|(_, used)| *used)?;
            if now - used < EVICTABLE_AFTER {
                return None;
            }
            state.sessions.remove(&id);
        }
        // Ids of an earlier life must name nothing: whoever comes back from it closes the one that it had
        // (`FetchSessionCache.newSessionId`).
        let id = loop {
            let id = entropy::fetch_session_id();
            if !state.sessions.contains_key(&id) {
                break id;
            }
        };
        let parts = wanted.iter().map(|wanted| Part { wanted: wanted.clone(), told: None }).collect();
        let session = Arc::new(Mutex::new(Session { epoch_next: 1, by_id, parts }));
        state.sessions.insert(id, (now, Arc::clone(&session)));
        Some((id, session))
    }

    fn advance(&self, now: Mono, request: &FetchRequest, by_id: bool) -> Result<Turn, ErrorCode> {
        let mut state = self.state.lock();
        let (used, session) =
            state.sessions.get_mut(&request.session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let shared = Arc::clone(session);
        let mut session = shared.lock();
        if session.epoch_next != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        *used = now;
        session.update(request);
        if session.parts.is_empty() {
            state.sessions.remove(&request.session_id);
            drop(session);
            return Ok(Turn { wanted: Vec::new(), session_id: 0, incremental: false, session: None });
        }
        session.epoch_next = session.epoch_next.checked_add(1).unwrap_or(1);
        let wanted = session.parts.iter().map(|part| part.wanted.clone()).collect();
        drop(session);
        Ok(Turn { wanted, session_id: request.session_id, incremental: true, session: Some(shared) })
    }
}

impl Turn {
    /// Whether the answer is to speak of each partition, given what it would say (same order as `wanted`); the
    /// session remembers what is told.
    #[must_use]
    pub fn end(&self, news: &[News]) -> Vec<bool> {
        let Some(session) = &self.session else { return vec![true; news.len()] };
        let mut session = session.lock();
        let mut tell = Vec::with_capacity(news.len());
        for (wanted, news) in self.wanted.iter().zip(news) {
            let told = Told { high_watermark: news.high_watermark, log_start: news.log_start };
            let place =
                session.parts.iter().position(|part| part.wanted.is(&wanted.topic, wanted.partition.index));
            let Some(place) = place else {
                // Another request of the same session has forgotten it meanwhile.
                tell.push(!self.incremental || news.has_records || news.must_tell);
                continue;
            };
            let part = &mut session.parts[place];
            let changed = part.told != Some(told);
            // An error is not remembered, so that the first answer without one is told as news.
            part.told = if news.must_tell { None } else { Some(told) };
            tell.push(!self.incremental || changed || news.has_records || news.must_tell);
            if self.incremental && news.has_records {
                session.parts[place..].rotate_left(1);
            }
        }
        tell
    }
}

impl Session {
    fn update(&mut self, request: &FetchRequest) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                match self.parts.iter_mut().find(|part| part.wanted.is(&topic.topic, partition.index)) {
                    Some(part) => part.wanted.partition = partition.clone(),
                    None => self.parts.push(Part {
                        wanted: Wanted { topic: topic.topic.clone(), partition: partition.clone() },
                        told: None,
                    }),
                }
            }
        }
        for topic in &request.forgotten_topics {
            self.parts
                .retain(|part| !topic.partitions.iter().any(|index| part.wanted.is(&topic.topic, *index)));
        }
    }
}

/// The partitions that a request names, each once.
fn all_of(request: &FetchRequest) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            if seen.insert((&topic.topic, partition.index)) {
                wanted.push(Wanted { topic: topic.topic.clone(), partition: partition.clone() });
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
