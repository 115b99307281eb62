//! Frames and headers.

use bytes::Bytes;
use proptest::prelude::*;
use protocol::frame::{Deframer, FrameError, foreign_protocol};
use protocol::{DecodeError, Preamble, RequestHeader};

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..80), 0..8),
        cuts in proptest::collection::vec(1..40_usize, 1..20),
    ) {
        let mut stream = Vec::new();
        for frame in &frames {
            stream.extend((frame.len() as i32).to_be_bytes());
            stream.extend(frame);
        }
        let mut deframer = Deframer::new(80);
        let (mut out, mut left) = (Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = left.split_at((*cut).min(left.len()));
            deframer.push(now);
            while let Some(frame) = deframer.next_frame().unwrap() {
                out.push(frame.to_vec());
            }
            left = later;
            if left.is_empty() {
                break;
            }
        }
        prop_assert_eq!(out, frames);
    }

    #[test]
    fn random_headers_never_panic(frame in proptest::collection::vec(any::<u8>(), 0..60)) {
        let frame = Bytes::from(frame);
        let peeked = Preamble::peek(&frame);
        prop_assert_eq!(peeked.is_ok(), frame.len() >= 8);
        let _ = RequestHeader::decode(&frame);
    }
}

#[test]
fn a_wrong_prefix_stays_wrong() {
    let mut deframer = Deframer::new(10);
    deframer.push(&[0, 0, 0, 11]);
    for _ in 0..2 {
        assert_eq!(deframer.next_frame(), Err(FrameError::TooLarge { length: 11, max: 10 }));
    }
}

#[test]
fn b03_other_protocols_are_named() {
    assert_eq!(foreign_protocol([0x16, 0x03, 0x01, 0x00]), Some("TLS"));
    assert_eq!(foreign_protocol(*b"GET "), Some("HTTP"));
    assert_eq!(foreign_protocol([0, 0, 0, 20]), None);
}

#[test]
fn headers_of_unknown_apis_and_versions_are_told_apart() {
    let header = |key: i16, version: i16| {
        let frame = [&key.to_be_bytes()[..], &version.to_be_bytes(), &[0; 40]].concat();
        RequestHeader::decode(&Bytes::from(frame))
    };
    assert_eq!(header(4, 0).unwrap_err(), DecodeError::UnknownApi { api_key: 4 });
    assert_eq!(header(3, 14).unwrap_err(), DecodeError::UnsupportedVersion { name: "Metadata", version: 14 });
    assert!(header(3, 13).is_ok());
}

#[test]
fn the_body_is_what_follows_the_header() {
    let frame = [&[0, 3, 0, 1, 0, 0, 0, 7, 0, 2, b'm', b'e'][..], b"body"].concat();
    let (header, body) = RequestHeader::decode(&Bytes::from(frame)).unwrap();
    assert_eq!(header.client_id.as_deref(), Some("me"));
    assert_eq!(&body[..], b"body");
}
