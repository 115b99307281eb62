//! Share groups, through the share machine alone: its facade, an injected clock, and a plain executor.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "tests")]

mod answers;
mod common;
mod executor;
mod kafka_order;
mod key_order;
mod members;
mod model;
mod recall;
mod redelivery;
mod scale;
mod stuck_key;
mod waiting_keys;
mod wakeups;
