//! A worker of a key-ordered share group: `cargo run -p sluice-client --example worker -- HOST:PORT GROUP TOPIC`.
//!
//! Works each record for a few milliseconds, releases the odd one with a delay, and stops in order on Ctrl-C.

use std::time::Duration;

use client::{Admin, Error, KeyShareConsumer, Outcome, Record};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |otherwise: &str| arguments.next().unwrap_or_else(|| otherwise.to_owned());
    let (bootstrap, group, topic) = (argument("127.0.0.1:9092"), argument("billing"), argument("orders"));

    // A consumer waits for topics that are not there yet: better say so than be silent.
    if let Err(refused) = Admin::connect(&bootstrap, "worker").await?.topic(&topic).await {
        eprintln!(
            "nothing to do for {group} yet, topic {topic} cannot be read: {refused}; this waits until it can"
        );
    }
    let consumer = KeyShareConsumer::builder(bootstrap, group).topic(topic).concurrency(32).build();
    let stats = consumer.stats();
    consumer.run(tokio::signal::ctrl_c(), work).await?;
    println!("accepted {}, released {}, lost {}", stats.accepted(), stats.released(), stats.leases_lost());
    Ok(())
}

/// What the application does. Records of one key come here one after another, different keys side by side.
async fn work(record: Record) -> Outcome {
    tokio::time::sleep(Duration::from_millis(5)).await;
    match record.value {
        Some(value) => {
            println!("{}-{} {:?} {} bytes", record.topic, record.partition, record.key, value.len());
            Outcome::Accept
        }
        // A tombstone before its time: come back later, and let the rest of this key wait behind it.
        None if record.delivery_count == 1 => Outcome::retry_after(Duration::from_secs(1), "no value yet"),
        None => Outcome::reject("no value"),
    }
}
