//! Benchmarks of the parts and of the whole: what they share.

pub mod alone;
pub mod bounds;
pub mod crew;
pub mod jvm_job;
pub mod keyed;
pub mod makespan;
pub mod mixes;
pub mod requests;
pub mod responder;
pub mod share;
pub mod side_by_side;
pub mod sizes;
pub mod workload;
