//! The pure state machines of the broker: the shard, its partitions, share-partitions, groups and planner.
//!
//! Inputs are values (commands, completions, facts, the time), outputs are values (submissions, replies,
//! effects). The coordinator never touches a file, a socket, a thread or a clock, and never iterates over a hash
//! map: the same inputs give the same outputs, which is what the simulation rests on.

pub mod command;
pub mod group;
pub mod io;
pub mod limits;
pub mod outbox;
pub mod plan;
pub mod reply;
pub mod shard;
pub mod share;
pub mod time;
