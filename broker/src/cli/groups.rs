//! `sluice groups`: lists and describes groups, and sets back or deletes what share groups know.

mod reset;
mod words;

use clap::{Args, Subcommand};
use client::Admin;
use client::admin::{GroupLine, OffsetAt, Outcome};
use protocol::messages::key_share_describe::KeyShareDescribeRequest;
use serde_json::json;

use super::Exit;
use super::remote::{Reach, Said, Trouble, refusal};
use reset::Reset;

/// Look at groups, and set back or delete what share groups know.
#[derive(Debug, Args)]
pub struct Groups {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all groups.
    List(List),
    /// Show a group's state, its members, and where it stands in each partition.
    Describe(Named),
    /// Set where a share group without members goes on reading. Only shows what would be done unless --execute is given.
    Reset(Reset),
    /// Delete what a share group without members knows of topics: it begins there as a new group does.
    DeleteOffsets(DeleteOffsets),
    /// Delete groups that have no members, with all that they know.
    Delete(Delete),
}

#[derive(Debug, Args)]
struct List {
    /// Only groups of this kind.
    #[arg(long, value_name = "KIND", value_parser = ["classic", "consumer", "share"])]
    kind: Option<String>,
}

#[derive(Debug, Args)]
struct Named {
    /// The group.
    group: String,
}

#[derive(Debug, Args)]
struct DeleteOffsets {
    /// The share group.
    group: String,
    /// A topic; may be given several times.
    #[arg(long, required = true)]
    topic: Vec<String>,
}

#[derive(Debug, Args)]
struct Delete {
    /// The groups.
    #[arg(required = true)]
    groups: Vec<String>,
}

impl Groups {
    /// Does what the command line says.
    #[must_use]
    pub fn run(self) -> Exit {
        let Self { reach, command } = self;
        reach.run("groups", |admin| command.run(admin))
    }
}

impl Command {
    async fn run(self, mut admin: Admin) -> Result<Said, Trouble> {
        match self {
            Self::List(List { kind }) => {
                let mut groups = admin.groups().await?;
                groups.retain(|group| kind.as_ref().is_none_or(|kind| group.kind.eq_ignore_ascii_case(kind)));
                Ok(Said {
                    text: words::listed(&groups),
                    json: words::listed_json(&groups),
                    ..Said::default()
                })
            }
            Self::Describe(Named { group }) => describe(&mut admin, &group).await,
            Self::Reset(reset) => reset.run(&mut admin).await,
            Self::DeleteOffsets(DeleteOffsets { group, topic }) => {
                find_share(&mut admin, &group).await?;
                let outcomes = admin.delete_share_offsets(&group, &topic).await?;
                Ok(done("deleted", "topic", &outcomes))
            }
            Self::Delete(Delete { groups }) => {
                let outcomes = admin.delete_groups(&groups).await?;
                Ok(done("deleted", "group", &outcomes))
            }
        }
    }
}

async fn find(admin: &mut Admin, group: &str) -> Result<GroupLine, Trouble> {
    let groups = admin.groups().await?;
    let found = groups.into_iter().find(|line| line.group == group);
    found.ok_or_else(|| Trouble::refused(format!("there is no group {group}")))
}

/// A share group: what other groups know is changed by other means.
async fn find_share(admin: &mut Admin, group: &str) -> Result<(), Trouble> {
    let found = find(admin, group).await?;
    if found.kind.eq_ignore_ascii_case("share") {
        return Ok(());
    }
    Err(Trouble::refused(format!(
        "{group} is no share group but a {} one: use kafka-consumer-groups",
        found.kind.to_lowercase()
    )))
}

async fn describe(admin: &mut Admin, group: &str) -> Result<Said, Trouble> {
    let found = find(admin, group).await?;
    if found.kind.eq_ignore_ascii_case("share") {
        let detail = admin.share_group(group).await?;
        let request =
            KeyShareDescribeRequest { group_id: group.into(), ..KeyShareDescribeRequest::default() };
        let described = admin.describe_keys(request).await?;
        return Ok(Said {
            text: words::share(&found, &detail, &described),
            json: words::share_json(&found, &detail, &described),
            ..Said::default()
        });
    }
    let detail = admin.classic_group(group).await?;
    let committed = admin.committed(group).await?;
    let mut stands = Vec::new();
    for (topic, partition, offset) in committed {
        let ends = admin.offsets(&topic, &[partition], OffsetAt::Latest).await;
        let end = ends.ok().and_then(|ends| ends.first().map(|(_, end)| *end));
        stands.push((topic, partition, offset, end));
    }
    Ok(Said {
        text: words::classic(&found, &detail, &stands),
        json: words::classic_json(&found, &detail, &stands),
        ..Said::default()
    })
}

/// What became of each of several things.
fn done(verb: &str, what: &str, outcomes: &[(String, Outcome)]) -> Said {
    let line = |(name, outcome): &(String, Outcome)| match outcome {
        Ok(()) => format!("{name}: {verb}\n"),
        Err(refused) => format!("{name}: not {verb}: {}\n", refusal(refused)),
    };
    let item = |(name, outcome): &(String, Outcome)| {
        json!({
            what: name,
            "error": outcome.as_ref().err().map(|(code, _)| format!("{code:?}")),
            "errorMessage": outcome.as_ref().err().map(|(_, message)| message),
        })
    };
    Said {
        text: outcomes.iter().map(line).collect(),
        json: outcomes.iter().map(item).collect(),
        failed: outcomes.iter().any(|(_, outcome)| outcome.is_err()),
        complaint: None,
    }
}
