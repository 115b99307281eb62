//! The key-share codecs against their schemas: an encoder that knows nothing but the JSON writes values, and
//! the codecs must read them and write the same bytes.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use protocol::messages::key_share_acknowledge::{
    KeyShareAcknowledgePartition, KeyShareAcknowledgePartitionResponse, KeyShareAcknowledgeRequest,
    KeyShareAcknowledgeResponse, KeyShareAcknowledgeTopic, KeyShareAcknowledgeTopicResponse,
};
use protocol::messages::key_share_alter::{
    KeyShareAlterPartition, KeyShareAlterRequest, KeyShareAlterResponse, KeyShareAlterTopic,
    KeyShareAlteredPartition, KeyShareAlteredTopic, KeyShareChange, KeyShareChangeResult,
};
use protocol::messages::key_share_commit::{
    KeyShareCommitPartition, KeyShareCommitRequest, KeyShareCommitResponse, KeyShareCommitTopic,
    KeyShareCommittedPartition, KeyShareCommittedTopic, OffsetRange,
};
use protocol::messages::key_share_describe::{
    KeyShareAnswer, KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeResponse,
    KeyShareDescribeTopic, KeyShareDescribedKey, KeyShareDescribedPartition, KeyShareDescribedTopic,
    KeyShareQuestion, KeyShareSpan, KeyShareStoppedKey,
};
use protocol::messages::key_share_fetch::{
    AcknowledgeResult, Acknowledgement, AcquiredRange, KeyHashRange, KeyShareFetchPartition,
    KeyShareFetchPartitionResponse, KeyShareFetchRequest, KeyShareFetchResponse, KeyShareFetchTopic,
    KeyShareFetchTopicResponse, KeyShareForgottenTopic, RecalledRange,
};
use protocol::messages::{LeaderIdAndEpoch, NodeEndpoint};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use protocol::{ApiKey, DecodeError, ErrorCode, Request, Response};
use serde_json::Value;
use support::Random;

const SCHEMAS: [(&str, ApiKey); 10] = [
    (include_str!("../schemas/KeyShareFetchRequest.json"), ApiKey::KeyShareFetch),
    (include_str!("../schemas/KeyShareFetchResponse.json"), ApiKey::KeyShareFetch),
    (include_str!("../schemas/KeyShareAcknowledgeRequest.json"), ApiKey::KeyShareAcknowledge),
    (include_str!("../schemas/KeyShareAcknowledgeResponse.json"), ApiKey::KeyShareAcknowledge),
    (include_str!("../schemas/KeyShareCommitRequest.json"), ApiKey::KeyShareCommit),
    (include_str!("../schemas/KeyShareCommitResponse.json"), ApiKey::KeyShareCommit),
    (include_str!("../schemas/KeyShareDescribeRequest.json"), ApiKey::KeyShareDescribe),
    (include_str!("../schemas/KeyShareDescribeResponse.json"), ApiKey::KeyShareDescribe),
    (include_str!("../schemas/KeyShareAlterRequest.json"), ApiKey::KeyShareAlter),
    (include_str!("../schemas/KeyShareAlterResponse.json"), ApiKey::KeyShareAlter),
];

fn schema(index: usize) -> Value {
    serde_json::from_str(SCHEMAS[index].0).expect("a schema is JSON")
}

/// Where a schema's values come from.
enum Source {
    Random(Random),
    /// Defaults, with one element in every array.
    Defaults,
}

/// Writes one message by its schema: KIP-482's flexible form, without tags.
struct Writer {
    source: Source,
    out: Vec<u8>,
    /// Every field passed, in wire order.
    names: Vec<String>,
}

impl Writer {
    fn write(schema: &Value, source: Source) -> Self {
        let mut writer = Self { source, out: Vec::new(), names: Vec::new() };
        writer.fields(schema);
        writer
    }

    fn fields(&mut self, holder: &Value) {
        for field in holder["fields"].as_array().expect("a struct has fields") {
            self.names.push(snake_case(field["name"].as_str().expect("a field has a name")));
            self.field(field);
        }
        self.varint(0);
    }

