//! Asks a broker about groups and keys, and changes them: what `sluice groups` and `sluice keys` are made of.
//!
//! One connection, one request at a time. What passes by itself (a coordinator that is still loading) is waited for;
//! everything else is the caller's to decide on.

use std::time::Duration;

use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, DeleteGroupsRequest, DeleteShareGroupOffsetsRequest,
    DescribeGroupsRequest, GroupId, ListGroupsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetFetchRequest, ShareGroupDescribeRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use protocol::ErrorCode;
use protocol::messages::key_share_alter::{KeyShareAlterRequest, KeyShareAlterResponse};
use protocol::messages::key_share_describe::{KeyShareDescribeRequest, KeyShareDescribeResponse};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use records::ids::TopicId;

use crate::clock::{now, pause};
use crate::cluster;
use crate::connection::Connection;
use crate::error::{Error, Lost};
use crate::membership::RETRY_PAUSE;

const METADATA: i16 = 12;
const LIST_OFFSETS: i16 = 7;
const LIST_GROUPS: i16 = 5;
const DESCRIBE_GROUPS: i16 = 5;
const DELETE_GROUPS: i16 = 2;
const OFFSET_FETCH: i16 = 8;
const SHARE_GROUP_DESCRIBE: i16 = 1;
const ALTER_SHARE_OFFSETS: i16 = 0;
const DELETE_SHARE_OFFSETS: i16 = 0;

/// How long something is waited for that passes by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a broker for questions and changes.
#[derive(Debug)]
pub struct Admin {
    connection: Connection,
    address: String,
}

/// A group, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLine {
    /// Its id.
    pub group: String,
    /// `Classic`, `Consumer`, `Share`, … as the broker says it.
    pub kind: String,
    /// `Empty`, `Stable`, …
    pub state: String,
    /// The protocol that its members speak.
    pub protocol: String,
}

/// A group with its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDetail {
    /// `Empty`, `Stable`, …
    pub state: String,
    /// Who assigns.
    pub assignor: String,
    /// The group's epoch; −1 of a classic group, which has none here.
    pub epoch: i32,
    /// The members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    /// Member id.
    pub member: String,
    /// Client id.
    pub client_id: String,
    /// Peer address.
    pub host: String,
    /// Its epoch; −1 of a classic group.
    pub epoch: i32,
    /// Topics and partitions; empty of a classic group, whose assignments are its members' own.
    pub assignment: Vec<(String, Vec<i32>)>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDetail {
    /// Its id.
    pub id: TopicId,
    /// Its partitions, ascending.
    pub partitions: Vec<i32>,
}

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The log's start.
    Earliest,
    /// The log's end.
    Latest,
    /// The first record at or after this time, ms since 1970; the log's end where there is none.
    Time(i64),
}

/// What became of one topic or partition: the broker's code and words where it was refused.
pub type Outcome = Result<(), (ErrorCode, String)>;

impl Admin {
    /// Connects to one of `bootstrap` (`host:port[,host:port…]`), which must be a Sluice.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotSupported`].
    pub async fn connect(bootstrap: &str, client_id: &str) -> Result<Self, Error> {
        let unreachable = |source| Error::Unreachable { bootstrap: bootstrap.to_owned(), source };
        let mut connection = Connection::open_any(bootstrap, client_id).await.map_err(unreachable)?;
        match cluster::require_key_share(&mut connection, bootstrap).await {
            Ok(()) => Ok(Self { connection, address: bootstrap.to_owned() }),
            Err(Lost::Fatal(error)) => Err(error),
            Err(Lost::Connection(source)) => Err(unreachable(source)),
            Err(lost) => Err(unreachable(std::io::Error::other(lost.to_string()))),
        }
    }

