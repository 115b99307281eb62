//! Memory for requests: reserved before it is filled, given back when the answer is made.
//!
//! A frame reserves in step with the bytes that came, never for a length that was only claimed: a stranger who announces
//! much and sends little takes nothing from others. Its decoded form has a pool of its own, so that whole frames never
//! wait for half-read ones: what holds that pool is being served, and ends by itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit of a semaphore stands for so many bytes, so that any pool fits its counter.
const GRAIN: u64 = 1 << 10;

/// A bounded amount of memory, half of it for frames, half for what is decoded out of them. Waiters are served in their
/// order.
#[derive(Clone, Debug)]
pub struct Admission {
    frames: Pool,
    decoded: Pool,
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    frame: OwnedSemaphorePermit,
    decoded: OwnedSemaphorePermit,
}

#[derive(Clone, Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    grains_max: u32,
}

impl Admission {
    /// Of `bytes` in all.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { frames: Pool::new(bytes / 2), decoded: Pool::new(bytes / 2) }
    }

    /// A reservation of nothing, to grow.
    #[must_use]
    pub fn nothing(&self) -> Reserved {
        Reserved { frame: self.frames.nothing(), decoded: self.decoded.nothing() }
    }

    /// Waits until a frame of `bytes` may be in memory. More than the whole pool counts as the whole pool: such a frame
    /// is read alone. May be dropped at its await: then nothing has changed.
    pub async fn grow_frame(&self, reserved: &mut Reserved, bytes: u64) {
        self.frames.grow(&mut reserved.frame, bytes).await;
    }

    /// Waits until `bytes` may be decoded out of the frame, as [`Self::grow_frame`].
    pub async fn grow_decoded(&self, reserved: &mut Reserved, bytes: u64) {
        self.decoded.grow(&mut reserved.decoded, bytes).await;
    }

    /// Bytes that are free now.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.frames.free() + self.decoded.free()
    }
}

impl Reserved {
    /// Gives back all but `bytes`, of the decoded form first.
    pub fn shrink_to(&mut self, bytes: u64) {
        let held = self.frame.num_permits() + self.decoded.num_permits();
        let surplus = held.saturating_sub(grains(bytes) as usize);
        let of_decoded = surplus.min(self.decoded.num_permits());
        drop(self.decoded.split(of_decoded));
        drop(self.frame.split(surplus - of_decoded));
    }
}

impl Pool {
    fn new(bytes: u64) -> Self {
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        let grains_max = u32::try_from((bytes / GRAIN).clamp(1, most)).expect("clamped to 32 bits");
        Self { permits: Arc::new(Semaphore::new(grains_max as usize)), grains_max }
    }

    fn nothing(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.permits).try_acquire_many_owned(0).expect("none of the permits is always to be had")
    }

    async fn grow(&self, permit: &mut OwnedSemaphorePermit, bytes: u64) {
        let wanted = grains(bytes).min(self.grains_max);
        let missing = wanted.saturating_sub(u32::try_from(permit.num_permits()).unwrap_or(u32::MAX));
        if missing > 0 {
            let more = Arc::clone(&self.permits).acquire_many_owned(missing).await;
            permit.merge(more.expect("the semaphore is never closed"));
        }
    }

    fn free(&self) -> u64 {
        self.permits.available_permits() as u64 * GRAIN
    }
}

fn grains(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRAIN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;

    async fn waits(future: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = future => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[tokio::test]
    async fn memory_comes_back() {
        let admission = Admission::new(20 * GRAIN);
        let mut first = admission.nothing();
        admission.grow_frame(&mut first, 4 * GRAIN).await;
        admission.grow_frame(&mut first, 6 * GRAIN).await;
        admission.grow_decoded(&mut first, 3 * GRAIN).await;
        assert_eq!(admission.free(), 11 * GRAIN);
        first.shrink_to(7 * GRAIN);
        assert_eq!(admission.free(), 13 * GRAIN);
        first.shrink_to(2 * GRAIN);
        assert_eq!(admission.free(), 18 * GRAIN);
        drop(first);
        assert_eq!(admission.free(), 20 * GRAIN);
    }

    #[tokio::test]
    async fn a_frame_beyond_the_pool_waits_until_it_is_alone() {
        let admission = Admission::new(20 * GRAIN);
        let (mut first, mut whole) = (admission.nothing(), admission.nothing());
        admission.grow_frame(&mut first, 1).await;
        assert!(waits(admission.grow_frame(&mut whole, u64::MAX)).await, "taken while another holds memory");
        drop(first);
        admission.grow_frame(&mut whole, u64::MAX).await;
        assert_eq!(admission.free(), 10 * GRAIN);
        drop(whole);
        assert_eq!(admission.free(), 20 * GRAIN);
    }

    #[tokio::test]
    async fn whole_frames_do_not_wait_for_half_read_ones() {
        let admission = Admission::new(20 * GRAIN);
        let (mut half, mut other, mut whole) =
            (admission.nothing(), admission.nothing(), admission.nothing());
        admission.grow_frame(&mut whole, GRAIN).await;
        admission.grow_frame(&mut half, 9 * GRAIN).await;
        assert!(waits(admission.grow_frame(&mut other, GRAIN)).await);
        admission.grow_decoded(&mut whole, 10 * GRAIN).await;
    }
}