    fn field(&mut self, field: &Value) {
        let kind = field["type"].as_str().expect("a field has a type");
        let nullable = field.get("nullableVersions").is_some();
        match kind {
            "int8" => {
                let value = self.number(field) as i8;
                self.out.extend(value.to_be_bytes());
            }
            "int16" => {
                let value = self.number(field) as i16;
                self.out.extend(value.to_be_bytes());
            }
            "int32" => {
                let value = self.number(field) as i32;
                self.out.extend(value.to_be_bytes());
            }
            "int64" => {
                let value = self.number(field);
                self.out.extend(value.to_be_bytes());
            }
            "uuid" => {
                let id = match &mut self.source {
                    Source::Random(random) => random.topic_id().0,
                    Source::Defaults => [0; 16],
                };
                self.out.extend(id);
            }
            "string" => {
                let text = match &mut self.source {
                    Source::Random(random) if nullable => random.maybe_text(),
                    Source::Random(random) => Some(random.text()),
                    Source::Defaults if field.get("default").is_some_and(|default| default == "null") => None,
                    Source::Defaults => Some(Default::default()),
                };
                match text {
                    Some(text) => self.sized(text.as_bytes()),
                    None => self.varint(0),
                }
            }
            "records" => {
                let bytes = match &mut self.source {
                    Source::Random(random) => random.bytes(),
                    Source::Defaults => Bytes::new(),
                };
                self.sized(&bytes);
            }
            kind => match kind.strip_prefix("[]") {
                Some(element) => {
                    let count = match &mut self.source {
                        Source::Random(random) => {
                            let null = nullable && random.maybe_text().is_none();
                            (!null).then(|| random.list(|_| ()).len())
                        }
                        Source::Defaults => Some(1),
                    };
                    let Some(count) = count else { return self.varint(0) };
                    self.varint(count as u32 + 1);
                    let names = self.names.len();
                    for number in 0..count {
                        if element == "int32" {
                            let value = self.number(field) as i32;
                            self.out.extend(value.to_be_bytes());
                        } else {
                            if number > 0 {
                                self.names.truncate(names);
                            }
                            self.fields(field);
                        }
                    }
                }
                None => self.fields(field),
            },
        }
    }

