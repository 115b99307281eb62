//! A few threads for work that blocks. They start when there is work, and stay.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The work is one system call after another.
const STACK_BYTES: usize = 128 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// The pool. Its queue is as long as what the shard has in flight, which is bounded there.
#[derive(Clone)]
pub(crate) struct Pool {
    name: &'static str,
    threads_max: usize,
    stack_bytes: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        Self::with_stack(name, threads_max, STACK_BYTES)
    }

    /// A pool for work that takes more stack.
    pub(crate) fn with_stack(name: &'static str, threads_max: usize, stack_bytes: usize) -> Self {
        Self { name, threads_max, stack_bytes, shared: Arc::default() }
    }

    /// Runs a job on one of the threads; on this one where none can be had.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.idle <= state.queue.len() && state.threads < self.threads_max && self.grow() {
            state.threads += 1;
        }
        if state.threads == 0 {
            drop(state);
            job();
            return;
        }
        state.queue.push_back(Box::new(job));
        drop(state);
        self.shared.filled.notify_one();
    }

    fn grow(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .stack_size(self.stack_bytes)
            .spawn(move || work(&shared))
            .is_ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.filled.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        while let Some(job) = state.queue.pop_front() {
            drop(state);
            job();
            state = shared.state.lock();
        }
        if state.closed {
            return;
        }
        state.idle += 1;
        shared.filled.wait(&mut state);
        state.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn every_job_runs_and_no_more_threads_than_allowed() {
        let pool = Pool::new("test", 2);
        let (sender, receiver) = sync_channel(100);
        for number in 0..100 {
            let sender = sender.clone();
            pool.run(move || sender.send((number, std::thread::current().id())).unwrap());
        }
        drop(sender);
        let done: Vec<_> = receiver.iter().collect();
        let numbers: std::collections::BTreeSet<_> = done.iter().map(|(number, _)| *number).collect();
        let threads: std::collections::HashSet<_> = done.iter().map(|(_, thread)| *thread).collect();
        assert_eq!(numbers.len(), 100);
        assert!(threads.len() <= 2);
        assert!(!threads.contains(&std::thread::current().id()));
    }
}
