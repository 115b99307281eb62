//! the partition log: segments, indexes, event logs, recovery, flushing, and the metadata store.
