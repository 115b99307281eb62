//! Imports from a directory such as Kafka leaves it: written by our own log, whose files are Kafka's, with a metadata
//! log made by hand. What a real broker leaves is imported by `integration-tests/tests/import.rs`.

mod crashes;
mod kafka;
mod metadata_log;
mod refusals;
mod transactions;
mod what_is_taken;
