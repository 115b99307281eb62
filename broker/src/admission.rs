//! Memory for requests: reserved before a body is read, given back when its answer is made.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit of the semaphore stands for so many bytes, so that any pool fits its counter.
const GRAIN: u64 = 1 << 10;

/// A bounded pool of bytes. Waiters are served in their order.
#[derive(Clone, Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    grains_max: u32,
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    permit: OwnedSemaphorePermit,
}

impl Admission {
    /// A pool of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        let grains_max = u32::try_from((bytes / GRAIN).clamp(1, most)).expect("clamped to 32 bits");
        Self { permits: Arc::new(Semaphore::new(grains_max as usize)), grains_max }
    }

    /// Waits until `bytes` are free and takes them. More than the whole pool counts as the whole pool: such a request
    /// is served alone.
    ///
    /// # Panics
    /// Never: the pool is not closed while someone holds it.
    pub async fn reserve(&self, bytes: u64) -> Reserved {
        let grains = grains(bytes).min(self.grains_max);
        let permit = Arc::clone(&self.permits)
            .acquire_many_owned(grains)
            .await
            .expect("the semaphore is never closed");
        Reserved { permit }
    }

    /// Bytes that are free now.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.permits.available_permits() as u64 * GRAIN
    }
}

impl Reserved {
    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.permit.num_permits().saturating_sub(grains(bytes) as usize);
        drop(self.permit.split(surplus));
    }
}

fn grains(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRAIN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_comes_back() {
        let pool = Admission::new(10 * GRAIN);
        let mut first = pool.reserve(6 * GRAIN).await;
        assert_eq!(pool.free(), 4 * GRAIN);
        first.shrink_to(2 * GRAIN);
        assert_eq!(pool.free(), 8 * GRAIN);
        drop(first);
        assert_eq!(pool.free(), 10 * GRAIN);
    }

    #[tokio::test]
    async fn a_request_beyond_the_pool_waits_until_it_is_alone() {
        let pool = Admission::new(10 * GRAIN);
        let first = pool.reserve(1).await;
        let whole = pool.reserve(u64::MAX);
        tokio::pin!(whole);
        tokio::select! {
            biased;
            _ = &mut whole => panic!("taken while another holds memory"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let whole = whole.await;
        assert_eq!(pool.free(), 0);
        drop(whole);
        assert_eq!(pool.free(), 10 * GRAIN);
    }
}