    fn number(&mut self, field: &Value) -> i64 {
        let is_error = field["name"] == "ErrorCode";
        match &mut self.source {
            Source::Random(random) if is_error => i64::from(random.error_code().code()),
            Source::Random(random) => random.i64(),
            Source::Defaults => field.get("default").map_or(0, |default| {
                default.as_str().and_then(|text| text.parse().ok()).expect("a number in a string")
            }),
        }
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u32 + 1);
        self.out.extend(bytes);
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// Encodes a request by the client's way and returns its body.
fn request_body(request: Request) -> Bytes {
    let frame = match request {
        Request::KeyShareFetch(request) => request.into_frame(7, None),
        Request::KeyShareAcknowledge(request) => request.into_frame(7, None),
        Request::KeyShareCommit(request) => request.into_frame(7, None),
        Request::KeyShareDescribe(request) => request.into_frame(7, None),
        Request::KeyShareAlter(request) => request.into_frame(7, None),
        other => panic!("{other:?}"),
    };
    // Length, key, version, correlation id, null client id, tags.
    frame.expect("short fields").slice(4 + 2 + 2 + 4 + 2 + 1..)
}

/// Encodes an answer and returns its body.
fn response_body(response: Response) -> Bytes {
    // Length, correlation id, tags.
    response.encode(0, 7).expect("short fields").into_bytes().slice(4 + 4 + 1..)
}

fn read_response(key: ApiKey, body: &[u8]) -> Result<Response, DecodeError> {
    fn read<T: KeyShareResponse>(frame: Bytes) -> Result<T, DecodeError> {
        let (correlation_id, response) = T::from_frame(frame)?;
        assert_eq!(correlation_id, 7);
        Ok(response)
    }
    let frame = Bytes::from([&[0, 0, 0, 7, 0][..], body].concat());
    Ok(match key {
        ApiKey::KeyShareFetch => Response::KeyShareFetch(read::<KeyShareFetchResponse>(frame)?),
        ApiKey::KeyShareAcknowledge => Response::KeyShareAcknowledge(read(frame)?),
        ApiKey::KeyShareCommit => Response::KeyShareCommit(read(frame)?),
        ApiKey::KeyShareDescribe => Response::KeyShareDescribe(read(frame)?),
        ApiKey::KeyShareAlter => Response::KeyShareAlter(read(frame)?),
        other => panic!("{other} is none of the key-share API"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn codecs_read_and_write_what_the_schemas_say(seed: u64) {
        for (index, (_, key)) in SCHEMAS.into_iter().enumerate() {
            let schema = schema(index);
            let written = Writer::write(&schema, Source::Random(Random(seed))).out;
            let again = if schema["type"] == "request" {
                request_body(Request::decode(key, 0, Bytes::from(written.clone())).unwrap())
            } else {
                response_body(read_response(key, &written).expect("a whole answer"))
            };
            prop_assert_eq!(&again[..], &written[..], "{}", schema["name"]);
        }
    }

    #[test]
    fn responses_that_are_cut_are_errors(seed: u64, cut: proptest::sample::Index) {
        for (index, (_, key)) in SCHEMAS.into_iter().enumerate().filter(|(index, _)| index % 2 == 1) {
            let written = Writer::write(&schema(index), Source::Random(Random(seed))).out;
            let cut = cut.index(written.len());
            prop_assert!(read_response(key, &written[..cut]).is_err());
        }
    }
}

/// Our types with defaults everywhere and one element in every array.
fn of_defaults(index: usize) -> (Bytes, String) {
    let acknowledgements = || vec![Acknowledgement::default()];
    match index {
        0 => {
            let partition = KeyShareFetchPartition {
                key_hash_ranges: vec![KeyHashRange::default()],
                acknowledgements: acknowledgements(),
                ..Default::default()
            };
            let request = Request::KeyShareFetch(KeyShareFetchRequest {
                topics: vec![KeyShareFetchTopic { partitions: vec![partition], ..Default::default() }],
                forgotten_topics: vec![KeyShareForgottenTopic { partitions: vec![0], ..Default::default() }],
                ..Default::default()
            });
            let names = format!("{request:#?}");
            (request_body(request), names)
        }
        1 => {
            let partition = KeyShareFetchPartitionResponse {
                acknowledge_results: vec![AcknowledgeResult::default()],
                acquired_ranges: vec![AcquiredRange::default()],
                recalled_ranges: vec![RecalledRange::default()],
                ..Default::default()
            };
            let topic = KeyShareFetchTopicResponse { partitions: vec![partition], ..Default::default() };
            let response = Response::KeyShareFetch(KeyShareFetchResponse {
                topics: vec![topic],
                node_endpoints: vec![NodeEndpoint::default()],
                ..Default::default()
            });
            let names = format!("{response:#?}");
            (response_body(response), names)
        }
        2 => {
            let partition =
                KeyShareAcknowledgePartition { acknowledgements: acknowledgements(), ..Default::default() };
            let request = Request::KeyShareAcknowledge(KeyShareAcknowledgeRequest {
                topics: vec![KeyShareAcknowledgeTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            });
            let names = format!("{request:#?}");
            (request_body(request), names)
        }
        3 => {
            let partition = KeyShareAcknowledgePartitionResponse {
                acknowledge_results: vec![AcknowledgeResult::default()],
                recalled_ranges: vec![RecalledRange::default()],
                ..Default::default()
            };
            let topic =
                KeyShareAcknowledgeTopicResponse { partitions: vec![partition], ..Default::default() };
            let response = Response::KeyShareAcknowledge(KeyShareAcknowledgeResponse {
                topics: vec![topic],
                node_endpoints: vec![NodeEndpoint::default()],
                ..Default::default()
            });
            let names = format!("{response:#?}");
            (response_body(response), names)
        }
        index => of_admin_defaults(index),
    }
}

/// The same of the requests and answers around fetching.
fn of_admin_defaults(index: usize) -> (Bytes, String) {
    let request = |request: Request| {
        let names = format!("{request:#?}");
        (request_body(request), names)
    };
    let response = |response: Response| {
        let names = format!("{response:#?}");
        (response_body(response), names)
    };
    match index {
        4 => {
            let partition =
                KeyShareCommitPartition { ranges: vec![OffsetRange::default()], ..Default::default() };
            request(Request::KeyShareCommit(KeyShareCommitRequest {
                topics: vec![KeyShareCommitTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            }))
        }
        5 => {
            let partition = KeyShareCommittedPartition::default();
            response(Response::KeyShareCommit(KeyShareCommitResponse {
                topics: vec![KeyShareCommittedTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            }))
        }
        6 => {
            let partition = KeyShareDescribePartition {
                questions: vec![KeyShareQuestion::default()],
                ..Default::default()
            };
            let topic = KeyShareDescribeTopic { partitions: vec![partition], ..Default::default() };
            request(Request::KeyShareDescribe(KeyShareDescribeRequest {
                topics: Some(vec![topic]),
                ..Default::default()
            }))
        }
        7 => {
            let partition = KeyShareDescribedPartition {
                keys: vec![KeyShareDescribedKey::default()],
                spans: vec![KeyShareSpan::default()],
                stopped: vec![KeyShareStoppedKey::default()],
                answers: vec![KeyShareAnswer::default()],
                ..Default::default()
            };
            response(Response::KeyShareDescribe(KeyShareDescribeResponse {
                topics: vec![KeyShareDescribedTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            }))
        }
        8 => {
            let partition =
                KeyShareAlterPartition { changes: vec![KeyShareChange::default()], ..Default::default() };
            request(Request::KeyShareAlter(KeyShareAlterRequest {
                topics: vec![KeyShareAlterTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            }))
        }
        _ => {
            let partition = KeyShareAlteredPartition {
                results: vec![KeyShareChangeResult::default()],
                ..Default::default()
            };
            response(Response::KeyShareAlter(KeyShareAlterResponse {
                topics: vec![KeyShareAlteredTopic { partitions: vec![partition], ..Default::default() }],
                ..Default::default()
            }))
        }
    }
}

#[test]
fn defaults_are_the_schemas() {
    for index in 0..SCHEMAS.len() {
        let schema = schema(index);
        let written = Writer::write(&schema, Source::Defaults).out;
        assert_eq!(&of_defaults(index).0[..], &written[..], "{}", schema["name"]);
    }
    assert_eq!(LeaderIdAndEpoch::default(), LeaderIdAndEpoch::UNKNOWN);
}

#[test]
fn field_names_are_the_schemas_in_wire_order() {
    for index in 0..SCHEMAS.len() {
        let schema = schema(index);
        let debug = of_defaults(index).1;
        let ours: Vec<&str> = debug
            .lines()
            .filter_map(|line| line.trim_start().split_once(": ").map(|(name, _)| name))
            // The pieces inside of records are no fields of the message.
            .filter(|name| *name != "segments")
            .map(|name| if name == "index" { "partition_index" } else { name })
            .collect();
        let theirs = Writer::write(&schema, Source::Defaults).names;
        assert_eq!(ours, theirs, "{}", schema["name"]);
    }
}

#[test]
fn schemas_say_what_the_table_says_and_document_every_field() {
    fn documented(holder: &Value, path: &str) {
        for field in holder["fields"].as_array().into_iter().flatten() {
            let path = format!("{path}.{}", field["name"].as_str().unwrap());
            assert!(field["about"].as_str().is_some_and(|about| about.len() > 10), "{path} says nothing");
            assert_eq!(field["versions"], "0+", "{path}");
            documented(field, &path);
        }
    }
    for (index, (_, key)) in SCHEMAS.into_iter().enumerate() {
        let schema = schema(index);
        let api = key.api();
        let kind = schema["type"].as_str().unwrap();
        let suffix = if kind == "request" { "Request" } else { "Response" };
        assert_eq!(schema["name"], format!("{}{suffix}", api.name));
        assert_eq!(schema["apiKey"], key.code());
        assert_eq!(schema["validVersions"], api.max.to_string());
        assert_eq!(schema["flexibleVersions"], format!("{}+", api.flexible_from));
        documented(&schema, api.name);
    }
}

#[test]
fn error_codes_that_are_not_known_are_unknown_errors() {
    let mut written = Writer::write(&schema(3), Source::Defaults).out;
    written[4..6].copy_from_slice(&9999_i16.to_be_bytes());
    let Ok(Response::KeyShareAcknowledge(response)) = read_response(ApiKey::KeyShareAcknowledge, &written)
    else {
        panic!("another API")
    };
    assert_eq!(response.error_code, ErrorCode::UnknownServerError);
}
