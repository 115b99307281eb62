//! Planners: what is read for a request and what goes out to whom, or how long it waits. They decide; the shard
//! carries out.

pub(crate) mod budget;
pub(crate) mod fairness;
pub mod fetch;
pub(crate) mod share_fetch;
