//! `kafka-dump-log` over every file that a broker of ours left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use integration_tests::foreign::KafkaTools;

/// What the tool prints where something is wrong.
const COMPLAINTS: [&str; 9] = [
    "isvalid: false",
    "Mismatches",
    "mismatch",
    "Found timestamp",
    "out of order",
    "not found",
    "invalid",
    "Non-consecutive",
    "Exception",
];

/// Reads every log, index, time index, transaction index and producer snapshot of a stopped broker; those of
/// `__consumer_offsets` with the decoder. What it printed by kind of file.
#[track_caller]
pub(crate) fn every_file_is_read(tools: &KafkaTools, data_dir: &Path) -> BTreeMap<String, String> {
    let mut files: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
    for directory in fs::read_dir(data_dir).expect("a data directory can be listed") {
        let directory = directory.expect("a data directory can be listed").path();
        if !directory.is_dir() {
            continue;
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in fs::read_dir(&directory).expect("a partition can be listed") {
            let file = file.expect("a partition can be listed").path();
            let kind = file.extension().unwrap_or_default().to_string_lossy().into_owned();
            if ["log", "index", "timeindex", "txnindex", "snapshot"].contains(&&*kind) {
                let key = (kind, name.starts_with("__consumer_offsets-"));
                files.entry(key).or_default().push(file.display().to_string());
            }
        }
    }
    let mut printed: BTreeMap<String, String> = BTreeMap::new();
    for ((kind, is_offsets), files) in files {
        let files = files.join(",");
        let runs: &[&[&str]] = match (&*kind, is_offsets) {
            ("log", true) => &[&["--offsets-decoder", "--deep-iteration"]],
            ("log", false) => &[&["--print-data-log", "--deep-iteration"]],
            ("index" | "timeindex", _) => &[&["--index-sanity-check"], &["--verify-index-only"], &[]],
            _ => &[&[]],
        };
        for options in runs {
            let arguments = [&["--files", &files], *options].concat();
            let dumped = tools.run_offline("dump-log", &arguments);
            let text = dumped.expect_success().to_string();
            for bad in COMPLAINTS {
                let line = text.lines().find(|line| {
                    line.contains(bad) && !line.contains("payload:") && !is_due_to_compaction(line)
                });
                assert!(line.is_none(), "{kind} {options:?}: {line:?}");
            }
            printed.entry(kind.clone()).or_default().push_str(&dumped.stdout);
        }
    }
    printed
}

/// Offsets are missing where records were compacted, and the tool says so of Kafka's own files too.
fn is_due_to_compaction(line: &str) -> bool {
    line.starts_with("Non-consecutive offsets in")
        && ["/compacted-", "/__consumer_offsets-"].iter().any(|directory| line.contains(directory))
}