    /// All groups of every kind, by id.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn groups(&mut self) -> Result<Vec<GroupLine>, Error> {
        let until = now() + PATIENCE;
        loop {
            let listed = self.connection.call(LIST_GROUPS, &ListGroupsRequest::default()).await;
            let answer = listed.map_err(|lost| self.broken(lost))?;
            match refused("ListGroups", answer.error_code, None) {
                Err(Error::Refused { code, .. }) if code.is_retriable() && now() < until => {
                    pause(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    let line =
                        |group: &kafka_protocol::messages::list_groups_response::ListedGroup| GroupLine {
                            group: group.group_id.to_string(),
                            kind: group.group_type.to_string(),
                            state: group.group_state.to_string(),
                            protocol: group.protocol_type.to_string(),
                        };
                    let mut lines: Vec<GroupLine> = answer.groups.iter().map(line).collect();
                    lines.sort_by(|a, b| a.group.cmp(&b.group));
                    return Ok(lines);
                }
            }
        }
    }

    /// A share group with its members.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Refused`] with GROUP_ID_NOT_FOUND where there is none.
    pub async fn share_group(&mut self, group: &str) -> Result<GroupDetail, Error> {
        let request = ShareGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let answer = self.call(SHARE_GROUP_DESCRIBE, &request).await?;
        let Some(told) = answer.groups.into_iter().next() else { return Err(self.no_answer()) };
        refused("ShareGroupDescribe", told.error_code, told.error_message.as_ref().map(StrBytes::as_str))?;
        let topic = |topic: &kafka_protocol::messages::share_group_describe_response::TopicPartitions| {
            (topic.topic_name.to_string(), topic.partitions.clone())
        };
        let member = |member: &kafka_protocol::messages::share_group_describe_response::Member| GroupMember {
            member: member.member_id.to_string(),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            epoch: member.member_epoch,
            assignment: member.assignment.topic_partitions.iter().map(topic).collect(),
        };
        Ok(GroupDetail {
            state: told.group_state.to_string(),
            assignor: told.assignor_name.to_string(),
            epoch: told.group_epoch,
            members: told.members.iter().map(member).collect(),
        })
    }

