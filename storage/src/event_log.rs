//! Event logs beside a partition.

/// The name (a numeric group id) in an event log's file name.
pub(crate) fn name_of(file: &str) -> Option<u64> {
    parse(file).map(|(name, _)| name)
}

fn parse(file: &str) -> Option<(u64, u64)> {
    let (name, generation) = file.strip_prefix("share-")?.strip_suffix(".events")?.split_once('.')?;
    Some((name.parse().ok()?, generation.parse().ok()?))
}
