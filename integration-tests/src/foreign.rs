//! Programs of the outside world: the clients and tools that users have, which the project did not write.
//!
//! Each is set up once by `foreign/setup.sh`, in a cache outside the source tree. A test asks for a tool chain with
//! [`require`]; the probes, one program a language with the same roles and options, are described in
//! `foreign/README.md`.

pub mod apache_kafka;
pub mod kafka_tools;
pub mod probe;
mod tool_chain;

pub use apache_kafka::ApacheKafka;
pub use kafka_tools::KafkaTools;
pub use probe::{Client, Probe, Role, RunningProbe};
pub use tool_chain::{Installed, ToolChain, require};