    /// A group of the classic protocol with its members.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn classic_group(&mut self, group: &str) -> Result<GroupDetail, Error> {
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let answer = self.call(DESCRIBE_GROUPS, &request).await?;
        let Some(told) = answer.groups.into_iter().next() else { return Err(self.no_answer()) };
        refused("DescribeGroups", told.error_code, None)?;
        let member =
            |member: &kafka_protocol::messages::describe_groups_response::DescribedGroupMember| GroupMember {
                member: member.member_id.to_string(),
                client_id: member.client_id.to_string(),
                host: member.client_host.to_string(),
                epoch: -1,
                assignment: Vec::new(),
            };
        Ok(GroupDetail {
            state: told.group_state.to_string(),
            assignor: told.protocol_data.to_string(),
            epoch: -1,
            members: told.members.iter().map(member).collect(),
        })
    }

    /// What a group of the classic protocol has committed: topic, partition, offset.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn committed(&mut self, group: &str) -> Result<Vec<(String, i32, i64)>, Error> {
        let asked = kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup::default()
            .with_group_id(group_id(group))
            .with_topics(None);
        let request = OffsetFetchRequest::default().with_groups(vec![asked]);
        let answer = self.call(OFFSET_FETCH, &request).await?;
        let Some(told) = answer.groups.into_iter().next() else { return Err(self.no_answer()) };
        refused("OffsetFetch", told.error_code, None)?;
        let topics = told.topics.iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic
                .partitions
                .iter()
                .map(move |part| (name.clone(), part.partition_index, part.committed_offset))
        });
        let mut committed: Vec<_> = topics.filter(|(_, _, offset)| *offset >= 0).collect();
        committed.sort();
        Ok(committed)
    }

    /// A topic's id and partitions.
    ///
    /// # Errors
    /// [`Error::Refused`] with UNKNOWN_TOPIC_OR_PARTITION where there is none.
    pub async fn topic(&mut self, name: &str) -> Result<TopicDetail, Error> {
        let asked = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(false);
        let answer = self.call(METADATA, &request).await?;
        let Some(told) = answer.topics.into_iter().next() else { return Err(self.no_answer()) };
        refused("Metadata", told.error_code, Some(&format!("topic {name}")))?;
        let mut partitions: Vec<i32> = told.partitions.iter().map(|part| part.partition_index).collect();
        partitions.sort_unstable();
        Ok(TopicDetail { id: TopicId(*told.topic_id.as_bytes()), partitions })
    }

    /// Offsets of a topic's partitions, in the order asked.
    ///
    /// # Errors
    /// [`Error`], also where one partition is refused.
    pub async fn offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        at: OffsetAt,
    ) -> Result<Vec<(i32, i64)>, Error> {
        let found = self.list_offsets(topic, partitions, at).await?;
        let nowhere: Vec<i32> =
            found.iter().filter(|(_, offset)| *offset < 0).map(|(index, _)| *index).collect();
        if nowhere.is_empty() {
            return Ok(found);
        }
        // No record is as young as that: the end is meant.
        let ends = self.list_offsets(topic, &nowhere, OffsetAt::Latest).await?;
        let end = |index: i32| ends.iter().find(|(end, _)| *end == index).map_or(0, |(_, offset)| *offset);
        Ok(found
            .into_iter()
            .map(|(index, offset)| (index, if offset < 0 { end(index) } else { offset }))
            .collect())
    }

    async fn list_offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        at: OffsetAt,
    ) -> Result<Vec<(i32, i64)>, Error> {
        let timestamp = match at {
            OffsetAt::Latest => -1,
            OffsetAt::Earliest => -2,
            OffsetAt::Time(ms) => ms.max(0),
        };
        let part = |index: &i32| {
            ListOffsetsPartition::default().with_partition_index(*index).with_timestamp(timestamp)
        };
        let asked = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.iter().map(part).collect());
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![asked]);
        let answer = self.call(LIST_OFFSETS, &request).await?;
        let mut found = Vec::new();
        for part in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            refused("ListOffsets", part.error_code, None)?;
            found.push((part.partition_index, part.offset));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Sets where a share group without members goes on reading; one outcome a partition, in order.
    ///
    /// # Errors
    /// [`Error::Refused`] with NON_EMPTY_GROUP where it has members.
    pub async fn set_share_offsets(
        &mut self,
        group: &str,
        offsets: &[(String, i32, i64)],
    ) -> Result<Vec<(String, i32, Outcome)>, Error> {
        let mut topics: Vec<AlterShareGroupOffsetsRequestTopic> = Vec::new();
        for (topic, index, offset) in offsets {
            let part = AlterShareGroupOffsetsRequestPartition::default()
                .with_partition_index(*index)
                .with_start_offset(*offset);
            match topics.iter_mut().find(|known| *known.topic_name == **topic) {
                Some(known) => known.partitions.push(part),
                None => topics.push(
                    AlterShareGroupOffsetsRequestTopic::default()
                        .with_topic_name(topic_name(topic))
                        .with_partitions(vec![part]),
                ),
            }
        }
        let request =
            AlterShareGroupOffsetsRequest::default().with_group_id(group_id(group)).with_topics(topics);
        let answer = self.call(ALTER_SHARE_OFFSETS, &request).await?;
        refused(
            "AlterShareGroupOffsets",
            answer.error_code,
            answer.error_message.as_ref().map(StrBytes::as_str),
        )?;
        let parts = answer.responses.iter().flat_map(|topic| {
            let name = topic.topic_name.to_string();
            topic.partitions.iter().map(move |part| {
                let outcome = outcome(part.error_code, part.error_message.as_ref());
                (name.clone(), part.partition_index, outcome)
            })
        });
        Ok(parts.collect())
    }

    /// Deletes what a share group without members knows of topics; one outcome a topic, in order.
    ///
    /// # Errors
    /// [`Error::Refused`] with NON_EMPTY_GROUP where it has members.
    pub async fn delete_share_offsets(
        &mut self,
        group: &str,
        topics: &[String],
    ) -> Result<Vec<(String, Outcome)>, Error> {
        let topic = |topic: &String| {
            DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(topic_name(topic))
        };
        let request = DeleteShareGroupOffsetsRequest::default()
            .with_group_id(group_id(group))
            .with_topics(topics.iter().map(topic).collect());
        let answer = self.call(DELETE_SHARE_OFFSETS, &request).await?;
        refused(
            "DeleteShareGroupOffsets",
            answer.error_code,
            answer.error_message.as_ref().map(StrBytes::as_str),
        )?;
        let told = answer.responses.iter().map(|topic| {
            (topic.topic_name.to_string(), outcome(topic.error_code, topic.error_message.as_ref()))
        });
        Ok(told.collect())
    }

    /// Deletes groups that have no members; one outcome a group, in order.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_groups(&mut self, groups: &[String]) -> Result<Vec<(String, Outcome)>, Error> {
        let request = DeleteGroupsRequest::default()
            .with_groups_names(groups.iter().map(|group| group_id(group)).collect());
        let answer = self.call(DELETE_GROUPS, &request).await?;
        let told =
            answer.results.iter().map(|group| (group.group_id.to_string(), outcome(group.error_code, None)));
        Ok(told.collect())
    }

    /// Where share-partitions stand, and why keys of them are not being delivered (KeyShareDescribe).
    ///
    /// # Errors
    /// [`Error`]; partitions that cannot be described say so in the answer.
    pub async fn describe_keys(
        &mut self,
        request: KeyShareDescribeRequest,
    ) -> Result<KeyShareDescribeResponse, Error> {
        let answer: KeyShareDescribeResponse = self.call_key_share(request).await?;
        refused("KeyShareDescribe", answer.error_code.code(), own_words(answer.error_message.as_ref()))?;
        Ok(answer)
    }

    /// Changes keys and resets share-partitions (KeyShareAlter).
    ///
    /// # Errors
    /// [`Error`]; changes that were not made say so in the answer.
    pub async fn alter_keys(
        &mut self,
        request: KeyShareAlterRequest,
    ) -> Result<KeyShareAlterResponse, Error> {
        let answer: KeyShareAlterResponse = self.call_key_share(request).await?;
        refused("KeyShareAlter", answer.error_code.code(), own_words(answer.error_message.as_ref()))?;
        Ok(answer)
    }

    async fn call<R>(&mut self, version: i16, request: &R) -> Result<R::Response, Error>
    where
        R: kafka_protocol::protocol::Request
            + kafka_protocol::protocol::Encodable
            + kafka_protocol::protocol::HeaderVersion,
        R::Response: kafka_protocol::protocol::Decodable + kafka_protocol::protocol::HeaderVersion,
    {
        let answered = self.connection.call(version, request).await;
        answered.map_err(|lost| self.broken(lost))
    }

    async fn call_key_share<Q: KeyShareRequest, A: KeyShareResponse>(
        &mut self,
        request: Q,
    ) -> Result<A, Error> {
        let answered = self.connection.call_key_share(request).await;
        answered.map_err(|lost| self.broken(lost))
    }

    fn no_answer(&self) -> Error {
        self.broken(Lost::Malformed("the answer is empty".to_owned()))
    }

    fn broken(&self, lost: Lost) -> Error {
        match lost {
            Lost::Fatal(error) => error,
            lost => Error::Broken { address: self.address.clone(), reason: lost.to_string() },
        }
    }
}

/// An answer's code and words as an error, where there is one.
fn refused(what: &'static str, code: i16, message: Option<&str>) -> Result<(), Error> {
    match ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => Ok(()),
        code => Err(Error::Refused { what, code, message: message.unwrap_or("no message").to_owned() }),
    }
}

fn own_words(message: Option<&protocol::StrBytes>) -> Option<&str> {
    message.map(protocol::StrBytes::as_str)
}

fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn outcome(code: i16, message: Option<&StrBytes>) -> Outcome {
    match ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => Ok(()),
        code => Err((code, message.map_or_else(|| format!("{code:?}"), ToString::to_string))),
    }
}
