//! Accepts connections until the broker stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection;
use super::registry::Connections;
use super::threads::NetThreads;
use crate::broker::Broker;

/// Pause after an accept that failed for want of files or memory: some come free as connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long connections may take to write what they owe when the broker stops; what is left then is cut.
const STOP_MAX: Duration = Duration::from_millis(3_500);

/// Accepts and serves connections until `stopping` says so; ends when the last one has ended, or was cut.
pub async fn serve(
    broker: Arc<Broker>,
    listener: TcpListener,
    connections: Arc<Connections>,
    mut threads: NetThreads,
    mut stopping: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(broker.config.connections_max.min(Semaphore::MAX_PERMITS)));
    let mut tasks = JoinSet::new();
    let mut told = false;
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => break,
            Some(_) = tasks.join_next() => continue,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                told = false;
                let registered = connections.register();
                let (broker, stopping) = (Arc::clone(&broker), stopping.clone());
                let served = async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => connection::serve(broker, stream, peer, registered, stopping).await,
                        Err(error) => tracing::error!("cannot serve {peer}: {error}"),
                    }
                    drop(place);
                };
                tasks.spawn_on(served, threads.next());
            }
            Err(error) => {
                if !told {
                    tracing::error!("cannot accept connections for now: {error}");
                    told = true;
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let ended = timeout(STOP_MAX, async { while tasks.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::warn!(connections = tasks.len(), "cutting connections that did not end in time");
        tasks.shutdown().await;
    }
}

/// A stream that belongs to no thread yet.
type Accepted = (std::net::TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<Accepted> {
    let place = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream.into_std()?, peer, place))
}
