//! `sluice import`: takes over the data directory of a stopped Apache Kafka broker.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use storage::data_dir::base64;
use storage::import::{self, Cluster, ImportError, LeftOut, PartitionPlan, Source, TopicPlan};
use storage::{Configs, DataDir, Disk, Metadata, OsDisk, ReadOnlyDisk, StorageError, TopicMetadata};

use super::Exit;
use crate::catalog::Topic;
use crate::clock::Clock;
use crate::config::definition::{Definition, InvalidValue};
use crate::config::{Config, group, topic};

/// Topics of Kafka's coordinators whose state is not taken over.
const LEFT_BEHIND: [(&str, &str); 2] = [
    (
        "__transaction_state",
        "transactions that were open are ended as their coordinator had decided, else aborted",
    ),
    ("__share_group_state", "share groups begin where their share.auto.offset.reset says"),
];
/// `kafka-storage format` sets it in every cluster; here it says nothing.
const SET_BY_FORMAT: &str = "min.insync.replicas";
const REMOTE_STORAGE: &str = "remote.storage.enable";

/// Take over the data directory of a stopped Apache Kafka broker (4.x) into a data directory of Sluice, whose broker is
/// stopped too.
///
/// Taken are topics with their ids and settings, all records from the log start up to the high watermark, committed
/// offsets, the state of idempotent producers, and settings of groups. The source is only read. Everything is checked
/// before anything is written; what an interruption left is cleared away by the next start or import.
#[derive(Debug, Args)]
pub struct Import {
    /// Data directory of the Kafka broker: one of its log.dirs, or its metadata.log.dir. Name all of them.
    #[arg(long = "from", value_name = "DIR", required = true)]
    from: Vec<PathBuf>,
    /// Data directory to take it over into, made where it is missing.
    #[arg(long, value_name = "DIR", default_value = "./sluice-data")]
    data_dir: PathBuf,
    /// Take only this topic; may be given several times. Committed offsets are in the topic __consumer_offsets.
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// Leave this topic out; may be given several times.
    #[arg(long, value_name = "TOPIC", conflicts_with = "topic")]
    skip: Vec<String>,
    /// Take what a broker left that was not stopped in order: what is whole, up to the high watermarks that it wrote
    /// last, which may lie some seconds back.
    #[arg(long)]
    unclean: bool,
    /// Read and check everything, say what would be taken, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("no directory at {0}")]
    NoDirectory(String),
    #[error("the source has no topic {0}")]
    NoTopic(String),
    #[error("source and target are the same directory, {0}; choose another one with --data-dir")]
    Same(String),
    #[error(
        "topic {0} is in remote storage, of which the broker's directories hold only a part; leave it out with --skip"
    )]
    Remote(String),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("{path}: {error}")]
    Target { path: String, error: StorageError },
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Import {
    /// Does what the command line says.
    #[must_use]
    pub fn run(self) -> Exit {
        match self.import(&mut io::stdout().lock()) {
            Ok(()) => Exit::Success,
            Err(error) => {
                eprintln!("sluice import: {error}");
                Exit::Runtime
            }
        }
    }

    fn import(&self, out: &mut impl Write) -> Result<(), Trouble> {
        let source = Source::open(self.sources()?, self.unclean)?;
        let target = if self.dry_run && !self.data_dir.is_dir() { None } else { Some(self.target()?) };
        let mut remarks = Vec::new();
        let chosen = self.choose(source.cluster(), &mut remarks)?;
        if let Some((_, metadata)) = &target {
            import::refuse_existing(chosen.iter().map(|topic| &topic.metadata), metadata)?;
        }
        let endings = source.endings()?;
        let mut plans = Vec::new();
        for Chosen { metadata, topic, config } in chosen {
            let log_config = topic.log_config(&config);
            let partitions = (0..metadata.partitions)
                .map(|index| source.plan(&metadata.name, metadata.id, index, log_config.compact))
                .collect::<Result<Vec<_>, _>>()?;
            tell(out, &metadata, &partitions)?;
            plans.push(TopicPlan { topic: metadata, config: log_config, partitions });
        }
        let groups = groups(source.cluster(), &mut remarks);
        left_out(source.cluster(), &mut remarks);
        match target {
            Some((data_dir, metadata)) if !self.dry_run => {
                let now_ms = Clock::start().wall_ms();
                import::take_over(&source, &plans, &groups, &endings, &data_dir, &metadata, now_ms)?;
            }
            _ => {}
        }
        for remark in remarks {
            writeln!(out, "left out: {remark}")?;
        }
        let partitions: usize = plans.iter().map(|plan| plan.partitions.len()).sum();
        let bytes: u64 = plans.iter().flat_map(|plan| &plan.partitions).map(|plan| plan.bytes).sum();
        let done = if self.dry_run { "would be taken over" } else { "taken over" };
        writeln!(
            out,
            "{done} into {}: {} topics, {partitions} partitions, {bytes} bytes, settings of {} groups",
            self.data_dir.display(),
            plans.len(),
            groups.len()
        )?;
        Ok(())
    }

    fn sources(&self) -> Result<Vec<Named>, Trouble> {
        let mut sources: Vec<Named> = Vec::new();
        for dir in &self.from {
            let name = dir.display().to_string();
            let disk = ReadOnlyDisk::new(dir).ok().filter(|_| dir.is_dir());
            let disk = disk.ok_or_else(|| Trouble::NoDirectory(name.clone()))?;
            if is_same(dir, &self.data_dir) {
                return Err(Trouble::Same(name));
            }
            sources.push((name, Arc::new(disk)));
        }
        Ok(sources)
    }

    fn target(&self) -> Result<(DataDir, Metadata), Trouble> {
        let path = self.data_dir.display().to_string();
        let trouble = |error| Trouble::Target { path: path.clone(), error };
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(&self.data_dir).map_err(|source| {
            trouble(StorageError::Io { action: "create", path: "the data directory".to_owned(), source })
        })?);
        let data_dir = DataDir::open(Arc::clone(&disk)).map_err(trouble)?;
        let metadata = Metadata::open(&disk).map_err(trouble)?;
        Ok((data_dir, metadata))
    }

    /// The topics that are taken, with the settings that they will have.
    fn choose(&self, cluster: &Cluster, remarks: &mut Vec<String>) -> Result<Vec<Chosen>, Trouble> {
        if let Some(missing) =
            self.topic.iter().chain(&self.skip).find(|name| !cluster.topics.contains_key(*name))
        {
            return Err(Trouble::NoTopic(missing.clone()));
        }
        let mut chosen = Vec::new();
        for (name, topic) in &cluster.topics {
            if let Some((_, instead)) = LEFT_BEHIND.iter().find(|(left, _)| left == name) {
                remarks.push(format!("{name}: {instead}"));
                continue;
            }
            if self.skip.contains(name) || (!self.topic.is_empty() && !self.topic.contains(name)) {
                remarks.push(format!("topic {name}, as was asked for"));
                continue;
            }
            if topic.configs.get(REMOTE_STORAGE).is_some_and(|value| value == "true") {
                return Err(Trouble::Remote(name.clone()));
            }
            chosen.push(Chosen::new(topic, remarks));
        }
        Ok(chosen)
    }
}

