//! The executor's start and end.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::control::{Control, Refused};
use super::engine::Engine;
use super::handle::ShardHandle;
use super::mailbox::Mail;
use super::worker::{Parts, Worker};

/// The shard's thread decides and walks indexes; nothing recurses.
const STACK_BYTES: usize = 1 << 20;

/// The running executor.
#[derive(Debug)]
pub struct Executor {
    handle: ShardHandle,
    engine: Arc<Engine>,
    thread: JoinHandle<()>,
}

impl Executor {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(parts: Parts) -> io::Result<Self> {
        let engine = Arc::new(Engine::new(parts.clock));
        let handle = ShardHandle::new(Arc::clone(&engine));
        let mut worker = Worker::new(parts, Arc::clone(&engine));
        let running = Arc::clone(&engine);
        let thread = std::thread::Builder::new().name("shard".to_owned()).stack_size(STACK_BYTES).spawn(
            move || {
                worker.sync_recovered();
                running.run(worker);
            },
        )?;
        Ok(Self { handle, engine, thread })
    }

    /// The way to the shard.
    #[must_use]
    pub fn handle(&self) -> ShardHandle {
        self.handle.clone()
    }

    /// Waits until the thread has ended, which it does unasked only by a panic.
    pub async fn ended(&self) {
        let _ = self.engine.ended().wait_for(|ended| *ended).await;
    }

    /// Closes the logs and ends the thread. Commands that are not answered yet never will be.
    ///
    /// # Errors
    /// Where not everything is on the disk: the next start recovers.
    pub async fn stop(self) -> Result<(), Refused> {
        let (sender, outcome) = oneshot::channel();
        let _ = self.engine.leave(Mail::Control(Control::Stop(sender)));
        let outcome = outcome.await.unwrap_or_else(|_| Err(Refused("the shard's thread is gone".to_owned())));
        let _ = self.engine.ended().wait_for(|ended| *ended).await;
        let _ = self.thread.join();
        outcome
    }
}
