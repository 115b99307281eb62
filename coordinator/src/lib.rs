//! pure state machines: shards, share-partitions, the planner, groups.
