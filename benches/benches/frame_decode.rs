//! From a frame's bytes to a typed request, and from a typed answer to a frame: what the protocol costs a
//! request, whatever it carries.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use benches::sizes::sized;
use benches::workload::batch;
use bytes::{BufMut, Bytes, BytesMut};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protocol::messages::TopicRef;
use protocol::messages::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
use protocol::messages::share_fetch::{
    AcquiredRecords, ShareFetchPartitionResponse, ShareFetchResponse, ShareFetchTopicResponse,
};
use protocol::{ApiKey, ErrorCode, Records, Request, RequestHeader, Response};
use records::Codec;
use records::ids::{Offset, TopicId};

/// A frame's start: key, version, correlation id, client id "bench", no tags.
fn header(key: ApiKey, version: i16) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i16(key.code());
    frame.put_i16(version);
    frame.put_i32(7);
    frame.put_slice(b"\x00\x05bench\x00");
    frame
}

/// A compact length: a varint, stored plus one.
fn length(frame: &mut BytesMut, length: usize) {
    let mut stored = length + 1;
    while stored >= 0x80 {
        frame.put_u8(stored as u8 | 0x80);
        stored >>= 7;
    }
    frame.put_u8(stored as u8);
}

/// Produce v13 with one batch of 100 records for each of `partitions`.
fn produce(partitions: usize) -> Bytes {
    let records = batch(Codec::None, 100, 10, 100);
    let mut frame = header(ApiKey::Produce, 13);
    frame.put_slice(&[0, 0xff, 0xff, 0, 0, 0x75, 0x30]);
    length(&mut frame, 1);
    frame.put_bytes(7, 16);
    length(&mut frame, partitions);
    for index in 0..partitions {
        frame.put_i32(index as i32);
        length(&mut frame, records.len());
        frame.put_slice(&records);
        frame.put_u8(0);
    }
    frame.put_slice(&[0, 0]);
    frame.freeze()
}

/// Fetch v18 of `partitions` outside of a session.
fn fetch(partitions: usize) -> Bytes {
    let mut frame = header(ApiKey::Fetch, 18);
    frame.put_i32(500);
    frame.put_i32(1);
    frame.put_i32(50 << 20);
    frame.put_i8(0);
    frame.put_i32(0);
    frame.put_i32(-1);
    length(&mut frame, 1);
    frame.put_bytes(7, 16);
    length(&mut frame, partitions);
    for index in 0..partitions {
        frame.put_i32(index as i32);
        frame.put_i32(-1);
        frame.put_i64(12_345);
        frame.put_i32(-1);
        frame.put_i64(-1);
        frame.put_i32(1 << 20);
        frame.put_u8(0);
    }
    frame.put_u8(0);
    length(&mut frame, 0);
    length(&mut frame, 0);
    frame.put_u8(0);
    frame.freeze()
}

/// ShareAcknowledge v2 of `ranges` single offsets of one partition.
fn share_acknowledge(ranges: usize) -> Bytes {
    let mut frame = header(ApiKey::ShareAcknowledge, 2);
    frame.put_slice(b"\x06group\x07member");
    frame.put_i32(3);
    frame.put_u8(0);
    length(&mut frame, 1);
    frame.put_bytes(7, 16);
    length(&mut frame, 1);
    frame.put_i32(0);
    length(&mut frame, ranges);
    for offset in 0..ranges as i64 {
        frame.put_i64(2 * offset);
        frame.put_i64(2 * offset);
        frame.put_slice(&[2, 1, 0]);
    }
    frame.put_slice(&[0, 0, 0]);
    frame.freeze()
}

/// Metadata v13 of `topics` by name: walked first, then read by the generated codec.
fn metadata(topics: usize) -> Bytes {
    let mut frame = header(ApiKey::Metadata, 13);
    length(&mut frame, topics);
    for topic in 0..topics {
        let name = format!("department-{topic}");
        frame.put_bytes(0, 16);
        length(&mut frame, name.len());
        frame.put_slice(name.as_bytes());
        frame.put_u8(0);
    }
    frame.put_slice(&[1, 0, 0]);
    frame.freeze()
}

fn decode(frame: &Bytes) -> Request {
    let (header, body) = RequestHeader::decode(frame).expect("the bench makes whole headers");
    let key = ApiKey::route(header.api_key, header.api_version).expect("the bench asks for served versions");
    Request::decode(key, header.api_version, body).expect("the bench makes whole bodies")
}

fn requests(criterion: &mut Criterion) {
    let many = sized(1000, 5);
    let mut group = criterion.benchmark_group("frame_decode");
    for (name, frame) in [
        ("produce_1", produce(1)),
        ("produce_many", produce(sized(100, 3))),
        ("fetch_1", fetch(1)),
        ("fetch_many", fetch(many)),
        ("share_acknowledge_1", share_acknowledge(1)),
        ("share_acknowledge_many", share_acknowledge(many)),
        ("metadata_1", metadata(1)),
        ("metadata_many", metadata(many)),
    ] {
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &frame, |bencher, frame| {
            bencher.iter(|| decode(black_box(frame)));
        });
    }
    group.finish();
}

fn fetch_answer(partitions: usize, records: &Bytes) -> Response {
    let partitions = (0..partitions)
        .map(|index| FetchPartitionResponse {
            records: Records::from(records.clone()),
            ..FetchPartitionResponse::error(index as i32, ErrorCode::None)
        })
        .collect();
    Response::Fetch(FetchResponse {
        topics: vec![FetchTopicResponse { topic: TopicRef::Id(TopicId([7; 16])), partitions }],
        ..FetchResponse::default()
    })
}

fn share_fetch_answer(ranges: usize, records: &Bytes) -> Response {
    let acquired_records = (0..ranges as i64)
        .map(|range| AcquiredRecords {
            first_offset: Offset(2 * range),
            last_offset: Offset(2 * range),
            delivery_count: 1,
        })
        .collect();
    let partition = ShareFetchPartitionResponse {
        records: Records::from(records.clone()),
        acquired_records,
        ..Default::default()
    };
    let topic = ShareFetchTopicResponse { topic_id: TopicId([7; 16]), partitions: vec![partition] };
    Response::ShareFetch(ShareFetchResponse { topics: vec![topic], ..Default::default() })
}

fn answers(criterion: &mut Criterion) {
    let records = batch(Codec::None, 100, 10, 100);
    let many = sized(1000, 5);
    let mut group = criterion.benchmark_group("frame_encode");
    for (name, version, answer) in [
        ("fetch_1", 18, fetch_answer(1, &records)),
        ("fetch_many", 18, fetch_answer(many, &records)),
        ("share_fetch_1", 2, share_fetch_answer(1, &records)),
        ("share_fetch_many", 2, share_fetch_answer(many, &records)),
    ] {
        group.bench_with_input(BenchmarkId::from_parameter(name), &answer, |bencher, answer| {
            bencher.iter_batched(
                || answer.clone(),
                |answer| answer.encode(version, 7).expect("the answers fit their versions"),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(all, requests, answers);
criterion_main!(all);
