//! Zigzag variable-length integers as Kafka's record format has them (`ByteUtils.readVarint`, `writeVarlong`).

use crate::RecordError;

/// The most bytes that a varint takes.
pub const VARINT_BYTES_MAX: usize = 5;
/// The most bytes that a varlong takes.
pub const VARLONG_BYTES_MAX: usize = 10;

const CUT_SHORT: RecordError = RecordError::Corrupt("a variable-length integer is cut short");
const TOO_WIDE: RecordError = RecordError::Corrupt("a variable-length integer is too wide");

/// Takes a zigzag varint off the front of `bytes`; fails when it is cut short or does not fit 32 bits.
#[inline]
pub fn read_i32(bytes: &mut &[u8]) -> Result<i32, RecordError> {
    if let [first, rest @ ..] = *bytes
        && *first < 0x80
    {
        *bytes = rest;
        return Ok(unzigzag(u64::from(*first)) as i32);
    }
    let raw = read_raw(bytes, VARINT_BYTES_MAX)?;
    if raw > u64::from(u32::MAX) {
        return Err(TOO_WIDE);
    }
    Ok(unzigzag(raw) as i32)
}

/// Takes a zigzag varlong off the front of `bytes`; fails when it is cut short or does not fit 64 bits.
#[inline]
pub fn read_i64(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    read_raw(bytes, VARLONG_BYTES_MAX).map(unzigzag)
}

/// Appends `value` as a zigzag varint.
pub fn write_i32(out: &mut Vec<u8>, value: i32) {
    write_i64(out, i64::from(value));
}

/// Appends `value` as a zigzag varlong.
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that `value` takes as a varint or varlong (for one value both are the same).
#[must_use]
pub fn len(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn read_raw(bytes: &mut &[u8], bytes_max: usize) -> Result<u64, RecordError> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(bytes_max).enumerate() {
        let part = u64::from(byte & 0x7f);
        // The tenth byte of a varlong has room for one bit.
        if index == VARLONG_BYTES_MAX - 1 && part > 1 {
            return Err(TOO_WIDE);
        }
        value |= part << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(if bytes.len() < bytes_max { CUT_SHORT } else { TOO_WIDE })
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        write_i64(&mut out, value);
        out
    }

    #[test]
    fn known_encodings() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            assert_eq!(written(value), bytes, "{value}");
            assert_eq!(read_i32(&mut &bytes[..]), Ok(value as i32));
        }
    }

    #[test]
    fn refuses_what_is_cut_short_or_too_wide() {
        assert_eq!(read_i32(&mut &[][..]), Err(CUT_SHORT));
        assert_eq!(read_i32(&mut &[0x80, 0x80][..]), Err(CUT_SHORT));
        assert_eq!(read_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), Err(TOO_WIDE));
        assert_eq!(read_i32(&mut &[0x80; 5][..]), Err(TOO_WIDE));
        assert_eq!(read_i64(&mut &[0x80; 9][..]), Err(CUT_SHORT));
        assert_eq!(read_i64(&mut &[0xff; 10][..]), Err(TOO_WIDE));
        let mut widest = [0xff; 10];
        widest[9] = 0x02;
        assert_eq!(read_i64(&mut &widest[..]), Err(TOO_WIDE));
    }

    proptest! {
        #[test]
        fn reads_what_it_wrote(value: i64, small: i32, tail: Vec<u8>) {
            let mut bytes = written(value);
            prop_assert_eq!(bytes.len(), len(value));
            bytes.extend_from_slice(&tail);
            let mut rest = &bytes[..];
            prop_assert_eq!(read_i64(&mut rest), Ok(value));
            prop_assert_eq!(rest, &tail[..]);
            let mut bytes = Vec::new();
            write_i32(&mut bytes, small);
            prop_assert_eq!(bytes.len(), len(i64::from(small)));
            prop_assert_eq!(read_i32(&mut &bytes[..]), Ok(small));
        }
    }
}
