//! Administration over the wire: topics, settings, offsets, producer ids, the cluster. Every answer is decoded by a
//! second implementation of the protocol.

mod cluster;
mod configs;
mod effects;
mod groups;
mod lives;
mod log_dirs;
mod offsets;
mod producers;
mod support;
mod topics;
mod versions;
