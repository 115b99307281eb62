//! The format of an event log's file: a header, then frames, each under a CRC that goes on from that of the one before.

use std::io;

use bytes::{Buf, BufMut, Bytes};

use super::Replay;
use super::pages::{self, Table};
use crate::error::StorageError;
use crate::options::EVENT_FRAME_BYTES_MAX;

const MAGIC: u32 = 0x534c_4556;
/// Of a file without pages, and of one with a table of pages.
const PLAIN: u32 = 1;
const WITH_PAGES: u32 = 2;
pub(super) const HEADER_BYTES: usize = 8;
/// Length and CRC, then what the CRC covers: kind, epoch, body.
const FRAME_OVERHEAD: usize = 13;
const COVERED_OVERHEAD: usize = 5;
pub(super) const EVENT: u8 = 0;
pub(super) const SNAPSHOT: u8 = 1;
/// An event that counts only together with the one behind it: both were written by one append.
pub(super) const EVENT_OF_MORE: u8 = 2;
/// The table of the pages that the snapshot behind it names.
pub(super) const PAGES: u8 = 3;

/// How far behind a damaged frame the next one is looked for.
const SEARCH_BYTES_MAX: usize = 1024 * 1024;

/// One file's content, as far as it checks.
pub(super) struct Content {
    pub(super) replay: Replay,
    pub(super) table: Table,
    pub(super) valid_len: u64,
    pub(super) chain: u32,
    pub(super) since_snapshot: u64,
}

pub(super) fn put_header(buffer: &mut Vec<u8>, with_pages: bool) {
    buffer.put_u32(MAGIC);
    buffer.put_u32(if with_pages { WITH_PAGES } else { PLAIN });
}

pub(super) fn put_frame(
    buffer: &mut Vec<u8>,
    kind: u8,
    epoch: i32,
    body: &[u8],
    chain: u32,
) -> Result<u32, StorageError> {
    if body.len() > EVENT_FRAME_BYTES_MAX {
        let source = io::Error::from(io::ErrorKind::FileTooLarge);
        return Err(StorageError::Io {
            action: "write an oversized frame to",
            path: "an event log".into(),
            source,
        });
    }
    let start = buffer.len();
    buffer.put_u32((COVERED_OVERHEAD + body.len()) as u32);
    buffer.put_u32(0);
    buffer.put_u8(kind);
    buffer.put_i32(epoch);
    buffer.extend_from_slice(body);
    let crc = crc32c::crc32c_append(chain, &buffer[start + 8..]);
    buffer[start + 4..start + 8].copy_from_slice(&crc.to_be_bytes());
    Ok(crc)
}

/// Reads a file up to its first frame that does not check; `None` when it lacks the snapshot that it must begin with.
pub(super) fn read(bytes: &Bytes, path: &str, generation: u64) -> Result<Option<Content>, StorageError> {
    let mut content =
        Content { replay: Replay::default(), table: Table::new(), valid_len: 0, chain: 0, since_snapshot: 0 };
    let mut rest = bytes.clone();
    if rest.len() < HEADER_BYTES || rest.get_u32() != MAGIC {
        return Ok((generation == 0).then_some(content));
    }
    let version = rest.get_u32();
    if version == 0 {
        return Ok((generation == 0).then_some(content));
    }
    if version > WITH_PAGES {
        let reason = format!("format {version} is newer than {WITH_PAGES}");
        return Err(StorageError::Damaged { path: path.to_owned(), reason });
    }
    content.valid_len = HEADER_BYTES as u64;
    let mut chain = content.chain;
    let (mut append, mut append_len) = (Vec::new(), 0);
    while let Some((kind, epoch, body, crc)) = next_frame(&mut rest, chain) {
        let is_first = content.valid_len + append_len == HEADER_BYTES as u64;
        let begins = generation > 0 && content.replay.snapshot.is_none();
        let fits = match kind {
            PAGES => begins && is_first,
            SNAPSHOT => begins,
            _ => !begins,
        };
        if !fits {
            break;
        }
        chain = crc;
        append_len += (FRAME_OVERHEAD + body.len()) as u64;
        match kind {
            PAGES => {
                let Some(table) = pages::parse(body, generation) else { break };
                content.table = table;
                continue;
            }
            SNAPSHOT => content.replay.snapshot = Some((epoch, body)),
            _ => {
                append.push((epoch, body));
                if kind == EVENT_OF_MORE {
                    continue;
                }
                content.since_snapshot += append_len;
                content.replay.events.append(&mut append);
            }
        }
        content.valid_len += std::mem::take(&mut append_len);
        content.chain = chain;
    }
    let whole = generation == 0 || content.replay.snapshot.is_some();
    Ok(whole.then_some(content))
}

/// Whether frames check behind the one at `at`, which does not, or a first one behind a header that is none: they were
/// written after it, so that it is damaged, or was lost with a power cut that they survived.
pub(super) fn goes_on_behind(bytes: &Bytes, at: u64, chain: u32) -> bool {
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let Some(damaged) = bytes.get(start..) else { return false };
    if at == 0 {
        // Of a header that was not written whole, what is missing reads as zeros.
        let magic = MAGIC.to_be_bytes();
        let is_torn = damaged.iter().zip(magic).all(|(byte, right)| *byte == right || *byte == 0);
        return !is_torn
            && bytes.len() > HEADER_BYTES
            && next_frame(&mut bytes.slice(HEADER_BYTES..), 0).is_some();
    }
    if damaged.len() < FRAME_OVERHEAD {
        return false;
    }
    // The frames behind go on from its CRC: from what is written of it, or, where just that is damaged, from what it is.
    let stored = u32::from_be_bytes([damaged[4], damaged[5], damaged[6], damaged[7]]);
    let len = u32::from_be_bytes([damaged[0], damaged[1], damaged[2], damaged[3]]) as usize;
    let real = damaged.get(8..8 + len).map(|covered| crc32c::crc32c_append(chain, covered));
    let until = damaged.len().min(SEARCH_BYTES_MAX);
    (FRAME_OVERHEAD..until).any(|next| {
        // Of most places the kind alone says that there is none.
        damaged.get(next + 8).is_some_and(|kind| *kind <= PAGES)
            && [Some(stored), real]
                .into_iter()
                .flatten()
                .any(|chain| next_frame(&mut bytes.slice(start + next..), chain).is_some())
    })
}

fn next_frame(rest: &mut Bytes, chain: u32) -> Option<(u8, i32, Bytes, u32)> {
    if rest.len() < FRAME_OVERHEAD {
        return None;
    }
    let len = rest.get_u32() as usize;
    let crc = rest.get_u32();
    if len < COVERED_OVERHEAD || len > rest.len() {
        return None;
    }
    let mut covered = rest.split_to(len);
    if crc32c::crc32c_append(chain, &covered) != crc {
        return None;
    }
    let kind = covered.get_u8();
    let epoch = covered.get_i32();
    Some((kind, epoch, covered, crc))
}
