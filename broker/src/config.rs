//! Settings: what a file and the command line say (raw) → checked values and limits.
//!
//! Owner: [`Config`], made once before anything starts and never changed. Settings of topics and groups are kept as
//! [`Overrides`] over the broker's values, so that what a tool is shown is what holds.

pub mod broker;
pub mod definition;
pub mod describe;
pub mod group;
pub mod listener;
pub mod properties;
pub mod topic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use definition::{Definition, Fallback, InvalidValue};
pub use describe::{Described, Source, Synonym};
pub use listener::HostPort;

/// What was set on a topic or a group, by name, in plain form.
pub type Overrides = BTreeMap<String, String>;

/// Memory for requests where `queued.max.request.bytes` is −1 (which means no bound in Kafka; here everything has one).
const REQUEST_MEMORY_BYTES: u64 = 512 << 20;

/// Least memory for keys of one compaction (`Cleaner`, "dedupe buffer").
const DEDUPE_BYTES_MIN: i64 = 1 << 20;

/// What the command line says; it wins over the file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// A configuration file.
    pub file: Option<PathBuf>,
    /// HOST:PORT to listen at.
    pub listen: Option<String>,
    /// HOST:PORT to tell clients.
    pub advertise: Option<String>,
    /// The data directory.
    pub data_dir: Option<PathBuf>,
    /// The node's number.
    pub node_id: Option<i32>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not in the properties format.
    #[error("{path}: {error}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: properties::Malformed,
    },
    /// The file names a setting that does not exist.
    #[error("{path}: line {line}: unknown setting {name}{}: remove or correct it", hint(.nearest))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The name, escaped.
        name: String,
        /// A setting of nearly that name.
        nearest: Option<&'static str>,
    },
    /// A value in the file does not fit its setting.
    #[error("{path}: line {line}: {error}")]
    InvalidInFile {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Which value, and what it should be.
        error: InvalidValue,
    },
    /// A value that is in no file does not fit its setting.
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    /// Settings that do not fit each other.
    #[error("{0}")]
    Contradiction(String),
}

/// The broker's configuration: raw values by name, and the limits made of them.
#[derive(Clone, Debug)]
pub struct Config {
    set: BTreeMap<&'static str, String>,
    without_effect: Vec<String>,
    /// Where to listen.
    pub listen: HostPort,
    /// What clients are told to connect to; `None`: the address that is listened at.
    pub advertise: Option<HostPort>,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The node's number.
    pub node_id: i32,
    /// Where metrics can be read.
    pub metrics_listen: Option<HostPort>,
    /// Longest request frame, without its length prefix.
    pub request_bytes_max: u32,
    /// Memory for requests that are read or served.
    pub request_memory_bytes: u64,
    /// A connection without progress for so long is closed.
    pub idle_max: Duration,
    /// Connections served at a time.
    pub connections_max: usize,
    /// Largest answer to a fetch.
    pub fetch_bytes_max: u64,
    /// Fetch sessions that are kept.
    pub fetch_sessions_max: usize,
    /// Partitions of a topic that does not say how many.
    pub partitions_default: i32,
    /// Asking for a missing topic creates it.
    pub auto_create_topics: bool,
    /// Partitions of `__consumer_offsets`.
    pub offsets_partitions: i32,
    /// Bytes that compaction reads and writes in a second.
    pub cleaner_bytes_per_second: f64,
    /// How full the memory for keys may become, 0 to 1.
    pub cleaner_load_factor: f64,
}

