//! The only reader of the machine's randomness: topic ids, member ids and the ids of fetch sessions need to be unlike any
//! other.

use records::ids::TopicId;

/// 16 bytes nobody else has.
///
/// # Panics
/// Where the kernel has no randomness to give, which it promises to have once booted.
#[must_use]
pub fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("a booted kernel gives randomness");
    assert_eq!(count, bytes.len(), "up to 256 bytes come whole (getrandom(2))");
    bytes
}

/// An id for a fetch session, from 1 on.
#[must_use]
pub fn fetch_session_id() -> i32 {
    let [first, second, third, fourth, ..] = random_bytes();
    (i32::from_be_bytes([first, second, third, fourth]) & i32::MAX).max(1)
}

/// A new topic id: a random UUID (version 4), not beginning with `-` in Kafka's base64 form, and not one of the ids
/// that Kafka keeps for itself (`Uuid.randomUuid`).
#[must_use]
pub fn topic_id() -> TopicId {
    loop {
        let mut bytes = random_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        // The first base64 character stands for the upper six bits; 62 is `-`.
        if bytes[0] >> 2 != 62 {
            return TopicId(bytes);
        }
    }
}
