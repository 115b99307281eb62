//! the Rust key-share client.
