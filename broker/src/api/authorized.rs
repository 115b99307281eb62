//! Bit sets of operations that a client may do, for answers that are asked to tell them (KIP-430). Without an
//! authorizer a client may do everything that the kind of resource knows (`AclEntry.supportedOperations`).

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// Nobody asked.
pub const NOT_ASKED: i32 = i32::MIN;
/// On a topic.
pub const TOPIC: i32 = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// On a group.
pub const GROUP: i32 = READ | DESCRIBE | DELETE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// On the cluster.
pub const CLUSTER: i32 =
    CREATE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE | ALTER | DESCRIBE;
