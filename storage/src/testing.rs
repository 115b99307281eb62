//! What the tests of this crate share: a data directory on a simulated disk, and batches.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use records::ids::{Offset, PartitionId, TopicId};
use records::{BatchView, Batches, Codec, TimestampType};

use crate::disk::{Disk, SimDisk};
use crate::{AppendError, Appended, Boot, DataDir, LogConfig, LogFacts, Logs, Options, Origin};

pub(crate) const TOPIC: &str = "t";
pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([9; 16]), index }
}

/// A batch with these timestamps; keys k0…, values v0….
pub(crate) fn batch_of(codec: Codec, timestamps: &[i64]) -> BytesMut {
    let mut builder = records::batch::BatchBuilder::new(codec, TimestampType::Create);
    for (index, &timestamp) in timestamps.iter().enumerate() {
        builder.append(
            timestamp,
            Some(format!("k{index}").as_bytes()),
            Some(format!("v{index}").as_bytes()),
            &[],
        );
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

pub(crate) fn batch(count: usize) -> BytesMut {
    batch_of(Codec::None, &vec![NOW; count])
}

pub(crate) fn producer_batch(id: i64, epoch: i16, sequence: i32, count: usize) -> BytesMut {
    let mut builder =
        records::batch::BatchBuilder::new(Codec::None, TimestampType::Create).producer(id, epoch, sequence);
    for _ in 0..count {
        builder.append(NOW, Some(b"k"), Some(b"v"), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

/// A batch of a producer's transaction: one key for all records, values v0….
pub(crate) fn transactional(id: i64, epoch: i16, sequence: i32, key: &str, count: usize) -> BytesMut {
    let mut builder = records::batch::BatchBuilder::new(Codec::None, TimestampType::Create)
        .producer(id, epoch, sequence)
        .transactional();
    for index in 0..count {
        builder.append(NOW, Some(key.as_bytes()), Some(format!("v{index}").as_bytes()), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

/// The marker that ends a producer's transaction.
pub(crate) fn marker(id: i64, epoch: i16, commit: bool, coordinator_epoch: i32) -> BytesMut {
    let marker = records::batch::EndMarker { commit, coordinator_epoch };
    BytesMut::from(&marker.batch(id, epoch, NOW)[..])
}

/// A data directory that can be stopped, killed and cut off from power.
pub(crate) struct World {
    pub(crate) sim: Arc<SimDisk>,
    pub(crate) config: LogConfig,
    pub(crate) options: Options,
    logs: Option<Logs>,
    boot: Boot,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, LogConfig::default())
    }

    pub(crate) fn with(seed: u64, config: LogConfig) -> Self {
        Self::with_options(seed, config, Options::default())
    }

    pub(crate) fn with_options(seed: u64, config: LogConfig, options: Options) -> Self {
        let mut world = Self {
            sim: Arc::new(SimDisk::new(seed)),
            config,
            options,
            logs: None,
            boot: Boot { boot: 0, leader_epoch: -1 },
        };
        world.start();
        world
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.sim) as Arc<dyn Disk>
    }

    fn start(&mut self) {
        let data_dir = DataDir::open(self.disk()).unwrap();
        self.boot.boot += 1;
        if !data_dir.was_clean() {
            self.boot.leader_epoch += 1;
        }
        self.logs = Some(Logs::open(data_dir, self.options.clone(), self.boot).unwrap());
        self.open(0);
    }

    pub(crate) fn open(&mut self, index: i32) -> LogFacts {
        let config = self.config.clone();
        self.logs().open_partition(partition(index), TOPIC, config).unwrap()
    }

    pub(crate) fn logs(&mut self) -> &mut Logs {
        self.logs.as_mut().unwrap()
    }

    pub(crate) fn stop(&mut self) {
        self.logs.take().unwrap().close().unwrap();
    }

    /// The process is gone, whatever it had to say.
    pub(crate) fn stop_hard(&mut self) {
        self.logs = None;
        self.sim.restart();
    }

    /// The next start is that one, under an epoch of the same number: somebody else has started it in between.
    pub(crate) fn boot_at(&mut self, number: u64) {
        self.boot = Boot { boot: number, leader_epoch: number as i32 };
    }

    pub(crate) fn clean_restart(&mut self) {
        self.stop();
        self.start();
    }

    /// The process is killed: what it wrote is still there.
    pub(crate) fn kill(&mut self) {
        self.logs = None;
        self.sim.restart();
        self.start();
    }

    /// Everything that was not synced may be gone.
    pub(crate) fn power_cut(&mut self) {
        self.logs = None;
        self.sim.crash();
        self.start();
    }

    /// Starts again after `change` was done to the files of the stopped broker.
    pub(crate) fn restart_after(&mut self, change: impl FnOnce(&dyn Disk)) {
        self.logs = None;
        change(&*self.disk());
        self.start();
    }

    pub(crate) fn append(&mut self, batch: BytesMut) -> Result<Appended, AppendError> {
        self.logs().append(partition(0), batch, Origin::Client, NOW)
    }

    /// As a coordinator does.
    pub(crate) fn coordinate(&mut self, batch: BytesMut) -> Result<Appended, AppendError> {
        self.logs().append(partition(0), batch, Origin::Coordinator, NOW)
    }

    pub(crate) fn sync(&mut self) -> Offset {
        match self.logs().sync_job(partition(0)).unwrap() {
            Some(job) => {
                let result = job.run();
                self.logs().sync_done(result).unwrap()
            }
            None => self.facts().synced,
        }
    }

    pub(crate) fn facts(&mut self) -> LogFacts {
        self.logs().facts(partition(0)).unwrap()
    }

    /// All batches from `from` on, one read after the other.
    pub(crate) fn read_all(&mut self, mut from: Offset) -> Vec<Bytes> {
        let mut batches = Vec::new();
        loop {
            let slice = self.logs().read(partition(0), from, 1000, Offset::MAX, true).unwrap();
            if slice.is_empty() {
                return batches;
            }
            let bytes = slice.read().unwrap();
            for batch in Batches::new(&bytes) {
                let batch = batch.unwrap();
                assert!(batch.crc_is_valid());
                from = batch.next_offset();
                batches.push(Bytes::copy_from_slice(batch.bytes()));
            }
        }
    }
}

/// Base and last offset of each batch.
pub(crate) fn spans(batches: &[Bytes]) -> Vec<(i64, i64)> {
    batches
        .iter()
        .map(|bytes| BatchView::parse(bytes).unwrap())
        .map(|batch| (batch.base_offset().0, batch.last_offset().0))
        .collect()
}
