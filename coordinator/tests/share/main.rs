//! Share groups, through the share machine alone: its facade, an injected clock, and a plain executor.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "tests")]

mod admin;
mod answers;
mod common;
mod counters;
mod dead_letters;
mod executor;
mod hand;
mod kafka_order;
mod key_order;
mod known_groups;
mod members;
mod model;
mod offsets_admin;
mod parked_keys;
mod parked_replays;
mod read_anew;
mod read_on;
mod recall;
mod redelivery;
mod replays;
mod retention;
mod rolling_restart;
mod scale;
mod session_ends;
mod standalone;
mod sticky;
mod stuck_key;
mod waiting_keys;
mod wakeups;
mod why;
