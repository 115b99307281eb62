//! Loads the flights with a stock producer: librdkafka, idempotent, lz4.

use std::time::Duration;

use indicatif::ProgressBar;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use super::DemoError;
use super::flights::Flights;

/// How long the producer may take to hand over its last records.
const FLUSH_MAX: Duration = Duration::from_secs(60);

/// Pause when the producer's queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Writes the first `count` flights to partition 0 of `topic`, in order, acknowledged by a sync.
///
/// # Errors
/// What the producer says.
pub fn load(
    address: &str,
    topic: &str,
    flights: &Flights,
    count: usize,
    bar: &ProgressBar,
) -> Result<(), DemoError> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set("client.id", "sluice-demo-loader")
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("linger.ms", "5")
        .set("log_level", "3")
        .create()
        .map_err(DemoError::Producer)?;
    for flight in flights.iter().take(count) {
        let value = flight.to_json();
        let mut record = BaseRecord::<str, str>::to(topic).partition(0).payload(&value);
        if let Some(tail) = flight.tail {
            record = record.key(tail);
        }
        while let Err((error, again)) = producer.send(record) {
            match error {
                KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => {
                    producer.poll(FULL_PAUSE);
                    record = again;
                }
                error => return Err(DemoError::Producer(error)),
            }
        }
        bar.inc(1);
    }
    producer.flush(FLUSH_MAX).map_err(DemoError::Producer)
}
