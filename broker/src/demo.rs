//! `sluice demo`: the main job on real data.
//!
//! A broker of its own on a temporary directory, every 2013 departure from New York in one partition, keyed by
//! aircraft, and workers that take it apart with the key-share client while others join and die. It ends with a
//! report that counts for itself: [`ledger`] sees only what an application sees.

pub mod admin;
pub mod flights;
pub mod ledger;
pub mod load;
pub mod report;
pub mod server;
pub mod workers;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use protocol::ErrorCode;

use flights::{Flights, FlightsError};
use ledger::Ledger;
use report::Report;
use server::Server;
use workers::Crew;

/// The topic of the demo.
pub const TOPIC: &str = "flights";

/// The group of the demo.
pub const GROUP: &str = "ground-crew";

const HELP: &str = "\
Stock clients see the same topic. Start the demo with --hold and --listen 127.0.0.1:9092, give a group of your own
key order and a start at the beginning,

  kafka-configs.sh --bootstrap-server 127.0.0.1:9092 --alter --entity-type groups --entity-name mine \\
    --add-config sluice.share.order=key,share.auto.offset.reset=earliest

and point any KIP-932 share consumer at it, as many as you like:

  kafka-console-share-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic flights --group mine

Plain consumers read it too:

  kcat -b 127.0.0.1:9092 -t flights -C -o beginning -c 5 -f '%k %s\\n'";

/// How the demo is run.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct DemoArgs {
    /// Members of the share group at the start; two join later, two are killed
    #[arg(long, default_value_t = 8, value_parser = from_1::<256>)]
    workers: usize,
    /// Records that each worker works on at once
    #[arg(long, default_value_t = 32, value_parser = from_1::<4096>)]
    concurrency: usize,
    /// Mean service time of a record in ms; each takes between half and one and a half of it
    #[arg(long, default_value_t = 2.0)]
    service_ms: f64,
    /// How many flights to load; all 336,776 unless set
    #[arg(long, value_parser = from_1::<336_776>)]
    records: Option<usize>,
    /// Address of the demo's broker
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// Keep the broker up after the report, until interrupted
    #[arg(long)]
    hold: bool,
}

fn from_1<const MAX: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=MAX).contains(&number) => Ok(number),
        _ => Err(format!("expected 1 to {MAX}")),
    }
}

/// Why the demo could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The system.
    #[error("{0}")]
    Io(io::Error),
    /// The broker did not start.
    #[error("the demo's broker did not come up: see its log lines above")]
    NoBroker,
    /// The producer.
    #[error("loading failed: {0}")]
    Producer(rdkafka::error::KafkaError),
    /// A request was refused.
    #[error("{0} was refused with {1}")]
    Refused(&'static str, ErrorCode),
    /// An answer that makes no sense.
    #[error("unexpected: {0}")]
    Unexpected(&'static str),
    /// A worker.
    #[error("a worker ended: {0}")]
    Worker(#[from] client::Error),
    /// The data.
    #[error(transparent)]
    Flights(#[from] FlightsError),
    /// The promise was broken.
    #[error("{violations} order violations, {lost} records lost")]
    Broken {
        /// Records out of order.
        violations: usize,
        /// Records never done.
        lost: usize,
    },
    /// It took too long.
    #[error("no record was done for {0:?}: giving up")]
    Stuck(Duration),
}

/// Runs it, with progress on stderr and the report on stdout.
///
/// # Errors
/// [`DemoError`], also where order was broken or a record lost.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let directory = tempfile::Builder::new().prefix("sluice-demo-").tempdir().map_err(DemoError::Io)?;
    let flights = Flights::load()?;
    let count = args.records.unwrap_or(flights.len()).clamp(1, flights.len());
    let ledger = Arc::new(Ledger::new(flights.iter().take(count).map(|flight| flight.tail)));

    let server = Server::start(directory.path(), &args.listen)?;
    eprintln!("broker ready on {}, data in {}", server.address(), directory.path().display());
    let mut admin = admin::Admin::connect(server.address())?;
    admin.create_topic(TOPIC)?;
    admin
        .configure_group(GROUP, &[("sluice.share.order", "key"), ("share.auto.offset.reset", "earliest")])?;

    let bar = report::bar("load", count);
    load::load(server.address(), TOPIC, &flights, count, &bar)?;
    bar.finish();
    drop(flights);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("demo-workers")
        .build()
        .map_err(DemoError::Io)?;
    let mean = Duration::from_secs_f64(args.service_ms.max(0.0) / 1_000.0);
    let crew = Crew::new(server.address(), GROUP, TOPIC, Arc::clone(&ledger), args.concurrency, mean);
    let outcome = runtime.block_on(crew.work(args.workers.max(1)))?;
    runtime.shutdown_background();

    let report = Report::new(&ledger, outcome, &server);
    println!("{report}");
    if args.hold {
        eprintln!("the broker stays up on {}: press Ctrl-C to end it", server.address());
        hold()?;
    }
    report.verdict()
}

/// Waits for an interrupt.
fn hold() -> Result<(), DemoError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Io)?;
    runtime.block_on(tokio::signal::ctrl_c()).map_err(DemoError::Io)
}
