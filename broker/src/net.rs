//! Connections: frames in, answers out in order.

mod connection;
mod fault_log;
mod frames;
mod listener;
mod progress;
mod registry;
mod sendfile;
#[cfg(test)]
mod tests;
mod threads;
mod writer;

pub use listener::serve;
pub use registry::Connections;
pub use threads::NetThreads;