impl Config {
    /// Reads the file that the command line names, if any, and checks everything.
    ///
    /// # Errors
    /// [`ConfigError`], whose text tells the user what to change.
    pub fn load(line: &CommandLine) -> Result<Self, ConfigError> {
        let mut set = BTreeMap::new();
        let mut without_effect = Vec::new();
        if let Some(path) = &line.file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::Unreadable { path: path.clone(), error })?;
            read_into(path, &text, &mut set, &mut without_effect)?;
        }
        if let Some(listen) = &line.listen {
            set.insert("listeners", format!("PLAINTEXT://{listen}"));
        }
        if let Some(advertise) = &line.advertise {
            set.insert("advertised.listeners", format!("PLAINTEXT://{advertise}"));
        }
        if let Some(dir) = &line.data_dir {
            set.insert("log.dirs", dir.to_string_lossy().into_owned());
        }
        if let Some(id) = line.node_id {
            set.insert("node.id", id.to_string());
        }
        Self::checked(set, without_effect, line.data_dir.as_deref())
    }

    /// What holds without a file.
    ///
    /// # Panics
    /// Never: the defaults of the table fit.
    #[must_use]
    pub fn defaults() -> Self {
        Self::checked(BTreeMap::new(), Vec::new(), None).expect("the table's defaults fit")
    }

    /// The defaults with some values set, for tests and embedding: names as in a file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn with(values: &[(&str, &str)]) -> Result<Self, ConfigError> {
        let mut set = BTreeMap::new();
        for (name, value) in values {
            let definition = find(broker::BROKER, name).ok_or_else(|| ConfigError::Unknown {
                path: PathBuf::new(),
                line: 0,
                name: name.escape_debug().to_string(),
                nearest: nearest(name),
            })?;
            set.insert(definition.name, definition.parse(value)?);
        }
        Self::checked(set, Vec::new(), None)
    }

    fn checked(
        set: BTreeMap<&'static str, String>,
        without_effect: Vec<String>,
        data_dir: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let raw = Raw { set: &set };
        let listen = listener::one(raw.text("listeners").unwrap_or_default(), "listeners")?;
        let advertise = raw
            .text("advertised.listeners")
            .map(|text| listener::one(text, "advertised.listeners"))
            .transpose()?;
        if advertise.as_ref().is_some_and(|address| address.host.is_empty()) {
            return Err(ConfigError::Contradiction(
                "advertised.listeners needs a host that clients can reach".to_owned(),
            ));
        }
        let metrics_listen = raw
            .text("sluice.metrics.listen")
            .filter(|text| !text.trim().is_empty())
            .map(|text| listener::host_port(text, "sluice.metrics.listen"))
            .transpose()?;
        let dirs = raw.text("log.dirs").or_else(|| raw.text("log.dir")).unwrap_or_default();
        if data_dir.is_none() && dirs.contains(',') {
            return Err(ConfigError::Contradiction(
                "log.dirs names several directories: name one, several are not served".to_owned(),
            ));
        }
        let node_id = raw
            .text("node.id")
            .or_else(|| raw.text("broker.id").filter(|id| *id != "-1"))
            .map_or(1, |id| id.parse().expect("checked by the table"));
        for bounded in [
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ] {
            raw.within_bounds("group.share", bounded)?;
        }
        for bounded in ["session.timeout.ms", "heartbeat.interval.ms"] {
            raw.within_bounds("group.consumer", bounded)?;
        }
        if raw.number("group.min.session.timeout.ms") > raw.number("group.max.session.timeout.ms") {
            return Err(ConfigError::Contradiction(
                "group.min.session.timeout.ms is above group.max.session.timeout.ms".to_owned(),
            ));
        }
        let count = |name: &str| usize::try_from(raw.number(name)).unwrap_or(usize::MAX);
        let request_bytes_max = u32::try_from(raw.number("socket.request.max.bytes")).unwrap_or(u32::MAX);
        let request_memory_bytes = match raw.number("queued.max.request.bytes") {
            -1 => REQUEST_MEMORY_BYTES.max(2 * u64::from(request_bytes_max)),
            bytes => bytes.unsigned_abs(),
        };
        if request_memory_bytes < u64::from(request_bytes_max) {
            return Err(ConfigError::Contradiction(
                "queued.max.request.bytes is below socket.request.max.bytes: the longest request could never be read"
                    .to_owned(),
            ));
        }
        let cleaner_threads = raw.number("log.cleaner.threads");
        // As in Kafka: less could not hold the keys of a few large batches.
        if raw.number("log.cleaner.dedupe.buffer.size") / cleaner_threads.max(1) < DEDUPE_BYTES_MIN {
            return Err(ConfigError::Contradiction(
                "log.cleaner.dedupe.buffer.size must be at least 1 MiB per thread of log.cleaner.threads"
                    .to_owned(),
            ));
        }
        Ok(Self {
            listen,
            advertise,
            data_dir: data_dir.map_or_else(|| PathBuf::from(dirs.trim()), Path::to_path_buf),
            node_id,
            metrics_listen,
            request_bytes_max,
            request_memory_bytes,
            idle_max: Duration::from_millis(raw.number("connections.max.idle.ms").unsigned_abs()),
            connections_max: count("max.connections").max(1),
            fetch_bytes_max: raw.number("fetch.max.bytes").unsigned_abs(),
            fetch_sessions_max: count("max.incremental.fetch.session.cache.slots"),
            partitions_default: raw.small("num.partitions"),
            auto_create_topics: raw.text("auto.create.topics.enable") == Some("true"),
            offsets_partitions: raw.small("offsets.topic.num.partitions"),
            cleaner_bytes_per_second: raw.real("log.cleaner.io.max.bytes.per.second"),
            cleaner_load_factor: raw.real("log.cleaner.io.buffer.load.factor"),
            set,
            without_effect,
        })
    }

    /// Settings of the file that mean nothing here.
    #[must_use]
    pub fn without_effect(&self) -> &[String] {
        &self.without_effect
    }

    /// A broker setting's value, default applied; `None` where it has none.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        Raw { set: &self.set }.text(name)
    }

    /// A broker setting that is a number and has a value.
    ///
    /// # Panics
    /// Where the table has no such number.
    #[must_use]
    pub fn number(&self, name: &str) -> i64 {
        Raw { set: &self.set }.number(name)
    }

    /// Whether the file or the command line set this broker setting.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    /// What holds for a topic's or group's setting: its own value, else the broker's, else the default; `None` where
    /// there is none.
    #[must_use]
    pub fn value(&self, definition: &Definition, overrides: &Overrides) -> Option<String> {
        if let Some(own) = overrides.get(definition.name) {
            return Some(own.clone());
        }
        let from_broker = |Fallback { name, factor }: &Fallback| {
            let value = self.text(name)?;
            Some(match (factor, value.parse::<i64>()) {
                (1, _) | (_, Err(_)) => value.to_owned(),
                (_, Ok(number)) if number < 0 => "-1".to_owned(),
                (factor, Ok(number)) => number.saturating_mul(*factor).to_string(),
            })
        };
        let inherited = definition.fallbacks.iter().find_map(from_broker);
        inherited.or_else(|| definition.default.map(ToOwned::to_owned))
    }

    /// A topic's setting that is a number.
    ///
    /// # Panics
    /// Where the table of topics has no such number.
    #[must_use]
    pub fn topic_number(&self, name: &str, overrides: &Overrides) -> i64 {
        self.topic_text(name, overrides).parse().expect("set values are checked")
    }

    /// A topic's setting as text, empty where it has no value.
    ///
    /// # Panics
    /// Where the table of topics has no such setting.
    #[must_use]
    pub fn topic_text(&self, name: &str, overrides: &Overrides) -> String {
        let definition = topic::find(name).expect("a setting of the tables");
        self.value(definition, overrides).unwrap_or_default()
    }
}

