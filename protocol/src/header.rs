//! The request header (KIP-482 forms 1 and 2), and the eight bytes that suffice to route a request.

use bytes::Bytes;
use kafka_wire_core::StrBytes;

use crate::api::ApiKey;
use crate::decode::{DecodeError, Reader};
use crate::encode::Writer;
use crate::segments::SegmentLen;

/// Bytes that [`Preamble::peek`] needs.
pub const PREAMBLE_BYTES: usize = 8;

/// What every request starts with, whatever its version: enough for the version check and for memory
/// reservation, before the rest is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The API's key as sent: possibly of no API.
    pub api_key: i16,
    /// The version as sent: possibly not served.
    pub api_version: i16,
    /// What the answer has to repeat.
    pub correlation_id: i32,
}

impl Preamble {
    /// Reads the first eight bytes of a frame (its length prefix not counted).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if there are fewer.
    pub fn peek(frame: &[u8]) -> Result<Self, DecodeError> {
        let Some(&[k0, k1, v0, v1, c0, c1, c2, c3]) = frame.first_chunk::<PREAMBLE_BYTES>() else {
            return Err(DecodeError::Truncated { at: 0, needed: PREAMBLE_BYTES, left: frame.len() });
        };
        Ok(Self {
            api_key: i16::from_be_bytes([k0, k1]),
            api_version: i16::from_be_bytes([v0, v1]),
            correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
        })
    }
}

/// A whole request header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API's key on the wire.
    pub api_key: i16,
    /// The request's version.
    pub api_version: i16,
    /// What the answer has to repeat.
    pub correlation_id: i32,
    /// Who asks, in the client's own words; null is allowed in every version.
    pub client_id: Option<StrBytes>,
}

impl RequestHeader {
    /// Takes the header off a frame (its length prefix not counted) and returns the body. Tagged fields are
    /// skipped: Kafka has none here.
    ///
    /// # Errors
    /// [`DecodeError`] for an API or version that the table does not have, and for malformed bytes.
    pub fn decode(frame: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let preamble = Preamble::peek(frame)?;
        let Preamble { api_key, api_version, correlation_id } = preamble;
        let api = ApiKey::from_code(api_key).ok_or(DecodeError::UnknownApi { api_key })?.api();
        if !api.serves(api_version) {
            return Err(DecodeError::UnsupportedVersion { name: api.name, version: api_version });
        }
        let budget = 3 * frame.len();
        let mut reader =
            Reader::new(frame.slice(PREAMBLE_BYTES..), api_version, api.is_flexible(api_version), budget);
        // The client id keeps its int16 length in flexible headers too (KIP-482).
        let client_id = reader.nullable_legacy_string()?;
        reader.skip_tags()?;
        Ok((Self { api_key, api_version, correlation_id, client_id }, reader.rest()))
    }

    pub(crate) fn write<F: SegmentLen>(&self, writer: &mut Writer<F>) {
        writer.i16(self.api_key);
        writer.i16(self.api_version);
        writer.i32(self.correlation_id);
        writer.nullable_legacy_string(self.client_id.as_ref());
        writer.no_tags();
    }
}
