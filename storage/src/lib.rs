//! The partition log and the metadata store, on a disk that is handed in.
//!
//! On disk it is Kafka: `<topic>-<partition>/` with `.log`, `.index`, `.timeindex`, `.txnindex`, producer `.snapshot`s,
//! `leader-epoch-checkpoint` and `partition.metadata`, and Kafka's checkpoint files at the root. What Kafka has no
//! place for stands beside: `.producers` (five batches a producer), `.keyindex` (the key hash of every record),
//! `share-<n>.<g>.events` and `share-<n>.pages`, the metadata store.
//!
//! Owner: [`Logs`] belongs to one thread. Inputs: validated batches, offsets, the time. Outputs: file ranges
//! ([`LogSlice`]), batches, jobs to sync ([`SyncJob`]), to compact ([`CleanJob`]) and to remove ([`RemoveJob`]). It knows bytes, offsets and files; never requests, groups or
//! error codes.

mod batch_cache;
mod batch_header;
mod checkpoints;
mod cleaner;
pub mod data_dir;
pub mod disk;
pub mod error;
mod event_log;
mod events;
mod flush;
pub mod import;
mod index;
pub mod inspect;
mod key_index;
mod lazy_file;
mod leader_epochs;
mod log;
mod logs;
pub mod metadata;
pub mod options;
mod overview;
mod producer_state;
mod retired;
mod scan;
mod segment;
mod segment_list;
mod select;
mod single;
mod strays;
#[cfg(test)]
mod testing;
mod transactions;
mod walk;

pub use cleaner::{CleanJob, CleanStep, CleaningFacts};
pub use data_dir::DataDir;
pub use disk::{Disk, DiskFile, OsDisk, ReadOnlyDisk, SimDisk};
pub use error::{AppendError, DeleteError, ReadError, SelectError, StorageError};
pub use event_log::{EventsFacts, PagePlaces, Replay};
pub use flush::{SyncJob, SyncResult};
pub use key_index::{
    KeyFilter, KeyHashes, KeyIndexFacts, KeyIndexStep, KeyJob, KeyJobDone, KeyMatches, KeyRecords, KeyWork,
    KeyedRecord, LastKeyMatch, keyless_place,
};
pub use log::{Appended, LogFacts, LogSlice, Origin, RetentionDue, TimedOffset};
pub use logs::{Logs, PartitionToOpen};
pub use metadata::{Boot, Configs, Metadata, TopicMetadata};
pub use options::{CleanerOptions, FlushPolicy, LogConfig, Options};
pub use overview::{LogView, Overview, RecoveryFacts};
pub use retired::RemoveJob;
pub use scan::{Scan, ScannedBatch, ScannedKind, ScannedRecord};
pub use single::OwnedRecord;
pub use strays::FoundPartition;
pub use transactions::AbortedTransaction;
