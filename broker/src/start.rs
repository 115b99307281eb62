//! A broker's life: open the data directory, start the executor, accept connections; and the way back.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use coordinator::command::Fact;
use coordinator::group::GroupLimits;
use coordinator::limits::Limits;
use coordinator::share::ShareLimits;
use coordinator::time::Micros;
use storage::{
    CleanerOptions, DataDir, Disk, Logs, Metadata, Options, OsDisk, PartitionToOpen, StorageError,
};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::admission::Admission;
use crate::broker::Broker;
use crate::catalog::{Catalog, CatalogError, Image, Topic};
use crate::clock::Clock;
use crate::config::{Config, HostPort, Overrides, group};
use crate::entropy;
use crate::executor::{CleaningPace, Executor, KeyedPartitions, OpenPartition, Parts, Refused, serve};
use crate::fetch_session::FetchSessions;
use crate::metrics::{self, ExporterError};
use crate::net::{self, Connections, NetThreads};

/// Connections that may wait to be accepted; the system may allow fewer. A burst that overflows it makes honest clients
/// wait for their next try.
const BACKLOG: u32 = 4_096;
/// Dead-letter topics that wait to be made; what is more is asked for again.
const WANTED_TOPICS_MAX: usize = 16;

/// Old records are looked for at least this often, so that a short retention is kept.
const RETENTION_EVERY_MAX_MS: i64 = 5_000;

/// Where no log needs compaction all of them are looked at again no sooner than this.
const CLEANER_BACKOFF_MS_MIN: i64 = 10;
/// Least bytes that a compaction reads and writes at once.
const CLEANER_IO_BYTES_MIN: usize = 64 << 10;

