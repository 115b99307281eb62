//! the broker: connections, handlers, the local executor, configuration, metrics and the sluice command.

pub mod demo;
