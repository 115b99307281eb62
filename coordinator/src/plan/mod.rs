//! Planners: what is read for a request, or how long it waits. They decide; the shard carries out.

pub mod fetch;
