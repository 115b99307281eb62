use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn every_second_offset_costs_one_bitmap_a_chunk() {
    let mut settled = Settled::default();
    for offset in (0..3 * CHUNK).step_by(2) {
        settled.insert(offset, offset);
    }
    let bound = 3 * (BITMAP_BYTES as u64 + CHUNK_BYTES);
    assert!(settled.heap_bytes() <= bound, "{}", settled.heap_bytes());
    for offset in (1..3 * CHUNK).step_by(2) {
        settled.insert(offset, offset);
    }
    assert!(settled.heap_bytes() <= 3 * CHUNK_BYTES);
    assert_eq!(settled.runs_from(5), [(5, 3 * CHUNK - 1)]);
    assert_eq!(settled.next_absent(0), 3 * CHUNK);
}

#[test]
fn k37_a_chunk_takes_8_kib_at_most_on_the_disk() {
    for step in [2, 3, 7, 15, 16, 17, 31, 1_000] {
        for length in [1, 2, 5, 14] {
            let mut settled = Settled::default();
            let firsts = (CHUNK..2 * CHUNK).step_by(step);
            firsts.for_each(|first| settled.insert(first, (first + length - 1).min(2 * CHUNK - 1)));
            let stored: Vec<_> = settled.stored().collect();
            let [(1, StoredChunk::Bytes(bytes))] = &stored[..] else { panic!("one chunk: {}", stored.len()) };
            assert!(bytes.len() <= 8 << 10, "{} bytes: {length} of each {step}", bytes.len());
            let mut read = Settled::default();
            read.restore(1, bytes, None, i64::MAX).unwrap();
            assert_eq!(read.runs_from(0), settled.runs_from(0), "{length} of each {step}");
        }
    }
}

/// A chunk that did not change keeps its page; one that did gives it up.
#[test]
fn k37_only_what_changed_needs_a_new_page() {
    let mut settled = Settled::default();
    settled.insert(0, 10);
    settled.insert(CHUNK + 5, CHUNK + 5);
    settled.set_page(0, 1);
    settled.set_page(1, 2);
    settled.insert(3, 7);
    assert_eq!(settled.take_stale(), []);
    settled.insert(CHUNK + 6, CHUNK + 6);
    assert_eq!(settled.take_stale(), [2]);
    let stored: Vec<_> = settled.stored().collect();
    assert_eq!(stored[0], (0, StoredChunk::Page(1)));
    assert!(matches!(stored[1], (1, StoredChunk::Bytes(_))));
    settled.remove_below(CHUNK);
    assert_eq!(settled.take_stale(), [1]);
}

#[test]
fn damaged_chunks_are_refused() {
    for bytes in [&[][..], &[9], &[0, 0], &[1, 5, 0, 4, 0], &[2, 5, 0, 5, 0], &[1, 0, 0, 1, 0, 2, 0, 3, 0]] {
        assert_eq!(Settled::default().restore(0, bytes, None, i64::MAX), Err(DecodeError), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn behaves_as_a_plain_set(
        steps in prop::collection::vec((0_i64..200_000, 0_i64..400, 0_u8..16), 1..300),
        dense in prop::option::of(0_i64..3),
        probes in prop::collection::vec((0_i64..201_000, 0_i64..70_000), 20),
        end in prop_oneof![Just(i64::MAX), 0_i64..200_000],
    ) {
        let mut settled = Settled::default();
        let mut model = BTreeSet::new();
        let mut start = 0;
        if let Some(chunk) = dense {
            for offset in (chunk * CHUNK..chunk * CHUNK + CHUNK).step_by(2) {
                settled.insert(offset, offset);
                model.insert(offset);
            }
        }
        for (first, length, kind) in steps {
            if kind == 0 {
                start = start.max(first / 4);
                settled.remove_below(start);
                model = model.split_off(&start);
            } else {
                let length = if kind < 10 { 0 } else { length };
                let first = first.max(start);
                settled.insert(first, first + length);
                model.extend(first..=first + length);
            }
        }
        // Stored and read back, it is the same below the end.
        let mut restored = Settled::default();
        for (number, stored) in settled.stored() {
            let StoredChunk::Bytes(bytes) = stored else { panic!("there are no pages") };
            prop_assert!(bytes.len() <= BITMAP_BYTES);
            restored.restore(number, &bytes, Some(number.unsigned_abs()), end).unwrap();
        }
        let listed: Vec<i64> = settled.runs_from(start).into_iter().flat_map(|(a, b)| a..=b).collect();
        prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
        let listed: Vec<i64> = restored.runs_from(start).into_iter().flat_map(|(a, b)| a..=b).collect();
        prop_assert_eq!(&listed, &model.range(..end).copied().collect::<Vec<_>>());
        for (probe, length) in probes.into_iter().filter(|probe| probe.0 >= start) {
            prop_assert_eq!(settled.contains(probe), model.contains(&probe));
            let mut absent = probe;
            while model.contains(&absent) { absent += 1; }
            prop_assert_eq!(settled.next_absent(probe), absent);
            let count = model.range(probe..=probe + length).count() as i64;
            prop_assert_eq!(settled.count_in(probe, probe + length), count);
        }
        let bytes: u64 = settled.chunks.values().map(|chunk| chunk.bytes() as u64).sum();
        prop_assert_eq!(settled.bytes, bytes);
    }
}
