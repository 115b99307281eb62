//! The product as users run it: the `sluice` binary, started, killed and started again on its data.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, resident_bytes, run, status_bytes};
use crate::real_time::Stopwatch;

/// A start is a matter of milliseconds; this bound is for a machine that is busy with other things.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A shutdown answers parked requests and flushes: at most seconds (case R05).
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Building the binary from scratch.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// A running `sluice serve`, killed when dropped.
#[derive(Debug)]
pub struct BrokerProcess {
    process: Process,
    address: String,
    data_dir: PathBuf,
    wrapper: Vec<OsString>,
    arguments: Vec<String>,
    start_time: Duration,
    /// Keeps a data directory of its own until the end.
    _own_dir: Option<TempDir>,
}

impl BrokerProcess {
    /// Starts a broker on a free port and a fresh data directory, which goes with it.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with more arguments of `sluice serve`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let dir = TempDir::new().expect("a temporary folder can be made");
        let mut broker = Self::start_on(&dir.path().join("data"), arguments);
        broker._own_dir = Some(dir);
        broker
    }

    /// Starts a broker on a free port and the data directory given, which stays.
    pub fn start_on(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_under(Vec::new(), data_dir, arguments)
    }

    /// As [`Self::start_on`], by a command line that the broker's own stands behind. The process that it starts must
    /// become the broker.
    pub fn start_under(wrapper: Vec<OsString>, data_dir: &Path, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (process, address, start_time) = launch(&wrapper, "127.0.0.1:0", data_dir, &arguments);
        let data_dir = data_dir.to_owned();
        Self { process, address, data_dir, wrapper, arguments, start_time, _own_dir: None }
    }

    /// `HOST:PORT` for clients, as the ready line named it.
    pub fn bootstrap(&self) -> &str {
        &self.address
    }

    /// The data directory: a folder for each partition stands in it.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Time from the start of the process to its ready line.
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.wait(Duration::ZERO).is_none()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.id())
    }

    /// The most that was ever resident, in bytes.
    pub fn resident_bytes_peak(&self) -> u64 {
        status_bytes(self.id(), "VmHWM:")
    }

    /// Open file descriptors.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .expect("a running process lists its files")
            .count()
    }

    /// What it has logged up to now.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// All that it printed on standard output: the ready line and nothing else.
    pub fn stdout(&self) -> String {
        self.process.stdout()
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: it stands still, as on a machine that is paused, until [`Self::go_on`].
    pub fn stand_still(&self) {
        self.process.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.process.signal(Signal::CONT);
    }

    /// SIGTERM; waits for the end in order.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(STOP_LIMIT).unwrap_or_else(|| {
            panic!("sluice did not stop within {STOP_LIMIT:?} of SIGTERM:\n{}", self.log())
        })
    }

    /// Starts again on the same data directory and port, after [`Self::kill`] or [`Self::terminate`].
    pub fn restart(&mut self) {
        self.process.kill();
        let (process, address, start_time) =
            launch(&self.wrapper, &self.address, &self.data_dir, &self.arguments);
        assert_eq!(address, self.address, "a restart keeps its address");
        self.process = process;
        self.start_time = start_time;
    }
}

/// The binary: `$SLUICE_BIN`, or built by cargo into the target directory that this test stands in.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("SLUICE_BIN").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    // <target>/<profile>/deps/<test>, or <target>/<profile>/<program>
    let program = std::env::current_exe().expect("a process knows its program");
    let folder = program.parent().expect("a program stands in a folder");
    let profile_dir = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    let profile_dir = profile_dir.expect("cargo builds into target/PROFILE");
    let target_dir = profile_dir.parent().expect("a profile stands in the target directory");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
        .args(["build", "--quiet", "-p", "sluice-broker", "--bin", "sluice", "--target-dir"])
        .arg(target_dir);
    if profile_dir.ends_with("release") {
        cargo.arg("--release");
    }
    run("cargo build of the broker", cargo, b"", BUILD_LIMIT).expect_success();
    profile_dir.join("sluice")
}

fn launch(
    wrapper: &[OsString],
    listen: &str,
    data_dir: &Path,
    arguments: &[String],
) -> (Process, String, Duration) {
    let mut line = wrapper.iter().cloned().chain([binary().into()]);
    let mut command = Command::new(line.next().expect("the binary at least"));
    command.args(line);
    command.args(["serve", "--listen", listen, "--data-dir"]).arg(data_dir).args(arguments);
    let watch = Stopwatch::start();
    let process = Process::spawn("sluice", command);
    let ready = process.wait_for_line(START_LIMIT, |line| line.starts_with("sluice ready on "));
    let start_time = watch.elapsed();
    let Some(address) = ready.as_deref().and_then(|line| line.strip_prefix("sluice ready on ")) else {
        panic!("sluice did not become ready: {}", process.finish(Duration::ZERO));
    };
    (process, address.to_owned(), start_time)
}
