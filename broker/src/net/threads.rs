//! The threads that connections live on: each stays on one, so that a request wakes no other.

use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub struct NetThreads {
    threads: Vec<NetThread>,
    next: usize,
}

#[derive(Debug)]
struct NetThread {
    handle: Handle,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl NetThreads {
    /// As many as the machine has cores.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..count).map(|_| NetThread::start()).collect::<io::Result<_>>()?;
        Ok(Self { threads, next: 0 })
    }

    /// Where the next connection goes: to each thread in turn.
    pub(super) fn next(&mut self) -> &Handle {
        self.next = (self.next + 1) % self.threads.len();
        &self.threads[self.next].handle
    }
}

impl NetThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new().name("net".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { handle, _stop: stop })
    }
}
