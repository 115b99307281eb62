//! The Rust key-share client: many workers on one partition, every key in order.
//!
//! A [`KeyShareConsumer`] is a member of a key-ordered share group (`sluice.share.order=key`; of any other group
//! [`run`](KeyShareConsumer::run) ends with an error). It is given one async function; it calls it
//! once a record, runs keys side by side, and keeps each key's order: the next record of a key starts when the one
//! before it was settled. It renews the leases of slow records, acknowledges in batches, gives up the rest of a key
//! when one of its records failed, and stops work on records whose lease is lost.
//!
//! ```no_run
//! use client::{KeyShareConsumer, Outcome};
//!
//! # async fn example() -> Result<(), client::Error> {
//! let consumer = KeyShareConsumer::builder("127.0.0.1:9092", "billing")
//!     .topic("orders")
//!     .concurrency(32)
//!     .build();
//! consumer
//!     .run(tokio::time::sleep(std::time::Duration::from_secs(60)), |record| async move {
//!         println!("{}: {:?}", record.offset, record.key);
//!         Outcome::Accept
//!     })
//!     .await
//! # }
//! ```
//!
//! The wire side is the key-share API of Sluice (`protocol/schemas`); group membership is the share group's own
//! (KIP-932), so that these members and stock share consumers work in one group.

pub mod admin;
mod clock;
mod cluster;
mod connection;
mod consumer;
mod driver;
mod error;
mod membership;
mod reader;
mod record;
mod session;
mod stats;
mod work;

pub use admin::Admin;
pub use consumer::{Builder, KeyShareConsumer};
pub use error::Error;
pub use reader::{RangeReader, RangeReaderSettings};
pub use record::{Outcome, Record};
pub use stats::Stats;
