//! `sluice keys`: looks at single keys of a share group, says why they are not being delivered, and changes them.

mod target;
mod words;

use clap::{Args, Subcommand};
use client::Admin;
use protocol::messages::key_share_alter::{
    KeyShareAction, KeyShareAlterPartition, KeyShareAlterRequest, KeyShareAlterTopic, KeyShareChange,
};
use protocol::messages::key_share_describe::{
    KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeTopic, KeyShareDescribedPartition,
    Reason,
};
use records::ids::Offset;
use serde_json::{Value, json};

use super::Exit;
use super::remote::{Reach, Said, Trouble};
use target::{Found, Which};

/// Look at single keys of a share group, ask why they are not being delivered, and change them.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show where the group's partitions stand, and which keys are worst off.
    List(List),
    /// Show all that is known of one key.
    Show(Which),
    /// Say why a key, or the record at an offset, is not being delivered.
    Why(Which),
    /// Stop a key: nothing of it goes out until it is resumed. What members hold of it stays with them; a record without
    /// a key, which stands for itself alone, can be parked only while nobody holds it.
    Park(Which),
    /// Let a parked or waiting key go on at once, or end that a key follows a dead-lettered record.
    Resume(Which),
    /// Archive a key's lowest record and go on behind it.
    Skip(Which),
    /// Archive a key's records, as far as they were read ahead and nobody holds them.
    Drop(DropKey),
    /// Deliver those of a key's records again that are done. Name the key itself: an offset that is done tells none.
    Replay(Replay),
    /// Deliver a key's dead-lettered records again, before anything later of it. Records without a key are not kept for it.
    Redrive(Which),
}

#[derive(Debug, Args)]
struct List {
    /// The share group.
    group: String,
    /// Only this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only this partition of it.
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
    /// How many keys to show by age, by backlog and by deliveries.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(i32).range(0..=100))]
    worst: i32,
}

#[derive(Debug, Args)]
struct DropKey {
    #[command(flatten)]
    which: Which,
    /// Only records up to and with this offset.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to: Option<i64>,
}

#[derive(Debug, Args)]
struct Replay {
    #[command(flatten)]
    which: Which,
    /// First offset to deliver again.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    from: i64,
    /// Last offset to deliver again.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to: i64,
}

impl Keys {
    /// Does what the command line says.
    #[must_use]
    pub fn run(self) -> Exit {
        let Self { reach, command } = self;
        reach.run("keys", |admin| command.run(admin))
    }
}

impl Command {
    async fn run(self, mut admin: Admin) -> Result<Said, Trouble> {
        match self {
            Self::List(list) => list.run(&mut admin).await,
            Self::Show(which) => {
                let found = which.look(&mut admin).await?;
                Ok(which.said(&found, words::shown(&which, &found), words::shown_json(&which, &found)))
            }
            Self::Why(which) => {
                let found = which.look(&mut admin).await?;
                Ok(which.said(&found, words::why(&which, &found), words::why_json(&which, &found)))
            }
            Self::Park(which) => alter(&mut admin, &which, change(KeyShareAction::Park)).await,
            Self::Resume(which) => alter(&mut admin, &which, change(KeyShareAction::Resume)).await,
            Self::Skip(which) => alter(&mut admin, &which, change(KeyShareAction::Skip)).await,
            Self::Redrive(which) => alter(&mut admin, &which, change(KeyShareAction::Redrive)).await,
            Self::Drop(DropKey { which, to }) => {
                let to_offset = to.map_or(Offset(-1), Offset);
                alter(&mut admin, &which, KeyShareChange { to_offset, ..change(KeyShareAction::Drop) }).await
            }
            Self::Replay(Replay { which, from, to }) => {
                let (from_offset, to_offset) = (Offset(from), Offset(to));
                let change = KeyShareChange { from_offset, to_offset, ..change(KeyShareAction::Replay) };
                alter(&mut admin, &which, change).await
            }
        }
    }
}

