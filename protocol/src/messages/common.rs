//! Parts that several messages share.

use kafka_wire_core::{StrBytes, Uuid};
use records::ids::TopicId;

use crate::decode::{DecodeError, Read, Reader};
use crate::encode::{EncodeError, Write, Writer};
use crate::segments::{Records, SegmentLen};

/// How a request tells a topic: by name in older versions, by id in newer ones (KIP-516). The answer repeats
/// the form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicRef {
    /// The topic's name.
    Name(StrBytes),
    /// The topic's id.
    Id(TopicId),
}

impl TopicRef {
    /// The name, where the topic was told by name.
    #[must_use]
    pub const fn name(&self) -> Option<&StrBytes> {
        match self {
            Self::Name(name) => Some(name),
            Self::Id(_) => None,
        }
    }

    /// The id, where the topic was told by id.
    #[must_use]
    pub const fn id(&self) -> Option<TopicId> {
        match self {
            Self::Name(_) => None,
            Self::Id(id) => Some(*id),
        }
    }

    /// Fewest bytes on the wire: an empty compact name.
    pub(crate) const WIRE_MIN: usize = 1;

    pub(crate) fn read(reader: &mut Reader, ids_from: i16) -> Result<Self, DecodeError> {
        if reader.version() >= ids_from {
            Ok(Self::Id(reader.topic_id()?))
        } else {
            Ok(Self::Name(reader.string()?))
        }
    }

    pub(crate) fn write<F: SegmentLen>(&self, writer: &mut Writer<F>, ids_from: i16) {
        let version = writer.version();
        match self {
            Self::Name(name) if version < ids_from => writer.string(name),
            Self::Id(id) if version >= ids_from => writer.topic_id(*id),
            Self::Name(_) => writer.fail(EncodeError::WrongTopicForm { version, wanted: "id" }),
            Self::Id(_) => writer.fail(EncodeError::WrongTopicForm { version, wanted: "name" }),
        }
    }
}

flexible_message! {
    /// Who leads a partition now, told to a client that asked the wrong broker (KIP-951).
    pub struct LeaderIdAndEpoch {
        /// Node id of the leader, −1 if unknown.
        leader_id: i32, since 0 or -1;
        /// The leader's epoch, −1 if unknown.
        leader_epoch: i32, since 0 or -1;
    }

    /// Where a node that an answer names is reached (KIP-951).
    pub struct NodeEndpoint {
        /// The node's id.
        node_id: i32;
        /// Its host name or address.
        host: StrBytes;
        /// Its port.
        port: i32;
        /// Its rack, if it has one.
        rack: Option<StrBytes>;
    }
}

/// What a member says of records that it holds (KIP-932, KIP-1222). On the wire a byte, so that an unknown
/// type spoils its range only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum AcknowledgeType {
    /// The client found no record at this offset. Not in the key-share API.
    Gap = 0,
    /// Done.
    Accept = 1,
    /// To be delivered again.
    Release = 2,
    /// Never to be delivered again.
    Reject = 3,
    /// Still at work: lock it anew.
    Renew = 4,
}

impl AcknowledgeType {
    /// The type with this number.
    #[must_use]
    pub const fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Gap),
            1 => Some(Self::Accept),
            2 => Some(Self::Release),
            3 => Some(Self::Reject),
            4 => Some(Self::Renew),
            _ => None,
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }
}

impl LeaderIdAndEpoch {
    /// "Nothing to tell": Kafka's −1, −1.
    pub const UNKNOWN: Self = Self { leader_id: -1, leader_epoch: -1 };
}

impl<F> Read for Records<F> {
    const WIRE_MIN: usize = 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        // Kafka's own clients read a null as "no records".
        Ok(Self::from(reader.nullable_bytes()?.unwrap_or_default()))
    }
}

/// The value of a tag that lists node endpoints.
pub(crate) fn write_endpoints<F: SegmentLen>(
    writer: &mut Writer<F>,
    endpoints: Vec<NodeEndpoint>,
) -> bytes::Bytes {
    writer.tag_value(|writer| endpoints.write(writer))
}

/// A topic id in the form that the generated messages hold.
#[must_use]
pub const fn to_uuid(id: TopicId) -> Uuid {
    Uuid::from_bytes(id.0)
}

/// A topic id out of a generated message.
#[must_use]
pub const fn from_uuid(uuid: Uuid) -> TopicId {
    TopicId(uuid.to_bytes())
}
