//! The broker that a test of foreign clients runs against.
//!
//! It is Sluice. With `SLUICE_TEST_TARGET=kafka` it is a real Apache Kafka, which tells whether a failing test or the
//! product is wrong; what only Sluice can do is left out then.

use std::path::PathBuf;

use crate::broker_process::BrokerProcess;
use crate::foreign::{ApacheKafka, KafkaTools};

/// A running broker of either kind.
#[derive(Debug)]
pub enum TestBroker {
    /// The product.
    Sluice(Box<BrokerProcess>),
    /// The reference.
    Kafka(Box<ApacheKafka>),
}

impl TestBroker {
    /// Starts the broker that the environment asks for; `None` where the test is to be skipped.
    #[track_caller]
    pub fn start() -> Option<Self> {
        match std::env::var("SLUICE_TEST_TARGET").as_deref() {
            Ok("kafka") => ApacheKafka::start("").map(|kafka| Self::Kafka(Box::new(kafka))),
            Ok("sluice") | Err(_) => Some(Self::Sluice(Box::new(BrokerProcess::start()))),
            Ok(other) => panic!("SLUICE_TEST_TARGET is sluice or kafka, not {other}"),
        }
    }

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        match self {
            Self::Sluice(broker) => broker.bootstrap().to_owned(),
            Self::Kafka(kafka) => kafka.bootstrap(),
        }
    }

    /// True for the product: key order can be asked for.
    pub fn is_sluice(&self) -> bool {
        matches!(self, Self::Sluice(_))
    }

    /// Folder that holds a folder for each partition.
    pub fn log_dir(&self) -> PathBuf {
        match self {
            Self::Sluice(broker) => broker.data_dir().to_owned(),
            Self::Kafka(kafka) => kafka.log_dir(),
        }
    }

    /// SIGKILL, then a new start on the same data and port.
    pub fn kill_and_restart(&mut self) {
        match self {
            Self::Sluice(broker) => broker.restart(),
            Self::Kafka(kafka) => kafka.kill_and_restart(),
        }
    }

    /// Creates a topic by the stock tool.
    #[track_caller]
    pub fn create_topic(&self, tools: &KafkaTools, topic: &str, partitions: u32) {
        let partitions = partitions.to_string();
        let arguments = ["--create", "--topic", topic, "--partitions", &partitions];
        tools.run("topics", &self.bootstrap(), &arguments).expect_success();
    }

    /// Makes a share group start at the earliest record, ordered by key where the broker can.
    #[track_caller]
    pub fn set_up_share_group(&self, tools: &KafkaTools, group: &str) {
        let configs = if self.is_sluice() {
            "share.auto.offset.reset=earliest,sluice.share.order=key"
        } else {
            "share.auto.offset.reset=earliest"
        };
        let arguments =
            ["--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", configs];
        tools.run("configs", &self.bootstrap(), &arguments).expect_success();
    }
}
