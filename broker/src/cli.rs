//! The command line: `sluice serve`, `sluice groups`, `sluice keys`, `sluice log`, `sluice import`, `sluice demo`.

#[cfg(feature = "admin")]
mod groups;
mod import;
#[cfg(feature = "admin")]
mod keys;
mod log;
mod logging;
#[cfg(feature = "admin")]
mod remote;
mod serve;
#[cfg(feature = "admin")]
mod times;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "admin")]
pub use groups::Groups;
pub use import::Import;
#[cfg(feature = "admin")]
pub use keys::Keys;
pub use log::Log;
pub use serve::Serve;

/// What the process ends with. Clap's own code for usage errors is 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Stopped in order.
    Success = 0,
    /// Something failed while running.
    Runtime = 1,
    /// The configuration cannot be used.
    Configuration = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

const EXIT_CODES: &str = "Exit codes: 0 stopped in order, 1 something failed while running, 2 wrong usage, \
                          3 the configuration cannot be used.";

/// A Kafka-compatible broker in which many consumers share one partition and every key stays in order.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker until SIGTERM or SIGINT.
    #[command(after_help = EXIT_CODES)]
    Serve(Serve),
    #[cfg(feature = "admin")]
    Groups(Groups),
    #[cfg(feature = "admin")]
    Keys(Keys),
    Log(Log),
    Import(Import),
    /// Show the main job on real data: one partition, many workers, every key in order.
    #[cfg(feature = "demo")]
    Demo(crate::demo::DemoArgs),
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start();
    match arguments.command {
        Command::Serve(serve) => serve.run().into(),
        #[cfg(feature = "admin")]
        Command::Groups(groups) => groups.run().into(),
        #[cfg(feature = "admin")]
        Command::Keys(keys) => keys.run().into(),
        Command::Log(log) => log.run().into(),
        Command::Import(import) => import.run().into(),
        #[cfg(feature = "demo")]
        Command::Demo(demo) => match crate::demo::run(&demo) {
            Ok(()) => Exit::Success.into(),
            Err(error) => {
                eprintln!("sluice demo: {error}");
                Exit::Runtime.into()
            }
        },
    }
}
