//! The broker: connections, handlers, the local executor, configuration, metrics and the sluice command.
//!
//! A request's way: socket → [`net`] (frame, limits, order) → [`dispatch`] (API table, decoding) → [`api`], one file
//! an API → the shard (decides) behind [`executor`] (serves its I/O) → the answer's segments → socket.

pub mod admission;
pub mod api;
pub mod broker;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod context;
#[cfg(feature = "demo")]
pub mod demo;
pub mod dispatch;
pub mod entropy;
pub mod error_map;
pub mod executor;
pub mod fetch_session;
pub mod line_limit;
pub mod members_seen;
pub mod metrics;
pub mod net;
pub mod start;
