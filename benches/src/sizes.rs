//! How much a bench does: in full when measured, tiny when it only has to show that it still runs.

/// Whether the bench runs among the tests: `cargo bench` says `--bench`, `cargo test --benches` does not.
#[must_use]
pub fn is_tiny() -> bool {
    let args: Vec<String> = std::env::args().collect();
    !args.iter().any(|arg| arg == "--bench") || args.iter().any(|arg| arg == "--test")
}

/// `full` when measured, `tiny` among the tests.
#[must_use]
pub fn sized(full: usize, tiny: usize) -> usize {
    if is_tiny() { tiny } else { full }
}
