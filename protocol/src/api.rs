//! THE table of APIs: keys, names, versions. It feeds ApiVersions, the version check and dispatch.
//!
//! Ranges are Apache Kafka 4.4's (`ApiKeys`, latest stable versions). An API that is not served has no row,
//! so it is neither advertised nor decoded.

/// What the table says of one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Which API this is.
    pub key: ApiKey,
    /// Kafka's name of it, for logs and metrics.
    pub name: &'static str,
    /// Lowest version that is served.
    pub min: i16,
    /// Highest version that is served, and advertised.
    pub max: i16,
    /// Lowest version that ApiVersions answers. Below `min` only for Produce, as in Kafka: a librdkafka that
    /// does not see version 0 there stops compressing (KIP-896).
    pub advertised_min: i16,
    /// First version with compact fields and tag sections (KIP-482); [`NEVER`] where none has them.
    pub flexible_from: i16,
}

impl Api {
    /// Whether requests of `version` are served.
    #[must_use]
    pub const fn serves(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// Whether `version` has compact fields and tag sections.
    #[must_use]
    pub const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Version of the request header: 2 with a tag section, 1 without.
    #[must_use]
    pub const fn request_header_version(&self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// Version of the response header: 1 with a tag section, 0 without. ApiVersions always has 0, because a
    /// client reads that answer before it knows what the broker speaks (KIP-511).
    #[must_use]
    pub const fn response_header_version(&self, version: i16) -> i16 {
        if matches!(self.key, ApiKey::ApiVersions) || !self.is_flexible(version) { 0 } else { 1 }
    }
}

/// Above every version.
pub const NEVER: i16 = i16::MAX;

/// Why a request is not served. Kafka closes the connection on the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No API of this table has the key.
    #[error("unknown api key {api_key}: ask ApiVersions for what is served")]
    UnknownApi {
        /// The key that was asked for.
        api_key: i16,
    },
    /// The API is served, the version is not.
    #[error("{name} does not serve version {version}: use {min} to {max}")]
    UnsupportedVersion {
        /// The API's name.
        name: &'static str,
        /// The version that was asked for.
        version: i16,
        /// Lowest version that is served.
        min: i16,
        /// Highest version that is served.
        max: i16,
    },
    /// ApiVersions in a version that is not served. The connection stays open and gets
    /// [`unsupported_api_versions`](crate::response::unsupported_api_versions) in version 0 (KIP-511).
    #[error("ApiVersions does not serve version {version}: answer in version 0 with error 35")]
    ApiVersionsTooNew {
        /// The version that was asked for.
        version: i16,
    },
}

impl ApiKey {
    /// The version check of dispatch: which API serves (`api_key`, `version`), or why none does.
    ///
    /// # Errors
    /// [`Refusal`] says whether the connection is closed or answered.
    pub fn route(api_key: i16, version: i16) -> Result<Self, Refusal> {
        let key = Self::from_code(api_key).ok_or(Refusal::UnknownApi { api_key })?;
        let api = key.api();
        if api.serves(version) {
            Ok(key)
        } else if key == Self::ApiVersions {
            Err(Refusal::ApiVersionsTooNew { version })
        } else {
            Err(Refusal::UnsupportedVersion { name: api.name, version, min: api.min, max: api.max })
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Kafka's name of this API.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.api().name
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! apis {
    ($($key:ident = $code:literal: $min:literal..=$max:literal, advertised from $advertised:literal,
        flexible from $flexible:tt;)*) => {
        /// Every API that is served, by its key on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("Versions ", $min, " to ", $max, ".")]
                $key = $code,
            )*
        }

        /// The table, ascending by key.
        pub const APIS: &[Api] = &[$(Api {
            key: ApiKey::$key,
            name: stringify!($key),
            min: $min,
            max: $max,
            advertised_min: $advertised,
            flexible_from: $flexible,
        },)*];

        impl ApiKey {
            /// The API with this key on the wire, if it is served.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$key),)*
                    _ => None,
                }
            }

            /// The row of the table.
            #[must_use]
            pub const fn api(self) -> &'static Api {
                enum Row { $($key,)* }
                match self {
                    $(Self::$key => &APIS[Row::$key as usize],)*
                }
            }
        }
    };
}

apis! {
    Produce = 0: 3..=13, advertised from 0, flexible from 9;
    Fetch = 1: 4..=18, advertised from 4, flexible from 12;
    ListOffsets = 2: 1..=11, advertised from 1, flexible from 6;
    Metadata = 3: 0..=13, advertised from 0, flexible from 9;
    OffsetCommit = 8: 2..=10, advertised from 2, flexible from 8;
    OffsetFetch = 9: 1..=10, advertised from 1, flexible from 6;
    FindCoordinator = 10: 0..=6, advertised from 0, flexible from 3;
    JoinGroup = 11: 0..=9, advertised from 0, flexible from 6;
    Heartbeat = 12: 0..=4, advertised from 0, flexible from 4;
    LeaveGroup = 13: 0..=5, advertised from 0, flexible from 4;
    SyncGroup = 14: 0..=5, advertised from 0, flexible from 4;
    DescribeGroups = 15: 0..=6, advertised from 0, flexible from 5;
    ListGroups = 16: 0..=5, advertised from 0, flexible from 3;
    ApiVersions = 18: 0..=5, advertised from 0, flexible from 3;
    CreateTopics = 19: 2..=7, advertised from 2, flexible from 5;
    DeleteTopics = 20: 1..=6, advertised from 1, flexible from 4;
    DeleteRecords = 21: 0..=2, advertised from 0, flexible from 2;
    InitProducerId = 22: 0..=5, advertised from 0, flexible from 2;
    OffsetForLeaderEpoch = 23: 2..=4, advertised from 2, flexible from 4;
    DescribeConfigs = 32: 1..=4, advertised from 1, flexible from 4;
    DescribeLogDirs = 35: 1..=5, advertised from 1, flexible from 2;
    CreatePartitions = 37: 0..=3, advertised from 0, flexible from 2;
    DeleteGroups = 42: 0..=3, advertised from 0, flexible from 2;
    IncrementalAlterConfigs = 44: 0..=1, advertised from 0, flexible from 1;
    OffsetDelete = 47: 0..=0, advertised from 0, flexible from NEVER;
    DescribeCluster = 60: 0..=2, advertised from 0, flexible from 0;
    ListConfigResources = 74: 0..=1, advertised from 0, flexible from 0;
    DescribeTopicPartitions = 75: 0..=0, advertised from 0, flexible from 0;
    ShareGroupHeartbeat = 76: 1..=1, advertised from 1, flexible from 1;
    ShareGroupDescribe = 77: 1..=1, advertised from 1, flexible from 1;
    ShareFetch = 78: 1..=2, advertised from 1, flexible from 1;
    ShareAcknowledge = 79: 1..=2, advertised from 1, flexible from 1;
    DescribeShareGroupOffsets = 90: 0..=1, advertised from 0, flexible from 0;
    AlterShareGroupOffsets = 91: 0..=0, advertised from 0, flexible from 0;
    DeleteShareGroupOffsets = 92: 0..=0, advertised from 0, flexible from 0;
    KeyShareCommit = 10008: 0..=0, advertised from 0, flexible from 0;
    KeyShareDescribe = 10077: 0..=0, advertised from 0, flexible from 0;
    KeyShareFetch = 10078: 0..=0, advertised from 0, flexible from 0;
    KeyShareAcknowledge = 10079: 0..=0, advertised from 0, flexible from 0;
    KeyShareAlter = 10091: 0..=0, advertised from 0, flexible from 0;
}
