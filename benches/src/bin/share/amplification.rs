//! What is read from the log and sent for what is delivered, with 64 members.
//!
//! The records come in before the partition has a key-ordered group, so that its key index is built out of the log
//! meanwhile, which reads all of it once more; or after that, and the index is kept up at append.

use std::time::Duration;

use benches::alone::Alone;
use benches::crew::{Task, accept_all, work};
use benches::keyed::batches;
use benches::requests::{configure_group, create, load};
use benches::side_by_side::turns;
use integration_tests::share_member::{ALL, ShareMember};
use records::Codec;

const RECORDS: usize = 300_000;
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 1_024;
const MEMBERS: usize = 64;
/// Records of a stored batch.
const BATCHES: [usize; 2] = [16, 500];
const STALL_MAX: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn run() {
    for (codec, indexed) in [(Codec::None, false), (Codec::None, true), (Codec::Lz4, true)] {
        for batch_records in BATCHES {
            let samples: Vec<(f64, f64, f64)> =
                (0..turns()).map(|_| measure(codec, indexed, batch_records)).collect();
            let spread = |of: fn(&(f64, f64, f64)) -> f64| benches::side_by_side::spread(&samples, of);
            println!(
                "{MEMBERS} members, {KEYS} keys, {codec:?}, batches of {batch_records}, key index {}: read \
                 amplification {}, network amplification {}, {} records/s",
                if indexed { "at append" } else { "from the log" },
                spread(|s| s.0),
                spread(|s| s.1),
                spread(|s| s.2)
            );
        }
    }
}

fn measure(codec: Codec, indexed: bool, batch_records: usize) -> (f64, f64, f64) {
    let sluice = Alone::start("");
    let bootstrap = sluice.broker.bootstrap();
    let id = create(bootstrap, "t", 1, &[("flush.policy", "os")]);
    configure_group(
        bootstrap,
        "g",
        &[("share.auto.offset.reset", "earliest"), ("sluice.share.order", "key")],
    );
    if indexed {
        let mut first = ShareMember::connect(bootstrap, "g", "first", id);
        first.join("t");
        first.fetch(ALL);
        first.fetch_at(-1, ALL);
        first.heartbeat(-1, None);
    }
    let key = |number: usize| {
        let drawn = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        Some(format!("key-{}", drawn % KEYS))
    };
    let mut stored = 0;
    let counted =
        batches(codec, RECORDS, batch_records, VALUE_BYTES, key).inspect(|batch| stored += batch.len());
    load(bootstrap, "t", counted);
    let before = sluice.bytes_read();
    let task = Task {
        bootstrap,
        group: "g",
        topic: ("t", id),
        members: MEMBERS,
        records: RECORDS as u64,
        stall_max: STALL_MAX,
        limit: LIMIT,
    };
    let taken = work(task, accept_all);
    let read = sluice.bytes_read() - before;
    // All of the log was delivered, or a part: the stored bytes of that part.
    let delivered = stored as f64 * taken.records as f64 / RECORDS as f64;
    (read as f64 / delivered, taken.record_bytes as f64 / delivered, taken.rate())
}
