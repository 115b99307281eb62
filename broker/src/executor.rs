//! The local executor: the shard's thread, and the threads that serve its I/O.

mod data;
mod handle;
mod mailbox;

pub use data::{Data, FileRange};
pub use handle::{Pending, Reply, ShardHandle, Stopped};
