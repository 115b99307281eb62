//! The demo: real flights through one partition.

pub mod flights;
