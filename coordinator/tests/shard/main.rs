//! The shard against an executor in memory: produce, fetch, offsets, groups.

mod fetch;
mod groups;
mod log;
mod offsets;
mod produce;
mod properties;
mod share;
mod states;
mod world;
