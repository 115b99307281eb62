//! `sluice serve`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use crate::config::{CommandLine, Config};
use crate::start::{self, Running, StartError};

/// Threads for the catalogue's disk work: changes are made one at a time.
const BLOCKING_THREADS_MAX: usize = 4;

/// Files that a partition holds open while it is written and read: log, offset and time index, and one of key index or
/// share state.
const FILES_PER_PARTITION: u64 = 4;
/// What is open beside: the store, the listener, some clients.
const FILES_BESIDE: u64 = 64;

/// Run a broker.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file in the format of Kafka's server.properties, with Kafka's names and defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen at; port 0 is any free one [default: 127.0.0.1:9092].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address that clients are told to connect to [default: the one listened at].
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Data directory, made where it is missing [default: ./sluice-data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Number of this node [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    node_id: Option<i32>,
}

impl Serve {
    /// Runs until a signal, or until something fails.
    #[must_use]
    pub fn run(self) -> Exit {
        let line = CommandLine {
            file: self.config,
            listen: self.listen,
            advertise: self.advertise,
            data_dir: self.data_dir,
            node_id: self.node_id,
        };
        let config = match Config::load(&line) {
            Ok(config) => config,
            Err(error) => {
                eprintln!("sluice: {error}");
                return Exit::Configuration;
            }
        };
        for name in config.without_effect() {
            tracing::warn!("setting {name} has no effect here");
        }
        raise_file_limit();
        let served = runtime().map_err(StartError::Thread).and_then(|runtime| {
            let served = runtime.block_on(serve(config));
            runtime.shutdown_background();
            served
        });
        match served {
            Ok(()) => Exit::Success,
            Err(error) => {
                eprintln!("sluice: {error}");
                Exit::Runtime
            }
        }
    }
}

/// Connections and log files need many descriptors, and the soft limit is often 1,024: takes what may be had.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Says where the limit of open files is below what the partitions may need once all of them are in use: nothing fails
/// before.
fn check_file_limit(running: &Running) {
    let partitions = running.broker().catalog.image().topics().map(|topic| i64::from(topic.partitions)).sum();
    if let Some(warning) = too_few_files(getrlimit(Resource::Nofile).current, partitions) {
        tracing::warn!("{warning}");
    }
}

fn too_few_files(limit: Option<u64>, partitions: i64) -> Option<String> {
    let needed = FILES_BESIDE + FILES_PER_PARTITION * partitions.unsigned_abs();
    let limit = limit.filter(|limit| *limit < needed)?;
    Some(format!(
        "the limit of open files is {limit}, and {partitions} partitions may need {needed}: raise it (ulimit -n, or \
         LimitNOFILE of the service), or what comes beyond it fails"
    ))
}

fn runtime() -> std::io::Result<Runtime> {
    // Connections have threads of their own.
    Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()
}

async fn serve(config: Config) -> Result<(), StartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Thread)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Thread)?;
    let running = start::start(config).await?;
    check_file_limit(&running);
    announce(&running);
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        () = running.failed() => return Err(StartError::Failed),
    }
    running.stop().await?;
    tracing::info!("stopped");
    Ok(())
}

/// The one line on stdout, for whoever waits for the broker.
fn announce(running: &Running) {
    let broker = running.broker();
    tracing::info!(
        cluster = &*broker.cluster_id,
        node = broker.node_id,
        epoch = broker.leader_epoch,
        "accepting connections at {}, known to clients as {}",
        running.local_addr(),
        broker.advertised
    );
    let mut stdout = std::io::stdout().lock();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "sluice ready on {}", running.local_addr());
    let _ = stdout.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_low_a_limit_of_files_is_told_with_what_is_needed() {
        assert_eq!(too_few_files(None, 1_000_000), None);
        assert_eq!(too_few_files(Some(256), 48), None);
        let told = too_few_files(Some(256), 2_000).unwrap();
        assert!(["256", "2000 partitions", "8064"].iter().all(|part| told.contains(part)), "{told}");
    }
}
