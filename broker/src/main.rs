//! The `sluice` command.

fn main() -> std::process::ExitCode {
    broker::cli::main()
}
