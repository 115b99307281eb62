//! Data directories of Apache Kafka 4.4 and ours, each read by the other.

mod bench;
mod dump_log;
mod fill;
mod from_kafka;
mod to_kafka;
