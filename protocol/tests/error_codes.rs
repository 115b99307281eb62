//! Error codes against Kafka's, as far as a second library knows them.

use kafka_protocol::ResponseError;
use protocol::ErrorCode;

#[test]
fn every_code_is_found_by_its_number() {
    for &code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_code(code.code()), Some(code));
        assert_eq!(i16::from(code), code.code());
    }
    let numbers: Vec<i16> = ErrorCode::ALL.iter().map(|code| code.code()).collect();
    assert_eq!(numbers, (-1..=136).collect::<Vec<i16>>());
    assert_eq!(ErrorCode::from_code(137), None);
    assert_eq!(ErrorCode::from_code(-2), None);
    assert_eq!(ErrorCode::default(), ErrorCode::None);
    assert!(!ErrorCode::None.is_error() && ErrorCode::UnknownServerError.is_error());
}

#[test]
fn names_and_retriability_are_the_second_librarys() {
    let mut compared = 0;
    let mut differing = Vec::new();
    for &code in ErrorCode::ALL {
        let Some(other) = ResponseError::try_from_code(code.code()) else {
            assert_eq!(code, ErrorCode::None);
            continue;
        };
        if matches!(other, ResponseError::Unknown(_)) {
            continue;
        }
        assert_eq!(code.name().replace('_', "").to_lowercase(), other.to_string().to_lowercase());
        assert_eq!(format!("{code:?}"), other.to_string());
        if code.is_retriable() != other.is_retriable() {
            differing.push(code);
        }
        compared += 1;
    }
    assert!(compared > 100, "only {compared} codes compared");
    assert_eq!(differing, RETRIABLE_SINCE);
}

/// What the library, which follows an older Kafka, does not call retriable, and Kafka 4.4 does.
const RETRIABLE_SINCE: &[ErrorCode] = &[ErrorCode::ConcurrentTransactions];