/// The definition with this name.
#[must_use]
pub fn find(table: &'static [Definition], name: &str) -> Option<&'static Definition> {
    table.iter().find(|definition| definition.name == name)
}

/// Values by name, defaults applied.
struct Raw<'a> {
    set: &'a BTreeMap<&'static str, String>,
}

impl<'a> Raw<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        let definition = find(broker::BROKER, name).expect("a setting of the table");
        self.set.get(name).map(String::as_str).or(definition.default)
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).and_then(|text| text.parse().ok()).expect("a number with a default, checked when set")
    }

    fn real(&self, name: &str) -> f64 {
        self.text(name).and_then(|text| text.parse().ok()).expect("a number with a default, checked when set")
    }

    fn small(&self, name: &str) -> i32 {
        i32::try_from(self.number(name)).expect("bounded by the table")
    }

    /// `<prefix>.<name>` lies within `<prefix>.min.<name>` and `<prefix>.max.<name>`.
    fn within_bounds(&self, prefix: &str, name: &str) -> Result<(), ConfigError> {
        let (least, largest) = (format!("{prefix}.min.{name}"), format!("{prefix}.max.{name}"));
        let value = self.number(&format!("{prefix}.{name}"));
        if self.number(&least) <= value && value <= self.number(&largest) {
            return Ok(());
        }
        Err(ConfigError::Contradiction(format!(
            "{prefix}.{name}={value} is not between {least} and {largest}"
        )))
    }
}

fn read_into(
    path: &Path,
    text: &str,
    set: &mut BTreeMap<&'static str, String>,
    without_effect: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let entries =
        properties::read(text).map_err(|error| ConfigError::Malformed { path: path.to_owned(), error })?;
    for (line, name, value) in entries {
        if let Some(definition) = find(broker::BROKER, &name) {
            let parsed = definition.parse(&value).map_err(|error| ConfigError::InvalidInFile {
                path: path.to_owned(),
                line,
                error,
            })?;
            set.insert(definition.name, parsed);
        } else if broker::WITHOUT_EFFECT.contains(&name.as_str()) {
            without_effect.push(name);
        } else {
            let nearest = brokers_own(&name).or_else(|| nearest(&name));
            let name = name.escape_debug().to_string();
            return Err(ConfigError::Unknown { path: path.to_owned(), line, name, nearest });
        }
    }
    Ok(())
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

/// The broker setting that says what holds for all groups, or topics, where this is the name of one of theirs.
fn brokers_own(name: &str) -> Option<&'static str> {
    let definition = find(group::GROUP, name).or_else(|| find(topic::TOPIC, name))?;
    definition.fallbacks.first().map(|fallback| fallback.name)
}

/// The setting whose name differs least, if it differs little.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |other: &str| {
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in name.bytes().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, b) in other.bytes().enumerate() {
                let substituted = diagonal + usize::from(a != b);
                diagonal = row[j + 1];
                row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
            }
        }
        row[other.len()]
    };
    if name.len() > 100 {
        return None;
    }
    broker::BROKER
        .iter()
        .map(|definition| (distance(definition.name), definition.name))
        .min()
        .filter(|(distance, _)| *distance <= 3)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
