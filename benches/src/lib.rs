//! benchmarks of the parts and of the whole.
