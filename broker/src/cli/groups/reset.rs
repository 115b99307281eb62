//! `sluice groups reset`: where to, for which partitions, and the change itself.

use clap::{ArgGroup, Args};
use client::Admin;
use client::admin::OffsetAt;
use protocol::messages::key_share_describe::KeyShareDescribeRequest;
use serde_json::{Value, json};

use super::find_share;
use crate::cli::remote::{Said, Trouble, refusal, table};
use crate::cli::times;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).args(["to_earliest", "to_latest", "to_offset", "to_datetime"])))]
#[command(group(ArgGroup::new("what").required(true).args(["topic", "all_topics"])))]
pub(super) struct Reset {
    /// The share group.
    group: String,
    /// A topic, or one partition of it as TOPIC:PARTITION; may be given several times.
    #[arg(long, value_name = "TOPIC[:PARTITION]")]
    topic: Vec<String>,
    /// All partitions that the group has read.
    #[arg(long)]
    all_topics: bool,
    /// To the first record there is.
    #[arg(long)]
    to_earliest: bool,
    /// Behind the last record there is.
    #[arg(long)]
    to_latest: bool,
    /// To this offset, or to the nearest end of a log in which it does not lie.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// To the first record that is not older: milliseconds since 1970, or as 2026-11-30T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    to_datetime: Option<i64>,
    /// Do it, instead of showing what would be done.
    #[arg(long)]
    execute: bool,
}

/// A partition and where it goes.
type Step = (String, i32, i64);

impl Reset {
    pub(super) async fn run(self, admin: &mut Admin) -> Result<Said, Trouble> {
        find_share(admin, &self.group).await?;
        let steps = self.steps(admin).await?;
        if steps.is_empty() {
            return Err(Trouble::refused(format!("{} has read nothing so far: name a --topic", self.group)));
        }
        if !self.execute {
            let text = format!(
                "{}nothing was changed: add --execute to do it\n",
                table(0, &["TOPIC", "PARTITION", "NEW START"], &rows(&steps))
            );
            let json = steps.iter().map(|step| told(step, None)).collect();
            return Ok(Said { text, json, ..Said::default() });
        }
        let outcomes = admin.set_share_offsets(&self.group, &steps).await?;
        let mut text = String::new();
        let mut json = Vec::new();
        let mut failed = false;
        for step in &steps {
            let (topic, partition, offset) = step;
            let outcome = outcomes.iter().find(|(name, index, _)| name == topic && index == partition);
            let error = match outcome.map(|(_, _, outcome)| outcome) {
                Some(Ok(())) => None,
                Some(Err(refused)) => Some(refusal(refused)),
                None => Some("the broker does not say".to_owned()),
            };
            match &error {
                None => text.push_str(&format!("{topic}-{partition}: starts at {offset} now\n")),
                Some(error) => text.push_str(&format!("{topic}-{partition}: not changed: {error}\n")),
            }
            failed |= error.is_some();
            json.push(told(step, error.as_deref()));
        }
        Ok(Said { text, json: json.into(), failed, complaint: None })
    }

    async fn steps(&self, admin: &mut Admin) -> Result<Vec<Step>, Trouble> {
        let mut steps = Vec::new();
        for (topic, partitions) in self.partitions(admin).await? {
            let found = match self.to_offset {
                Some(offset) => within(admin, &topic, &partitions, offset).await?,
                None => admin.offsets(&topic, &partitions, self.at()).await?,
            };
            steps.extend(found.into_iter().map(|(index, offset)| (topic.clone(), index, offset)));
        }
        Ok(steps)
    }

    fn at(&self) -> OffsetAt {
        match self.to_datetime {
            Some(time) => OffsetAt::Time(time),
            None if self.to_latest => OffsetAt::Latest,
            None => OffsetAt::Earliest,
        }
    }

    /// Topics and partitions that are meant, each once.
    async fn partitions(&self, admin: &mut Admin) -> Result<Vec<(String, Vec<i32>)>, Trouble> {
        let mut wanted: Vec<(String, Vec<i32>)> = Vec::new();
        if self.all_topics {
            let request = KeyShareDescribeRequest {
                group_id: self.group.as_str().into(),
                ..KeyShareDescribeRequest::default()
            };
            for topic in admin.describe_keys(request).await?.topics {
                let partitions = topic.partitions.iter().map(|part| part.index).collect();
                wanted.push((topic.topic_name.to_string(), partitions));
            }
            return Ok(wanted);
        }
        for named in &self.topic {
            let (topic, partition) = split(named);
            let known = admin.topic(topic).await?.partitions;
            let indexes = match partition {
                None => known,
                Some(index) if known.contains(&index) => vec![index],
                Some(index) => return Err(Trouble::refused(format!("{topic} has no partition {index}"))),
            };
            match wanted.iter_mut().find(|(known, _)| known == topic) {
                Some((_, partitions)) => partitions.extend(indexes),
                None => wanted.push((topic.to_owned(), indexes)),
            }
        }
        for (_, partitions) in &mut wanted {
            partitions.sort_unstable();
            partitions.dedup();
        }
        Ok(wanted)
    }
}

/// The offset, or the log's nearest end where it lies outside of it: where the broker lets the partition begin then.
async fn within(
    admin: &mut Admin,
    topic: &str,
    partitions: &[i32],
    offset: i64,
) -> Result<Vec<(i32, i64)>, Trouble> {
    let firsts = admin.offsets(topic, partitions, OffsetAt::Earliest).await?;
    let ends = admin.offsets(topic, partitions, OffsetAt::Latest).await?;
    let bounds = firsts.into_iter().zip(ends);
    Ok(bounds.map(|((index, first), (_, end))| (index, offset.min(end).max(first))).collect())
}

/// `TOPIC:PARTITION`; no topic's name has a colon.
fn split(named: &str) -> (&str, Option<i32>) {
    match named.rsplit_once(':') {
        Some((topic, index)) if index.parse::<i32>().is_ok() => (topic, index.parse().ok()),
        _ => (named, None),
    }
}

fn rows(steps: &[Step]) -> Vec<Vec<String>> {
    let row =
        |(topic, partition, offset): &Step| vec![topic.clone(), partition.to_string(), offset.to_string()];
    steps.iter().map(row).collect()
}

fn told((topic, partition, offset): &Step, error: Option<&str>) -> Value {
    json!({"topic": topic, "partition": partition, "startOffset": offset, "error": error})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_may_stand_behind_its_topic() {
        assert_eq!(split("orders"), ("orders", None));
        assert_eq!(split("orders:3"), ("orders", Some(3)));
        assert_eq!(split("orders:x"), ("orders:x", None));
    }
}
