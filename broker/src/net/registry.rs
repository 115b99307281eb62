//! Which connections are open, so that one can be closed from elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coordinator::command::ConnectionId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fault_log::FaultLog;

/// The open connections.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<HashMap<ConnectionId, Arc<Notify>>>,
    id_last: AtomicU64,
    faults: FaultLog,
}

/// A connection's place among the open ones; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    connections: Arc<Connections>,
    pub(super) id: ConnectionId,
    closed: Arc<Notify>,
}

impl Connections {
    /// How many are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Closes a connection; nothing happens where it is gone already.
    pub fn close(&self, id: ConnectionId) {
        if let Some(closed) = self.open.lock().get(&id) {
            closed.notify_one();
        }
    }

    pub(super) fn register(self: &Arc<Self>) -> Registered {
        let id = ConnectionId(self.id_last.fetch_add(1, Ordering::Relaxed) + 1);
        let closed = Arc::new(Notify::new());
        self.open.lock().insert(id, Arc::clone(&closed));
        Registered { connections: Arc::clone(self), id, closed }
    }
}

impl Registered {
    /// Where faults of clients are told.
    pub(super) fn faults(&self) -> &FaultLog {
        &self.connections.faults
    }

    /// Waits until someone closes this connection.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.id);
    }
}
