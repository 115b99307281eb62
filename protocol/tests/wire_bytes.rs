//! Exact bytes, as measured on Apache Kafka 4.4.

use std::convert::Infallible;

use bytes::Bytes;
use protocol::frame::{FrameError, parse_prefix};
use protocol::{ApiKey, ErrorCode, Preamble, Refusal, Request, RequestHeader, Response, response, wire};

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("two hex digits"))
        .collect()
}

/// The frame behind its prefix, which must count it.
fn frame(text: &str) -> Bytes {
    let bytes = hex(text);
    let length = parse_prefix(bytes[..4].try_into().expect("a prefix"), 1 << 20).expect("a length");
    assert_eq!(length, bytes.len() - 4);
    bytes.slice(4..)
}

fn decode(frame: &Bytes) -> (RequestHeader, Request) {
    let (header, body) = RequestHeader::decode(frame).expect("a header");
    let key = ApiKey::route(header.api_key, header.api_version).expect("a served version");
    let request = Request::decode(key, header.api_version, body).expect("a body");
    (header, request)
}

#[test]
fn w02_too_high_api_versions_is_answered_in_version_0() {
    let frame = frame("00000011 0012 007f 00000007 000161 00 0261 0231 00");
    let preamble = Preamble::peek(&frame).unwrap();
    let refusal = ApiKey::route(preamble.api_key, preamble.api_version).unwrap_err();
    assert_eq!(refusal, Refusal::ApiVersionsTooNew { version: 127 });
    let answer = Response::<Infallible>::ApiVersions(response::unsupported_api_versions());
    let answer = answer.encode(0, preamble.correlation_id).unwrap().into_bytes();
    assert_eq!(answer, hex("00000010 00000007 0023 00000001 0012 0000 0005"));
}

#[test]
fn w03_api_versions_response_header_has_no_tags() {
    let requests = [
        "00000014 0012 0003 01020304 000163 00 0261 0231 00",
        "00000014 0012 0004 01020304 000163 00 0261 0231 00",
        "00000019 0012 0005 01020304 000163 00 0261 0231 00 ffffffff 00",
    ];
    for (version, request) in (3..).zip(requests) {
        let bytes = hex(request);
        let (header, request) = decode(&bytes.slice(4..));
        assert_eq!((header.api_version, header.correlation_id), (version, 0x0102_0304));
        let Request::ApiVersions(request) = request else { panic!("{request:?}") };
        assert_eq!(request.client_software_name.as_str(), "a");
        assert_eq!(request.client_software_version.as_str(), "1");
        assert_eq!((request.cluster_id, request.node_id), (None, -1));
        let mut answer = wire::ApiVersionsResponse::default();
        answer.api_keys = response::advertised_versions();
        let answer = Response::<Infallible>::ApiVersions(answer).encode(version, header.correlation_id);
        let answer = answer.unwrap().into_bytes();
        assert_eq!(answer[4..10], hex("01020304 0000"), "v{version}");
    }
}

#[test]
fn w03_other_flexible_responses_have_tags_in_their_header() {
    for version in 0..=13 {
        let answer = Response::<Infallible>::Metadata(wire::MetadataResponse::default());
        let answer = answer.encode(version, 7).unwrap().into_bytes();
        let header = if version >= 9 { hex("00000007 00") } else { hex("00000007") };
        assert_eq!(answer[4..4 + header.len()], header, "v{version}");
    }
}

#[test]
fn w04_client_id_may_be_null_in_a_flexible_header() {
    for (client_id, read) in [("ffff", None), ("0000", Some(""))] {
        let (header, request) =
            decode(&frame(&format!("0000000f 0003 000c 00000007 {client_id} 00 01 00 00 00")));
        assert_eq!(header.correlation_id, 7);
        assert_eq!(header.client_id.as_deref(), read);
        let Request::Metadata(request) = request else { panic!("{request:?}") };
        assert_eq!(request.topics, Some(Vec::new()));
        assert!(!request.allow_auto_topic_creation);
    }
}

#[test]
fn w05_unknown_tagged_fields_are_skipped() {
    let plain = decode(&hex("0003 000c 00000007 ffff 00 01 00 00 00"));
    let (header, request) = decode(&hex("0003 000c 00000007 ffff 01 63 03 616263 01 00 00 01 63 02 7a7a"));
    assert_eq!(header, plain.0);
    let (Request::Metadata(mut request), Request::Metadata(plain)) = (request, plain.1) else {
        panic!("not Metadata")
    };
    assert_eq!(request.unknown_tagged_fields.len(), 1);
    request.unknown_tagged_fields = Default::default();
    assert_eq!(request, plain);
}

#[test]
fn w09_null_and_empty_topic_lists_are_told_apart() {
    let topics = |text: &str| match decode(&hex(text)).1 {
        Request::Metadata(request) => request.topics.map(|topics| topics.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(topics("0003 0000 00000007 ffff 00000000"), Some(0));
    assert_eq!(topics("0003 0001 00000007 ffff ffffffff"), None);
    assert_eq!(topics("0003 0001 00000007 ffff 00000000"), Some(0));
    assert_eq!(topics("0003 000c 00000007 ffff 00 00 00 00 00"), None);
    assert_eq!(topics("0003 000c 00000007 ffff 00 01 00 00 00"), Some(0));
}

#[test]
fn f01_empty_records_are_empty_and_not_null() {
    use protocol::messages::TopicRef;
    use protocol::messages::fetch::{FetchPartitionResponse, FetchResponse, FetchTopicResponse};
    for version in 4..=18 {
        for error_code in [ErrorCode::None, ErrorCode::UnknownTopicOrPartition] {
            let topic = if version >= 13 {
                TopicRef::Id(records::ids::TopicId([7; 16]))
            } else {
                TopicRef::Name("t".into())
            };
            let partition = FetchPartitionResponse::error(0, error_code);
            let answer = FetchResponse {
                topics: vec![FetchTopicResponse { topic, partitions: vec![partition] }],
                ..FetchResponse::default()
            };
            let answer = Response::<Infallible>::Fetch(answer).encode(version, 1).unwrap().into_bytes();
            // Records are the last field; after them come the tag sections of partition, topic and body.
            let tail = if version >= 12 { hex("01 00 00 00") } else { hex("00000000") };
            assert_eq!(answer[answer.len() - tail.len()..], tail, "v{version} {error_code}");
        }
    }
}

#[test]
fn b01_length_prefixes() {
    const MAX: usize = 100 * 1024 * 1024;
    assert_eq!(parse_prefix([0xff; 4], MAX), Err(FrameError::Negative { length: -1 }));
    let largest = i32::MAX as usize;
    assert_eq!(
        parse_prefix([0x7f, 0xff, 0xff, 0xff], MAX),
        Err(FrameError::TooLarge { length: largest, max: MAX })
    );
    assert_eq!(parse_prefix([0; 4], MAX), Err(FrameError::Empty));
    assert_eq!(parse_prefix((MAX as u32).to_be_bytes(), MAX), Ok(MAX));
    assert!(parse_prefix((MAX as u32 + 1).to_be_bytes(), MAX).is_err());
    assert_eq!(parse_prefix([0, 0, 0, 1], MAX), Ok(1));
}