/// A directory, and how the user named it.
type Named = (String, Arc<dyn Disk>);

struct Chosen {
    metadata: TopicMetadata,
    topic: Topic,
    config: Config,
}

impl Chosen {
    fn new(source: &TopicMetadata, remarks: &mut Vec<String>) -> Self {
        let config = Config::defaults();
        let what = format!("topic {}", source.name);
        let mut configs = known(&what, &source.configs, remarks, topic::find, Definition::parse);
        if let Err(error) = topic::check_together(&config, &configs) {
            remarks.push(format!("{what}: {error}"));
            configs.remove(&error.name);
        }
        let metadata = TopicMetadata { configs: configs.clone(), ..source.clone() };
        let name = Arc::from(source.name.as_str());
        let topic = Topic::new(&config, name, source.id, source.partitions, configs);
        Self { metadata, topic, config }
    }
}

/// Settings that are known and have a value that is taken here; of the others a remark.
fn known(
    what: &str,
    configs: &Configs,
    remarks: &mut Vec<String>,
    find: impl Fn(&str) -> Option<&'static Definition>,
    parse: impl Fn(&Definition, &str) -> Result<String, InvalidValue>,
) -> Configs {
    let mut kept = Configs::new();
    for (name, value) in configs {
        match find(name).map(|definition| parse(definition, value)) {
            Some(Ok(value)) => {
                kept.insert(name.clone(), value);
            }
            Some(Err(error)) => remarks.push(format!("{what}: {error}")),
            None => remarks.push(format!("{what}: setting {name}={value} is unknown here")),
        }
    }
    kept
}

fn groups(cluster: &Cluster, remarks: &mut Vec<String>) -> Vec<(String, Configs)> {
    let config = Config::defaults();
    let parse = |definition: &Definition, value: &str| group::check(&config, definition, value);
    let mut groups = Vec::new();
    for (name, configs) in &cluster.group_configs {
        let kept = known(
            &format!("group {name}"),
            configs,
            remarks,
            |name| group::GROUP.iter().find(|known| known.name == name),
            parse,
        );
        if !kept.is_empty() {
            groups.push((name.clone(), kept));
        }
    }
    groups
}

fn left_out(cluster: &Cluster, remarks: &mut Vec<String>) {
    for what in &cluster.left_out {
        remarks.push(
            match what {
                LeftOut::Acls => "ACLs: every client may do everything here",
                LeftOut::ScramCredentials => "SCRAM credentials",
                LeftOut::Quotas => "client quotas",
                LeftOut::DelegationTokens => "delegation tokens",
            }
            .to_owned(),
        );
    }
    for (broker, configs) in &cluster.broker_configs {
        let whose = if broker.is_empty() { "all brokers".to_owned() } else { format!("broker {broker}") };
        // Values may be secret.
        let names: Vec<&str> =
            configs.keys().map(String::as_str).filter(|name| *name != SET_BY_FORMAT).collect();
        if names.is_empty() {
            continue;
        }
        remarks.push(format!(
            "settings of {whose} that were made while it ran, which belong into the configuration file here: {}",
            names.join(", ")
        ));
    }
}

fn tell(out: &mut impl Write, topic: &TopicMetadata, partitions: &[PartitionPlan]) -> io::Result<()> {
    let internal = topic.name.starts_with("__");
    let bytes: u64 = partitions.iter().map(|plan| plan.bytes).sum();
    writeln!(
        out,
        "topic {} {}: {} partitions, {bytes} bytes, {} settings",
        topic.name,
        base64(&topic.id.0),
        partitions.len(),
        topic.configs.len()
    )?;
    for plan in partitions.iter().filter(|plan| !internal || plan.bytes > 0) {
        write!(
            out,
            "  {}-{}: offsets {} to {}, {} bytes in {} segments",
            topic.name, plan.partition, plan.log_start, plan.end, plan.bytes, plan.segments
        )?;
        if plan.bytes_behind > 0 && plan.is_unknown {
            write!(out, ", not {} bytes for which no high watermark was written", plan.bytes_behind)?;
        } else if plan.bytes_behind > 0 {
            write!(out, ", not {} bytes behind the high watermark", plan.bytes_behind)?;
        }
        if plan.open_transactions > 0 {
            write!(out, ", {} open transactions ended", plan.open_transactions)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