/// Why a broker does not start, or did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("data directory {path}: {error}")]
    Storage {
        /// The directory.
        path: String,
        /// Why.
        error: StorageError,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Metrics cannot be read.
    #[error(transparent)]
    Metrics(#[from] ExporterError),
    /// Not everything could be written at the end.
    #[error("the logs were not closed in order: {0}; the next start recovers them")]
    Close(#[from] Refused),
    /// The shard's thread died.
    #[error("the shard has failed; see the log, then start again")]
    Failed,
}

/// A broker that accepts connections.
#[derive(Debug)]
pub struct Running {
    broker: Arc<Broker>,
    executor: Executor,
    local: SocketAddr,
    stopping: watch::Sender<bool>,
    listener: JoinHandle<()>,
}

/// Opens everything and accepts connections from then on. Needs a tokio runtime with I/O and time.
///
/// # Errors
/// [`StartError`], whose text says what to do.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let config = Arc::new(config);
    let clock = Clock::start();
    let connections = Arc::new(Connections::default());
    let opening = Arc::clone(&config);
    let opened = tokio::task::spawn_blocking(move || open(&opening));
    let listener = listen(&config).await?;
    let opened = opened.await.map_err(|_| StartError::Failed)??;
    let open_took = Duration::from_micros(clock.mono().0);
    let local = listener.local_addr().map_err(|error| listen_error(&config.listen, error))?;
    let metadata = Arc::new(opened.metadata);
    let keyed = KeyedPartitions::default();
    let (wanted_topics, wanted) = mpsc::channel(WANTED_TOPICS_MAX);
    let executor = Executor::start(Parts {
        wanted_topics,
        keyed: keyed.clone(),
        logs: opened.logs,
        metadata: Arc::clone(&metadata),
        limits: limits(&config),
        boot: u32::try_from(opened.boot.boot).unwrap_or(u32::MAX),
        facts: opened.facts,
        clock,
        connections: Arc::clone(&connections),
        retention_every: Micros::from_ms(
            config.number("log.retention.check.interval.ms").min(RETENTION_EVERY_MAX_MS),
        ),
        cleaning: CleaningPace {
            enabled: config.text("log.cleaner.enable") == Some("true"),
            bytes_per_second: config.cleaner_bytes_per_second,
            backoff: Micros::from_ms(config.number("log.cleaner.backoff.ms").max(CLEANER_BACKOFF_MS_MIN)),
            threads: cleaner_options(&config).jobs_max,
        },
    })
    .map_err(StartError::Thread)?;
    let shard = executor.handle();
    let broker = Arc::new(Broker {
        catalog: Catalog::new(opened.image, Arc::clone(&config), metadata, shard.clone()),
        shard,
        keyed,
        fetch_sessions: FetchSessions::new(config.fetch_sessions_max),
        admission: Admission::new(config.request_memory_bytes),
        packing: Admission::new(config.request_memory_bytes / 2),
        clock,
        cluster_id: Arc::from(opened.cluster_id),
        node_id: config.node_id,
        advertised: advertised(&config, local),
        leader_epoch: opened.boot.leader_epoch,
        config,
    });
    tokio::spawn(create_dead_letter_topics(Arc::downgrade(&broker), wanted));
    let (stopping, stopped) = watch::channel(false);
    if let Some(address) = &broker.config.metrics_listen {
        export_metrics(address, &broker, open_took, stopped.clone()).await?;
    }
    let threads = NetThreads::start().map_err(StartError::Thread)?;
    let listener = tokio::spawn(net::serve(Arc::clone(&broker), listener, connections, threads, stopped));
    Ok(Running { broker, executor, local, stopping, listener })
}

impl Running {
    /// What requests see of it.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// The address that is listened at, port resolved.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits until the broker has failed, which it does not in the ordinary course of things.
    pub async fn failed(&self) {
        self.executor.ended().await;
    }

    /// Stops in order: no new connections, parked requests answered, connections ended, everything on the disk.
    ///
    /// # Errors
    /// Where not everything is on the disk: the next start recovers.
    pub async fn stop(self) -> Result<(), StartError> {
        // The shard first: to it a connection that ends after this ends with the broker.
        self.broker.shard.fact(Fact::Stopping);
        self.stopping.send_replace(true);
        let _ = self.listener.await;
        Ok(self.executor.stop().await?)
    }
}

struct Opened {
    logs: Logs,
    metadata: Metadata,
    boot: storage::Boot,
    cluster_id: String,
    image: Image,
    facts: Vec<Fact>,
}

/// Locks, reads and recovers the data directory. Blocks.
fn open(config: &Config) -> Result<Opened, StartError> {
    let opened = open_once(config)?;
    if !opened.logs.has_lost_records() {
        return Ok(opened);
    }
    // The offsets behind what is left are given out again. The mark of the orderly stop is gone by now, so that this time
    // the epoch goes up, and commits are lowered, before anything is appended: also where the process dies here.
    tracing::warn!("not all logs are as they were left: starting as after a stop that was not in order");
    drop(opened);
    open_once(config)
}

fn open_once(config: &Config) -> Result<Opened, StartError> {
    let storage = |error| StartError::Storage { path: config.data_dir.display().to_string(), error };
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(&config.data_dir).map_err(|source| {
        storage(StorageError::Io { action: "create", path: "the data directory".to_owned(), source })
    })?);
    let data_dir = DataDir::open(Arc::clone(&disk)).map_err(storage)?;
    let metadata = Metadata::open(&disk).map_err(storage)?;
    let unclean = !data_dir.was_clean();
    let boot = metadata.begin_boot(!unclean).map_err(storage)?;
    let cluster_id = metadata.cluster_id(entropy::random_bytes()).map_err(storage)?;
    let options = Options {
        node_id: config.node_id,
        cluster_id: cluster_id.clone(),
        directory_id: entropy::random_bytes(),
        producer_expiry_ms: config.number("producer.id.expiration.ms"),
        cleaner: CleanerOptions {
            seed: u64::from_be_bytes(*entropy::random_bytes().first_chunk().expect("16 bytes begin with 8")),
            ..cleaner_options(config)
        },
        ..Options::default()
    };
    let mut logs = Logs::open(data_dir, options, boot).map_err(storage)?;
    let (image, mut facts) = load(config, &metadata, &mut logs).map_err(storage)?;
    let recovery = logs.overview(0).recovery;
    if recovery.logs > 0 {
        tracing::info!(
            logs = recovery.logs,
            bytes = recovery.bytes,
            unclean,
            "checked what was written since the recovery points"
        );
    }
    if recovery.gaps > 0 {
        tracing::error!(
            gaps = recovery.gaps,
            "offsets are missing in the middle of logs; `sluice log verify` says where"
        );
    }
    if unclean {
        facts.insert(0, Fact::UncleanStop);
    }
    Ok(Opened { logs, metadata, boot, cluster_id, image, facts })
}

