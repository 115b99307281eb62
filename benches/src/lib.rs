//! Benchmarks of the parts and of the whole: what they share.

pub mod bounds;
pub mod requests;
pub mod share;
pub mod side_by_side;
pub mod sizes;
pub mod workload;
