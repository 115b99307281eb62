//! Bodies made from shapes: random ones, and ones that swell when decoded.

use crate::api::ApiKey;
use crate::request::Request;
use crate::shape::{Field, Kind, blob, fixed, structs, text};

const PRODUCE: &[Field] = &[
    text().nullable(),
    fixed(2),
    fixed(4),
    structs::<()>(&[text().until(12), fixed(16).since(13), structs::<()>(&[fixed(4), blob().nullable()])]),
];

const FETCH: &[Field] = &[
    fixed(4).until(14),
    fixed(13),
    fixed(8).since(7),
    structs::<()>(&[
        text().until(12),
        fixed(16).since(13),
        structs::<()>(&[
            fixed(4),
            fixed(4).since(9),
            fixed(8),
            fixed(4).since(12),
            fixed(8).since(5),
            fixed(4),
        ]),
    ]),
    structs::<()>(&[text().until(12), fixed(16).since(13), INT32S]).since(7),
    text().since(11),
];

const SHARE_FETCH: &[Field] = &[
    text().nullable(),
    text().nullable(),
    fixed(24),
    fixed(2).since(2),
    structs::<()>(&[fixed(16), structs::<()>(&[fixed(4), structs::<()>(&[fixed(16), blob()])])]),
    structs::<()>(&[fixed(16), INT32S]),
];

const SHARE_ACKNOWLEDGE: &[Field] = &[
    text().nullable(),
    text().nullable(),
    fixed(4),
    fixed(1).since(2),
    structs::<()>(&[fixed(16), structs::<()>(&[fixed(4), structs::<()>(&[fixed(16), blob()])])]),
];

const ACKNOWLEDGEMENTS: Field = structs::<()>(&[fixed(24), fixed(5), text().nullable()]);

const KEY_SHARE_FETCH: &[Field] = &[
    text(),
    text().nullable(),
    fixed(32),
    structs::<()>(&[fixed(16), structs::<()>(&[fixed(4), structs::<()>(&[fixed(16)]), ACKNOWLEDGEMENTS])]),
    structs::<()>(&[fixed(16), INT32S]),
];

const KEY_SHARE_ACKNOWLEDGE: &[Field] = &[
    text(),
    text().nullable(),
    fixed(4),
    structs::<()>(&[fixed(16), structs::<()>(&[fixed(4), ACKNOWLEDGEMENTS])]),
];

const KEY_SHARE_DESCRIBE: &[Field] = &[
    text(),
    structs::<()>(&[text(), structs::<()>(&[fixed(4), structs::<()>(&[fixed(16)])])]).nullable(),
    fixed(4),
];

const KEY_SHARE_ALTER: &[Field] =
    &[text(), structs::<()>(&[text(), structs::<()>(&[fixed(4), structs::<()>(&[fixed(41)])])])];

const KEY_SHARE_COMMIT: &[Field] =
    &[text(), structs::<()>(&[fixed(16), structs::<()>(&[fixed(4), structs::<()>(&[fixed(16)])])])];

const INT32S: Field = crate::shape::primitives::<i32>(&[fixed(4)]);

/// The shape of every API's request.
pub(super) fn shape(key: ApiKey) -> &'static [Field] {
    Request::shape(key).unwrap_or(match key {
        ApiKey::Produce => PRODUCE,
        ApiKey::Fetch => FETCH,
        ApiKey::ShareFetch => SHARE_FETCH,
        ApiKey::ShareAcknowledge => SHARE_ACKNOWLEDGE,
        ApiKey::KeyShareFetch => KEY_SHARE_FETCH,
        ApiKey::KeyShareAcknowledge => KEY_SHARE_ACKNOWLEDGE,
        ApiKey::KeyShareDescribe => KEY_SHARE_DESCRIBE,
        ApiKey::KeyShareAlter => KEY_SHARE_ALTER,
        ApiKey::KeyShareCommit => KEY_SHARE_COMMIT,
        _ => &[],
    })
}

/// A valid body of random content.
pub(super) fn random(key: ApiKey, version: i16, seed: u64) -> Vec<u8> {
    let mut sample = Sample::new(key, version, Style::Random(seed));
    sample.fields(shape(key), 0, true);
    sample.out
}

