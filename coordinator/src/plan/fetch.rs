//! The planner of plain fetches: what can be said from known facts, what has to be read, and when to wait.
//!
//! It is asked twice for every answer. Before I/O [`plan`] knows the logs' ends but no sizes: it parks a fetch for
//! which there is nothing at all without touching a disk. After I/O [`verdict`] knows the bytes found. Both follow
//! `ReplicaManager.fetchMessages` and `DelayedFetch`: an error in any partition, enough bytes or the end of the wait
//! make the answer go out; a woken fetch comes through here again.

use records::ids::Offset;

use crate::command::{Fetch, FetchPart, Isolation};
use crate::io::{LogFacts, ReadPart};
use crate::outbox::LogTable;
use crate::reply::FetchError;
use crate::time::Mono;

/// What to do with a fetch now.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Read these and answer, or wait on if the bytes found are too few. One entry a part, in the request's order.
    /// Where no part is to be read the answer goes out without I/O.
    Ready(Vec<PartPlan>),
    /// There is nothing for it. Plan again when a log that it names changes, at the latest then.
    Park {
        /// End of the wait.
        deadline: Mono,
    },
}

/// What to do for one partition of a fetch.
#[derive(Clone, Copy, Debug)]
pub enum PartPlan {
    /// Answer this.
    Refused(FetchError),
    /// There is nothing at its offset yet.
    Nothing,
    /// There is something.
    Read(ReadPart),
}

/// What the bytes found mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer with them.
    Answer,
    /// Wait for this many more bytes; at least 1.
    Missing(u64),
}

/// Plans a fetch whose wait ends at `deadline`.
#[must_use]
pub fn plan(now: Mono, deadline: Mono, fetch: &Fetch, logs: &LogTable) -> Plan {
    let mut parts = Vec::with_capacity(fetch.parts.len());
    let mut wait = now < deadline && fetch.bytes_min > 0 && !fetch.parts.is_empty();
    for part in &fetch.parts {
        let planned = plan_part(fetch.isolation, part, logs);
        wait &= matches!(planned, PartPlan::Nothing);
        parts.push(planned);
    }
    if wait { Plan::Park { deadline } } else { Plan::Ready(parts) }
}

/// Says whether a fetch for which `bytes` were found is answered now. `failed`: a part was refused.
#[must_use]
pub fn verdict(now: Mono, deadline: Mono, fetch: &Fetch, bytes: u64, failed: bool) -> Verdict {
    // A minimum above the maximum could never be met (`KafkaApis.handleFetchRequest` caps it alike).
    let enough = fetch.bytes_min.min(fetch.bytes_max.max(1));
    if failed || bytes >= enough || now >= deadline {
        Verdict::Answer
    } else {
        Verdict::Missing(enough - bytes)
    }
}

/// First offset that is not shown under this isolation.
#[must_use]
pub fn upper(isolation: Isolation, facts: &LogFacts) -> Offset {
    match isolation {
        Isolation::ReadUncommitted => facts.end,
        Isolation::ReadCommitted => facts.last_stable.min(facts.end),
    }
}

/// Checks the leader epoch that a client knows (KIP-320; −1: none) against the log's.
pub fn check_epoch(known: i32, facts: &LogFacts) -> Result<(), FetchError> {
    match known {
        i32::MIN..0 => Ok(()),
        _ if known < facts.leader_epoch => Err(FetchError::FencedEpoch),
        _ if known > facts.leader_epoch => Err(FetchError::UnknownEpoch),
        _ => Ok(()),
    }
}

fn plan_part(isolation: Isolation, part: &FetchPart, logs: &LogTable) -> PartPlan {
    let Some(facts) = logs.get(&part.partition) else {
        return PartPlan::Refused(FetchError::UnknownPartition);
    };
    if let Err(error) = check_epoch(part.current_leader_epoch, facts) {
        return PartPlan::Refused(error);
    }
    // An epoch that never was has no end offset to compare with (`Partition.readRecords` answers as here).
    let diverged = part.last_fetched_epoch > facts.leader_epoch;
    if diverged || part.offset < facts.log_start || part.offset > facts.end {
        return PartPlan::Refused(FetchError::OutOfRange);
    }
    let upper = upper(isolation, facts);
    if part.offset >= upper {
        return PartPlan::Nothing;
    }
    PartPlan::Read(ReadPart {
        partition: part.partition,
        from: part.offset,
        upper,
        bytes_max: part.bytes_max,
        committed: isolation == Isolation::ReadCommitted,
    })
}
