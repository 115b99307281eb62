//! Tests that need the inside: shapes, and a count of what decoding allocates.

mod allocations;
mod hostile;
mod memory;
mod samples;
mod shapes;
