//! A barrier that gives up: where one thread of a bench fails, the others must not wait for it for ever.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads meet here, again and again.
#[derive(Debug)]
pub struct Gate {
    threads: usize,
    limit: Duration,
    arrived: Mutex<usize>,
    all: Condvar,
}

impl Gate {
    /// For so many threads, each of which waits at most `limit` for the others.
    #[must_use]
    pub fn new(threads: usize, limit: Duration) -> Self {
        Self { threads, limit, arrived: Mutex::new(0), all: Condvar::new() }
    }

    /// Waits until all threads are here. Panics when they do not come in time.
    pub fn pass(&self) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived += 1;
        let enough = arrived.div_ceil(self.threads) * self.threads;
        if *arrived == enough {
            self.all.notify_all();
            return;
        }
        let waited = self.all.wait_timeout_while(arrived, self.limit, |arrived| *arrived < enough);
        let in_time = !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        assert!(in_time, "not all threads came within {:?}", self.limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_meet_again_and_again() {
        let (gate, passed) = (Gate::new(4, Duration::from_secs(30)), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..100 {
                        passed.fetch_add(1, Ordering::SeqCst);
                        gate.pass();
                        assert!(passed.load(Ordering::SeqCst) >= (round + 1) * 4);
                        gate.pass();
                    }
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "not all threads came")]
    fn who_waits_alone_gives_up() {
        Gate::new(2, Duration::from_millis(10)).pass();
    }
}
