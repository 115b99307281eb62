//! The `sluice` command: what it prints, how it ends, and with which exit code.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use broker::clock::Clock;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};
use rustix::process::{Pid, Signal, kill_process};
use storage::{DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk, TopicMetadata};

fn sluice(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = sluice(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn started(dir: &str) -> (Child, String) {
    let mut child = sluice(&["serve", "--listen", "127.0.0.1:0", "--data-dir", dir]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

fn stop(mut child: Child, signal: Signal) -> (Option<i32>, String) {
    let clock = Clock::start();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let code = child.wait().unwrap().code();
    assert!(clock.mono().0 < 5_000_000, "stopping took {} µs", clock.mono().0);
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    (code, rest)
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [&["serve", "--port", "1"][..], &["serv"], &[], &["serve", "--node-id", "-1"]] {
        assert_eq!(ended(arguments).0, Some(2), "{arguments:?}");
    }
    let help = sluice(&["serve", "--help"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("Exit codes: 0"), "{text}");
    let version = sluice(&["--version"]).output().unwrap();
    assert_eq!(String::from_utf8(version.stdout).unwrap(), format!("sluice {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_configuration_that_cannot_be_used_ends_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.properties");
    std::fs::write(&file, "num.partitions=1\nnum.partitionss=2\n").unwrap();
    let (code, text) = ended(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(3));
    assert!(
        text.contains("line 2") && text.contains("num.partitionss") && text.contains("num.partitions?"),
        "{text}"
    );
    assert_eq!(ended(&["serve", "--listen", "nowhere"]).0, Some(3));
    assert_eq!(ended(&["serve", "--config", "/no/such/file"]).0, Some(3));
}

#[test]
fn a_broker_is_ready_in_one_line_and_stops_on_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let path = path.to_str().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let (child, line) = started(path);
        let port: u16 = line
            .strip_prefix("sluice ready on 127.0.0.1:")
            .and_then(|rest| rest.trim_end().parse().ok())
            .unwrap();
        assert!(port > 0);

        let (code, text) = ended(&["serve", "--listen", "127.0.0.1:0", "--data-dir", path]);
        assert_eq!(code, Some(1));
        assert!(text.contains("in use by another process"), "{text}");

        assert_eq!(stop(child, signal), (Some(0), String::new()));
        assert!(dir.path().join("data/.kafka_cleanshutdown").exists());
    }
}

#[test]
fn an_address_that_is_taken_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = ended(&["serve", "--listen", &address, "--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot listen at"), "{text}");
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()];
    let mut child = sluice(&arguments).stderr(full).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("sluice ready on "), "{line:?}");
    assert_eq!(stop(child, Signal::TERM).0, Some(0));
}

/// A data directory with three records in `t-0`; its partition directory.
fn a_log(dir: &Path) -> PathBuf {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir).unwrap());
    let data_dir = DataDir::open(Arc::clone(&disk)).unwrap();
    let metadata = Metadata::open(&disk).unwrap();
    let boot = metadata.begin_boot(true).unwrap();
    let id = PartitionId { topic: TopicId([7; 16]), index: 0 };
    let topic =
        TopicMetadata { name: "t".to_owned(), id: id.topic, partitions: 1, configs: Default::default() };
    metadata.create_topic(&topic).unwrap();
    let mut logs = Logs::open(data_dir, Options::default(), boot).unwrap();
    logs.open_partition(id, "t", LogConfig::default()).unwrap();
    logs.enable_key_index(id).unwrap();
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    for _ in 0..3 {
        batch.append(5, Some(b"k"), Some(b"a\xff"), &[]);
    }
    let batch = batch.build(Offset(0), -1).try_into_mut().unwrap();
    logs.append(id, batch, Origin::Client, 5).unwrap();
    logs.close().unwrap();
    dir.join("t-0")
}

fn log(arguments: &[&str], dir: &str) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        sluice(&[&["log"], arguments, &["--data-dir", dir]].concat()).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn log_looks_at_a_data_directory_and_finds_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let partition = a_log(dir.path());
    let (code, text) = log(&["verify"], path);
    assert_eq!((code, text.lines().last()), (Some(0), Some("1 partitions checked, 0 findings")), "{text}");
    let (code, text) = log(&["describe", "--topic", "t"], path);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("t-0: offsets 0 to 3, 3 records,"), "{text}");
    assert!(text.contains("\n  key index of segment 0: to 3, 3 records, "), "{text}");
    let (code, text) = log(&["dump", "--topic", "t", "--partition", "0", "--records"], path);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("offsets 0 to 2, 3 records") && text.contains("\"k\" = \"a\\xff\""), "{text}");
    for wrong in [&["describe", "--topic", "u"][..], &["verify", "--topic", "t", "--partition", "1"]] {
        let (code, text) = log(wrong, path);
        assert!(code == Some(1) && text.contains("no such partition"), "{text}");
    }
    assert_eq!(log(&["verify", "--partition", "1"], path).0, Some(2));
    assert_eq!(log(&["verify"], "/no/such/directory").0, Some(1));
    let file = partition.join("00000000000000000000.keyindex");
    let sound = std::fs::read(&file).unwrap();
    let mut bytes = sound.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, text) = log(&["verify"], path);
    assert!(code == Some(1) && text.contains("WRONG t-0/00000000000000000000.keyindex: "), "{text}");
    assert!(text.contains("delete it while the broker is stopped"), "{text}");
    std::fs::write(&file, sound).unwrap();
    let file = partition.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, text) = log(&["verify"], path);
    assert!(code == Some(1) && text.contains("WRONG t-0/00000000000000000000.log at byte 0: crc"), "{text}");
}

#[test]
fn r12_too_low_a_limit_of_files_is_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir.path()).unwrap());
    let configs = std::collections::BTreeMap::new();
    let topic = TopicMetadata { name: "t".to_owned(), id: TopicId([1; 16]), partitions: 60, configs };
    Metadata::open(&disk).unwrap().create_topic(&topic).unwrap();
    for (limit, is_told) in [(200, true), (400, false)] {
        let line = format!("ulimit -n {limit}; exec \"$0\" serve --listen 127.0.0.1:0 --data-dir {path}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_sluice")]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let mut stderr = child.stderr.take().unwrap();
        assert_eq!(stop(child, Signal::TERM).0, Some(0), "{ready}");
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        let told = format!("limit of open files is {limit}, and 60 partitions may need 304");
        assert_eq!(text.contains(&told), is_told, "{text}");
    }
}
