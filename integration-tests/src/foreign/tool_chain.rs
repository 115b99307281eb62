//! Tool chains: which are here, and what was set up with them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::process::run;

/// A first set-up downloads; later ones take milliseconds.
const SET_UP_LIMIT: Duration = Duration::from_secs(900);

/// What a test may need of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolChain {
    /// Apache Kafka's tools and broker.
    KafkaTools,
    /// The Java probe on kafka-clients 4.4.
    Java44,
    /// The Java probe on kafka-clients 4.2.
    Java42,
    /// The workers of the makespan bench: share consumers, the Parallel Consumer.
    Makespan,
    /// The Python probe, on librdkafka.
    Python,
    /// The Go probe, on franz-go.
    Go,
    /// The JavaScript probe, on kafkajs.
    Node,
    /// kcat, on the system's librdkafka.
    Kcat,
    /// strace, which shows the system calls of a broker.
    Strace,
}

/// A tool chain that is ready.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Folder that `setup.sh` filled; for programs of the system the folder of the program.
    pub dir: PathBuf,
}

impl ToolChain {
    /// The programs that must be on the path.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::KafkaTools => &["java", "mvn"],
            Self::Java44 | Self::Java42 | Self::Makespan => &["java", "javac", "mvn"],
            Self::Python => &["python3"],
            Self::Go => &["go"],
            Self::Node => &["node", "npm"],
            Self::Kcat => &["kcat"],
            Self::Strace => &["strace"],
        }
    }

    /// Its name for `setup.sh`, where that has anything to do.
    fn part(self) -> Option<&'static str> {
        match self {
            Self::KafkaTools => Some("tools"),
            Self::Java44 => Some("java-4.4"),
            Self::Java42 => Some("java-4.2"),
            Self::Makespan => Some("makespan"),
            Self::Python => Some("python"),
            Self::Go => Some("go"),
            Self::Node => Some("node"),
            Self::Kcat | Self::Strace => None,
        }
    }
}

/// The tool chain, set up; `None` where its programs are missing on this machine: the test then ends, and says loudly
/// that it was skipped. With `CI=true` in the environment a skip is a failure. A set-up that fails always is one.
#[track_caller]
pub fn require(tool_chain: ToolChain) -> Option<Installed> {
    let found: Result<Vec<PathBuf>, &str> =
        tool_chain.programs().iter().map(|&program| find_program(program).ok_or(program)).collect();
    let programs = match found {
        Ok(programs) => programs,
        Err(missing) => {
            skip(&format!("{tool_chain:?} needs `{missing}`, which is not on the path"));
            return None;
        }
    };
    let dir = match tool_chain.part() {
        Some(part) => set_up(tool_chain, part),
        None => programs[0].parent().expect("a program stands in a folder").to_owned(),
    };
    Some(Installed { dir })
}

/// Says that the calling test is skipped, past the test harness's capture; panics where skips are not allowed.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} would be skipped, and CI=true: {reason}");
    // The print macros are captured when a test passes; this is not.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED {test}: {reason}\n");
}

/// Folder of the foreign programs' sources.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign")
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

fn set_up(tool_chain: ToolChain, part: &str) -> PathBuf {
    static DONE: Mutex<BTreeMap<ToolChain, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    done.entry(tool_chain)
        .or_insert_with(|| {
            let mut command = Command::new(sources().join("setup.sh"));
            command.arg(part);
            let finished = run(&format!("setup.sh {part}"), command, b"", SET_UP_LIMIT);
            PathBuf::from(finished.expect_success().stdout.trim())
        })
        .clone()
}
