//! The `sluice` command: what it prints, how it ends, and with which exit code.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};

use broker::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

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