/// Opens every partition that the store knows, sets those aside that it does not, and says what the shard must know.
fn load(config: &Config, metadata: &Metadata, logs: &mut Logs) -> Result<(Image, Vec<Fact>), StorageError> {
    let mut image = Image::default();
    let mut facts = Vec::new();
    for row in metadata.topics()? {
        image.put_topic(Topic::new(config, Arc::from(row.name), row.id, row.partitions, row.configs));
    }
    logs.sweep(metadata)?;
    let (roles, to_open): (Vec<_>, Vec<_>) = image
        .topics()
        .flat_map(|topic| topic.to_open(config, 0))
        .map(|partition| {
            let OpenPartition { id, topic, role, config } = partition;
            ((id, role), PartitionToOpen { id, topic, config })
        })
        .unzip();
    for ((partition, role), opened) in roles.into_iter().zip(logs.open_partitions(to_open)?) {
        facts.push(Fact::PartitionOpened { partition, role, facts: serve::log_facts(&opened) });
    }
    // Groups are found by how many partitions their topic has, which the shard must know before it is asked.
    facts.insert(0, Fact::Topics(Arc::new(image.for_shard(config))));
    for (group, configs) in metadata.group_configs()? {
        let configs: Overrides = configs;
        let share = group::share_config(config, &configs);
        facts.push(Fact::ShareConfigured(Arc::from(group.as_str()), Arc::new(share)));
        image.put_group(Arc::from(group), configs);
    }
    Ok((image, facts))
}

/// Makes the dead-letter topics that the shard asks for, until it ends.
async fn create_dead_letter_topics(broker: Weak<Broker>, mut wanted: mpsc::Receiver<Arc<str>>) {
    while let Some(name) = wanted.recv().await {
        let Some(broker) = broker.upgrade() else { return };
        match broker.catalog.create_dead_letter_topic(&name).await {
            Ok(_) => tracing::info!(topic = &*name, "created a dead-letter topic"),
            Err(CatalogError::Exists(_)) => {}
            Err(error) => tracing::error!(topic = &*name, "cannot create a dead-letter topic: {error}"),
        }
    }
}

async fn export_metrics(
    address: &HostPort,
    broker: &Broker,
    open_took: Duration,
    stopping: watch::Receiver<bool>,
) -> Result<(), StartError> {
    let listener = TcpListener::bind((address.bind_host(), address.port))
        .await
        .map_err(|error| listen_error(address, error))?;
    if let Ok(local) = listener.local_addr() {
        tracing::info!("metrics at http://{local}/metrics");
    }
    let logs_max = usize::try_from(broker.config.number("sluice.metrics.logs.max")).unwrap_or(0);
    Ok(metrics::serve(listener, broker.shard.clone(), logs_max, open_took, stopping)?)
}

async fn listen(config: &Config) -> Result<TcpListener, StartError> {
    let bind = async {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((config.listen.bind_host(), config.listen.port)).await? {
            match listen_at(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    bind.await.map_err(|error| listen_error(&config.listen, error))
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn listen_error(address: &HostPort, error: io::Error) -> StartError {
    StartError::Listen { address: address.to_string(), error }
}

/// What clients are told: as configured, else the listener's own address, or the machine's name where that is every
/// address.
fn advertised(config: &Config, local: SocketAddr) -> HostPort {
    let port = |port| if port == 0 { local.port() } else { port };
    match &config.advertise {
        Some(address) => HostPort { host: address.host.clone(), port: port(address.port) },
        None if config.listen.is_wildcard() => HostPort {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            port: local.port(),
        },
        None => HostPort { host: config.listen.host.clone(), port: local.port() },
    }
}

/// Kafka's settings are for all threads together.
fn cleaner_options(config: &Config) -> CleanerOptions {
    let count = |name| usize::try_from(config.number(name)).unwrap_or(usize::MAX);
    let jobs_max = count("log.cleaner.threads");
    let share = |name| count(name) / jobs_max.max(1);
    CleanerOptions {
        jobs_max,
        dedupe_bytes: share("log.cleaner.dedupe.buffer.size"),
        dedupe_load: config.cleaner_load_factor,
        io_bytes: share("log.cleaner.io.buffer.size").max(CLEANER_IO_BYTES_MIN),
        backoff_ms: config.number("log.cleaner.backoff.ms"),
        ..CleanerOptions::default()
    }
}

fn limits(config: &Config) -> Limits {
    let number = |name| config.number(name);
    let small = |name| i32::try_from(number(name)).unwrap_or(i32::MAX);
    let count = |name| usize::try_from(number(name)).unwrap_or(usize::MAX);
    let defaults = Limits::default();
    Limits {
        groups: GroupLimits {
            session_timeout_ms_min: small("group.min.session.timeout.ms"),
            session_timeout_ms_max: small("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms: small("group.initial.rebalance.delay.ms"),
            members_max: count("group.max.size"),
            share_members_max: count("group.share.max.size"),
            offset_metadata_max: count("offset.metadata.max.bytes"),
            offsets_retention_ms: number("offsets.retention.minutes").saturating_mul(60_000),
            ..defaults.groups
        },
        share: ShareLimits {
            sessions_max: count("group.share.max.share.sessions"),
            config: Arc::new(group::share_config(config, &Overrides::new())),
            ..defaults.share
        },
        ..defaults
    }
}