/// Longest body that [`swollen`] makes.
const SWOLLEN_BYTES_MAX: usize = 100_000;

/// A valid body of the shortest elements: `counts` by depth (the last for all deeper ones), and `tags` unknown
/// tags in every struct. `None` if it gets too long.
pub(super) fn swollen(key: ApiKey, version: i16, counts: &'static [usize], tags: usize) -> Option<Vec<u8>> {
    let mut sample = Sample::new(key, version, Style::Swollen { counts, tags });
    sample.fields(shape(key), 0, true);
    (sample.out.len() <= SWOLLEN_BYTES_MAX).then_some(sample.out)
}

enum Style {
    Random(u64),
    Swollen { counts: &'static [usize], tags: usize },
}

struct Sample {
    version: i16,
    flexible: bool,
    style: Style,
    out: Vec<u8>,
}

impl Sample {
    fn new(key: ApiKey, version: i16, style: Style) -> Self {
        Self { version, flexible: key.api().is_flexible(version), style, out: Vec::new() }
    }

    /// A number below `bound`, by SplitMix64; 0 where nothing is random.
    fn pick(&mut self, bound: u64) -> u64 {
        let Style::Random(state) = &mut self.style else { return 0 };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = *state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    fn fields(&mut self, fields: &'static [Field], depth: usize, tagged: bool) {
        let version = self.version;
        for field in fields.iter().filter(|field| field.is_in(version)) {
            self.field(field, depth);
        }
        if tagged && self.flexible {
            self.tags();
        }
    }

    fn field(&mut self, field: &'static Field, depth: usize) {
        let nullable = field.nullable_since <= self.version;
        let null = nullable && self.pick(4) == 3;
        match field.kind {
            Kind::Fixed(bytes) => {
                for _ in 0..bytes {
                    let byte = self.pick(256) as u8;
                    self.out.push(byte);
                }
            }
            Kind::Boolean => {
                let byte = self.pick(2) as u8;
                self.out.push(byte);
            }
            Kind::Text => {
                let length = (!null).then(|| self.pick(9) as usize);
                self.length(length, true);
                for _ in 0..length.unwrap_or(0) {
                    let letter = b'a' + self.pick(26) as u8;
                    self.out.push(letter);
                }
            }
            Kind::Blob => {
                let length = (!null).then(|| self.pick(70) as usize);
                self.length(length, false);
                for _ in 0..length.unwrap_or(0) {
                    let byte = self.pick(256) as u8;
                    self.out.push(byte);
                }
            }
            Kind::Array { element, tagged, .. } => {
                let count = match &self.style {
                    Style::Random(_) => (!null).then(|| self.pick(4) as usize),
                    Style::Swollen { counts, .. } => Some(counts[depth.min(counts.len() - 1)]),
                };
                self.length(count, false);
                for _ in 0..count.unwrap_or(0) {
                    if self.out.len() > SWOLLEN_BYTES_MAX {
                        return;
                    }
                    self.fields(element, depth + 1, tagged);
                }
            }
            Kind::Optional(fields) => {
                if self.pick(2) == 0 {
                    self.out.push(1);
                    self.fields(fields, depth, true);
                } else {
                    self.out.push(0xff);
                }
            }
        }
    }

    fn tags(&mut self) {
        let count = match &self.style {
            Style::Random(_) => self.pick(8).saturating_sub(5) as usize,
            Style::Swollen { tags, .. } => *tags,
        };
        self.varint(count as u32);
        for tag in 0..count {
            // Above every tag that a version knows.
            self.varint(50 + tag as u32);
            let length = self.pick(5);
            self.varint(length as u32);
            for _ in 0..length {
                self.out.push(0xaa);
            }
        }
    }

    fn length(&mut self, length: Option<usize>, short: bool) {
        if self.flexible {
            self.varint(length.map_or(0, |length| length as u32 + 1));
        } else {
            let length = length.map_or(-1, |length| length as i32);
            if short {
                self.out.extend((length as i16).to_be_bytes());
            } else {
                self.out.extend(length.to_be_bytes());
            }
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}
