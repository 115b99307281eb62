//! A real Apache Kafka broker, for runs side by side with ours.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::kafka_tools::KafkaTools;
use crate::process::Process;
use crate::real_time::wait_until;

/// A JVM with a quorum of one: seconds, more on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Resignation, flushing and checkpoints: seconds.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Another process may take a port between its choice and its use.
const START_TRIES: usize = 3;

/// A running single-node Kafka, ended and removed when dropped.
#[derive(Debug)]
pub struct ApacheKafka {
    process: Process,
    port: u16,
    dir: TempDir,
    tools: KafkaTools,
    properties: String,
}

impl ApacheKafka {
    /// Starts a broker on free ports, in a folder of its own; `properties` are lines added to its properties.
    /// `None` where the test is to be skipped.
    #[track_caller]
    pub fn start(properties: &str) -> Option<Self> {
        let tools = KafkaTools::require()?;
        for _ in 0..START_TRIES {
            let dir = TempDir::new().expect("a temporary folder can be made");
            let port = free_port_pair();
            match launch(&tools, port, dir.path(), properties) {
                Ok(process) => {
                    return Some(Self { process, port, dir, tools, properties: properties.to_owned() });
                }
                Err(message) if message.contains("Address already in use") => {}
                Err(message) => panic!("apache kafka did not start: {message}"),
            }
        }
        panic!("apache kafka found no free port in {START_TRIES} tries");
    }

    /// Address for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Folder that holds a folder for each partition.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The tools that came with it.
    pub fn tools(&self) -> &KafkaTools {
        &self.tools
    }

    /// Process id of the broker.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it in order, as SIGTERM does, and waits for its end.
    #[track_caller]
    pub fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        assert!(
            self.process.wait(STOP_LIMIT).is_some(),
            "apache kafka did not stop within {STOP_LIMIT:?} of SIGTERM"
        );
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGKILL, where it still runs, then a new start on the same folder and port.
    pub fn kill_and_restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.tools, self.port, self.dir.path(), &self.properties)
            .unwrap_or_else(|message| panic!("apache kafka did not start again: {message}"));
    }
}

fn launch(tools: &KafkaTools, port: u16, dir: &Path, properties: &str) -> Result<Process, String> {
    let mut command =
        tools.command("serve", &[&port.to_string(), dir.to_str().expect("temporary paths are UTF-8")]);
    command.env("KAFKA_PROPERTIES", properties);
    let mut process = Process::spawn("apache kafka", command);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answers = wait_until(START_LIMIT, || {
        process.wait(Duration::ZERO).is_some() || TcpStream::connect(address).is_ok()
    });
    match process.wait(Duration::ZERO) {
        None if answers => Ok(process),
        _ => Err(process.finish(Duration::ZERO).to_string()),
    }
}

/// A port that is free, with the next one free too: the broker's and its controller's.
fn free_port_pair() -> u16 {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the machine has free ports");
        let port = first.local_addr().expect("a bound socket has an address").port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
}
