//! The local executor: who runs the shard, and the threads that serve its I/O.
//!
//! One worker owns the shard and the logs and serves what the shard submits through [`serve`], in order; one thread at a
//! time runs it ([`engine`]). What would hold it up runs on small pools: syncs, reads of ranges that are not in memory,
//! compaction, indexing of keys, and deletes of files.

mod cleaning;
mod control;
mod data;
mod engine;
pub mod flush;
mod handle;
mod indexing;
mod mailbox;
mod pool;
mod readahead;
mod replies;
pub mod serve;
mod shard_time;
mod thread;
mod worker;

pub use cleaning::CleaningPace;
pub use control::{OpenPartition, Refused};
pub use data::{Data, FileRange};
pub use handle::{Pending, Reply, ShardHandle, Stopped};
pub use indexing::KeyedPartitions;
pub use thread::Executor;
pub use worker::Parts;
