//! `GET /metrics` for Prometheus: the one path of a small HTTP/1.1 server, one request a connection.

use std::io;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{REQUEST_SECONDS, SECONDS_BUCKETS, SYNC_SECONDS, describe, logs, share};
use crate::executor::ShardHandle;

/// Longest request head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for one request and its answer.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often old samples are put together.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Why metrics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The process has a recorder already.
    #[error("metrics are recorded elsewhere in this process")]
    Taken,
}

/// Records from now on, and answers at the listener until `stopping` says so. The `logs_max` largest logs have series of
/// their own. `open_took`: what opening the data directory took.
///
/// # Errors
/// Where this process records metrics already.
pub fn serve(
    listener: TcpListener,
    shard: ShardHandle,
    logs_max: usize,
    open_took: Duration,
    stopping: watch::Receiver<bool>,
) -> Result<(), ExporterError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(REQUEST_SECONDS.to_owned()), &SECONDS_BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Full(SYNC_SECONDS.to_owned()), &SECONDS_BUCKETS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|_| ExporterError::Taken)?;
    describe();
    super::opened(open_took);
    tokio::spawn(run(listener, handle, shard, logs_max, stopping));
    Ok(())
}

async fn run(
    listener: TcpListener,
    handle: PrometheusHandle,
    shard: ShardHandle,
    logs_max: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let mut upkeep = tokio::time::interval(UPKEEP_EVERY);
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            _ = upkeep.tick() => {
                handle.run_upkeep();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            // One at a time: a reader that stalls costs the others at most EXCHANGE_MAX.
            Ok((stream, _)) => {
                let _ = timeout(EXCHANGE_MAX, exchange(stream, &handle, &shard, logs_max)).await;
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn exchange(
    mut stream: TcpStream,
    handle: &PrometheusHandle,
    shard: &ShardHandle,
    logs_max: usize,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = match head.strip_prefix(b"GET /metrics") {
        Some([b' ' | b'?', ..]) => {
            let mut page = handle.render();
            // A broker that is stopping has no more to tell of them.
            if let Ok(overview) = shard.logs(logs_max).await {
                page.push_str(&logs::page(&overview));
            }
            page.push_str(&share::page(&shard.share_groups().await.unwrap_or_default()));
            ("200 OK", page)
        }
        _ => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
