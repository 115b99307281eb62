//! Which key is meant, and in which partition it is.

use clap::{ArgGroup, Args};
use client::Admin;
use protocol::messages::key_share_describe::{
    KeyShareAnswer, KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeTopic,
    KeyShareDescribedPartition, KeyShareQuestion, Reason,
};
use records::ids::{KeyHash, Offset};
use records::key_hash::key_hash;

use crate::cli::remote::Trouble;

/// Keys that the lists of an answer may name, in which the key that is meant may stand.
const LISTED_MAX: i32 = 100;

/// A key, or a record by which it is named.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["key", "key_hash", "offset"])))]
pub(super) struct Which {
    /// The share group.
    pub(super) group: String,
    /// The topic.
    #[arg(long)]
    pub(super) topic: String,
    /// The partition; all partitions are looked at unless it is given.
    #[arg(long)]
    pub(super) partition: Option<i32>,
    /// The key, as text.
    #[arg(long, value_name = "TEXT")]
    pub(super) key: Option<String>,
    /// The key's hash, as `sluice keys list` shows it.
    #[arg(long, value_name = "HEX", value_parser = hash_of)]
    pub(super) key_hash: Option<u64>,
    /// The offset of a record that is not done: it, or its key, is meant. Of a redrive, a dead-lettered one. Needs
    /// --partition where the topic has several.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub(super) offset: Option<i64>,
}

/// What one partition says of the key.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) partition: KeyShareDescribedPartition,
    pub(super) answer: KeyShareAnswer,
}

impl Which {
    /// The key as requests name it: an offset (−1 where it is none) and a hash.
    pub(super) fn wire(&self) -> (Offset, KeyHash) {
        match self.offset {
            Some(offset) => (Offset(offset), KeyHash::default()),
            None => (Offset(-1), self.hash().unwrap_or_default()),
        }
    }

    /// The key's hash, where the command line says it.
    pub(super) fn hash(&self) -> Option<KeyHash> {
        let of_key = self.key.as_ref().map(|key| key_hash(key.as_bytes()));
        of_key.or(self.key_hash.map(KeyHash))
    }

    /// Asks the partition that is named, or all.
    pub(super) async fn look(&self, admin: &mut Admin) -> Result<Vec<Found>, Trouble> {
        let known = admin.topic(&self.topic).await?.partitions;
        let indexes = match self.partition {
            Some(index) if known.contains(&index) => vec![index],
            Some(index) => {
                return Err(Trouble::refused(format!("{} has no partition {index}", self.topic)));
            }
            None if self.offset.is_some() && known.len() > 1 => {
                return Err(Trouble::refused(format!(
                    "{} has {} partitions: say with --partition in which one the offset is",
                    self.topic,
                    known.len()
                )));
            }
            None => known,
        };
        let (offset, key_hash) = self.wire();
        let question = KeyShareQuestion { offset, key_hash };
        let partition = |index| KeyShareDescribePartition { index, questions: vec![question.clone()] };
        let request = KeyShareDescribeRequest {
            group_id: self.group.as_str().into(),
            topics: Some(vec![KeyShareDescribeTopic {
                topic_name: self.topic.as_str().into(),
                partitions: indexes.into_iter().map(partition).collect(),
            }]),
            worst_max: LISTED_MAX,
        };
        let described = admin.describe_keys(request).await?;
        let mut found = Vec::new();
        for mut partition in described.topics.into_iter().flat_map(|topic| topic.partitions) {
            if partition.error_code.is_error() {
                let message = partition.error_message.unwrap_or_default();
                return Err(Trouble::refused(format!("{}-{}: {message}", self.topic, partition.index)));
            }
            let answer = if partition.answers.is_empty() {
                KeyShareAnswer::default()
            } else {
                partition.answers.remove(0)
            };
            found.push(Found { partition, answer });
        }
        Ok(found)
    }

    /// The one partition that knows the key, which is where it is changed.
    pub(super) async fn the_only(&self, admin: &mut Admin) -> Result<Found, Trouble> {
        let mut found = self.look(admin).await?;
        if found.len() > 1 {
            found.retain(|found| is_known(found, self.hash()));
        }
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only),
            (Some(_), others) => Err(Trouble::refused(format!(
                "{} partitions know this key: say with --partition which one is meant",
                others + 1
            ))),
            (None, _) => Err(Trouble::refused(
                "no partition knows an open record of this key: say with --partition which one is meant",
            )),
        }
    }
}

/// Whether a partition has anything of the key: a record that is not done, or that it is stopped there.
fn is_known(found: &Found, hash: Option<KeyHash>) -> bool {
    let open = !matches!(
        Reason::from_code(found.answer.reason),
        None | Some(Reason::Done | Reason::UnknownKey | Reason::NotScanned)
    );
    let stopped = found.partition.stopped.iter().any(|key| key.has_key != 0 && Some(key.key_hash) == hash);
    open || stopped
}

fn hash_of(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parsed = plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    parsed.ok_or_else(|| "expected up to 16 hexadecimal digits, as sluice keys list shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_hexadecimal() {
        assert_eq!(hash_of("e6c632b61e964e1f"), Ok(0xe6c6_32b6_1e96_4e1f));
        assert_eq!(hash_of("0xFF"), Ok(255));
        for bad in ["", "0x", "g", "-1", "10000000000000000"] {
            assert!(hash_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_known_where_it_is_open_or_stopped() {
        use protocol::messages::key_share_describe::KeyShareStoppedKey;
        let found = |reason: Reason, stopped| Found {
            partition: KeyShareDescribedPartition { stopped, ..KeyShareDescribedPartition::default() },
            answer: KeyShareAnswer { reason: reason.code(), ..KeyShareAnswer::default() },
        };
        let hash = Some(KeyHash(7));
        assert!(is_known(&found(Reason::Held, vec![]), hash));
        assert!(!is_known(&found(Reason::UnknownKey, vec![]), hash));
        let parked = |key| KeyShareStoppedKey { has_key: 1, key_hash: KeyHash(key), ..Default::default() };
        assert!(is_known(&found(Reason::UnknownKey, vec![parked(7)]), hash));
        assert!(!is_known(&found(Reason::UnknownKey, vec![parked(8)]), hash));
    }
}