impl List {
    async fn run(self, admin: &mut Admin) -> Result<Said, Trouble> {
        let topics = match &self.topic {
            None => None,
            Some(name) => {
                let indexes = match self.partition {
                    Some(index) => vec![index],
                    None => admin.topic(name).await?.partitions,
                };
                let partition =
                    |index| KeyShareDescribePartition { index, ..KeyShareDescribePartition::default() };
                Some(vec![KeyShareDescribeTopic {
                    topic_name: name.as_str().into(),
                    partitions: indexes.into_iter().map(partition).collect(),
                }])
            }
        };
        let request =
            KeyShareDescribeRequest { group_id: self.group.as_str().into(), topics, worst_max: self.worst };
        let described = admin.describe_keys(request).await?;
        let partitions: Vec<(String, KeyShareDescribedPartition)> = described
            .topics
            .into_iter()
            .flat_map(|topic| {
                let name = topic.topic_name.to_string();
                topic.partitions.into_iter().map(move |part| (name.clone(), part))
            })
            .collect();
        let complaint = was_never_read(partitions.iter().map(|(_, part)| part))
            .then(|| words::never_read(&self.group, self.topic.as_deref()));
        Ok(Said {
            text: if complaint.is_some() { String::new() } else { words::listed(&partitions) },
            json: words::listed_json(&partitions),
            failed: partitions.iter().any(|(_, part)| part.error_code.is_error()),
            complaint,
        })
    }
}

impl Which {
    /// What is told of what was found, and that nothing was.
    fn said(&self, found: &[Found], text: String, json: Value) -> Said {
        let complaint = was_never_read(found.iter().map(|found| &found.partition))
            .then(|| words::never_read(&self.group, Some(&self.topic)));
        let text = if complaint.is_some() { String::new() } else { text };
        Said { text, json, failed: false, complaint }
    }
}

/// Whether the group has read none of these: most often its name is a wrong one.
fn was_never_read<'a>(mut partitions: impl Iterator<Item = &'a KeyShareDescribedPartition>) -> bool {
    partitions.all(|partition| partition.start_offset < Offset(0) && !partition.error_code.is_error())
}

fn change(action: KeyShareAction) -> KeyShareChange {
    KeyShareChange { action: action.code(), ..KeyShareChange::default() }
}

/// Makes one change to the key that is meant, in the one partition that knows it.
async fn alter(admin: &mut Admin, which: &Which, change: KeyShareChange) -> Result<Said, Trouble> {
    let Found { partition, answer } = which.the_only(admin).await?;
    let (offset, key_hash) = which.wire();
    let action = KeyShareAction::from_code(change.action);
    // A key that is only mistyped is parked as well.
    let nothing_open = match Reason::from_code(answer.reason) {
        Some(Reason::UnknownKey) => true,
        // Behind a bound; without one it rests on the disk.
        Some(Reason::NotScanned) => answer.detail.is_some(),
        _ => false,
    };
    let ahead = action == Some(KeyShareAction::Park) && which.offset.is_none() && nothing_open;
    let partitions = vec![KeyShareAlterPartition {
        index: partition.index,
        changes: vec![KeyShareChange { offset, key_hash, ..change }],
    }];
    let request = KeyShareAlterRequest {
        group_id: which.group.as_str().into(),
        topics: vec![KeyShareAlterTopic { topic_name: which.topic.as_str().into(), partitions }],
    };
    let altered = admin.alter_keys(request).await?;
    let Some(told) = altered.topics.into_iter().flat_map(|topic| topic.partitions).next() else {
        return Err(Trouble::refused("the broker's answer is empty: try again"));
    };
    let result = told.results.into_iter().next();
    let (code, message) = match &result {
        Some(result) if !told.error_code.is_error() => (result.error_code, result.error_message.clone()),
        _ => (told.error_code, told.error_message),
    };
    let place = format!("{}-{}", which.topic, partition.index);
    match result.filter(|_| !code.is_error()) {
        Some(result) => {
            let key = if result.has_key == 0 {
                "a record without a key".to_owned()
            } else {
                words::hash(result.key_hash)
            };
            let text = words::altered(action, result.records, ahead);
            // How many records of a key are stopped or go on is not what the broker counts.
            let counts = !matches!(action, Some(KeyShareAction::Park | KeyShareAction::Resume));
            let json = json!({
                "topic": which.topic,
                "partition": partition.index,
                "keyHash": (result.has_key != 0).then(|| words::hash(result.key_hash)),
                "changed": action == Some(KeyShareAction::Replay) || result.records > 0,
                "records": counts.then_some(result.records),
                "parkedAhead": ahead && result.records > 0,
            });
            let text = format!("{place}: {key}: {text}\n");
            Ok(Said { text, json, ..Said::default() })
        }
        None => {
            let message = message.map_or_else(|| format!("{code:?}"), |message| message.to_string());
            Err(Trouble::Refused(format!("{place}: {message}")))
        }
    }
}
