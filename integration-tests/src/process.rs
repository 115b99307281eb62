//! A program that a test runs: its output is gathered, waits on it are bounded, and it ends with its owner.

use std::fmt;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::real_time::Deadline;

/// What is kept of each output stream; the rest is read and dropped, so that the program never blocks on it.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// A killed program is reaped within this time, or the machine is beyond repair.
const REAP_LIMIT: Duration = Duration::from_secs(30);

/// A running program. Dropping it kills the program, by its id.
pub struct Process {
    name: String,
    child: Child,
    /// Becomes readable when the program ends, and names it for good, whatever happens to its number.
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Arc<Stream>,
    stderr: Arc<Stream>,
}

/// A program that has ended.
#[derive(Clone)]
pub struct Finished {
    /// What was run, for messages.
    pub name: String,
    /// How it ended; `None` when it had to be killed at its time limit.
    pub status: Option<ExitStatus>,
    /// All that it printed on standard output.
    pub stdout: String,
    /// All that it printed on standard error.
    pub stderr: String,
}

impl Process {
    /// Starts `command`; `name` stands in messages. Panics when it cannot be started.
    pub fn spawn(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let pid = Pid::from_child(&child);
        let pidfd =
            pidfd_open(pid, PidfdFlags::empty()).expect("a child that was not waited for has a pidfd");
        let stdout = Stream::gather(child.stdout.take().expect("stdout was asked for"));
        let stderr = Stream::gather(child.stderr.take().expect("stderr was asked for"));
        Self { name: name.to_owned(), stdin: child.stdin.take(), child, pidfd, stdout, stderr }
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to the program's standard input. An error (it has ended) is left to whoever waits for it.
    pub fn write_stdin(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(bytes).and_then(|()| stdin.flush());
        }
    }

    /// Ends the program's standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Standard output up to now.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Standard error up to now.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits at most `limit` for a whole line of standard output that `wanted` accepts.
    pub fn wait_for_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.stdout.wait_for_line(limit, wanted)
    }

    /// Waits at most `limit` for the end of the program; `None` when it still runs.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Deadline::after(limit);
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Some(status);
            }
            let left = deadline.left();
            if left.is_zero() {
                return None;
            }
            let timeout = Timespec::try_from(left).expect("limits are short");
            // An interrupted poll is as good as a spurious wake-up: the loop looks again.
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timeout));
        }
    }

    /// Sends a signal. Nothing happens when the program has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends the program at once (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        if self.child.try_wait().expect("a child can be waited for").is_none() {
            let _ = self.child.kill();
            assert!(
                self.wait(REAP_LIMIT).is_some(),
                "{} did not end within {REAP_LIMIT:?} of SIGKILL",
                self.name
            );
        }
    }

    /// Waits at most `limit` for its end, kills it then, and hands out what it printed.
    pub fn finish(mut self, limit: Duration) -> Finished {
        let status = self.wait(limit);
        self.kill();
        self.stdout.wait_for_end();
        self.stderr.wait_for_end();
        Finished { name: self.name.clone(), status, stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Finished {
    /// Panics, with all that it printed, unless it ended with exit code 0.
    #[track_caller]
    pub fn expect_success(&self) -> &Self {
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
        self
    }

    /// The exit code, where it ended by itself.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{} ended with {status}", self.name)?,
            None => write!(f, "{} did not end within its time", self.name)?,
        }
        write!(f, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr)
    }
}

/// Resident memory of a process, in bytes. Panics when it does not run.
pub fn resident_bytes(id: u32) -> u64 {
    status_bytes(id, "VmRSS:")
}

/// Processor time that a process has used up to now, in steps of 10 ms. Panics when it does not run.
pub fn cpu_time(id: u32) -> Duration {
    // Linux counts in hundredths of a second here, whatever its own clock does (USER_HZ).
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("a running process has figures");
    // The name, in brackets, may hold anything. Behind it: state is field 3, user and system time are 14 and 15.
    let (_, figures) = stat.rsplit_once(')').expect("the kernel puts the name in brackets");
    let figures: Vec<&str> = figures.split_whitespace().collect();
    let ticks = |field: usize| figures[field - 3].parse::<u32>().expect("times are numbers");
    TICK * (ticks(14) + ticks(15))
}

/// A figure in bytes of `/proc/ID/status`.
pub(crate) fn status_bytes(id: u32, field: &str) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{id}/status")).expect("a running process has a status");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the kernel reports memory");
    let kib: Option<u64> = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok());
    kib.expect("memory is a number of KiB") * 1024
}

/// Runs a program with `input` on its standard input, for at most `limit`.
pub fn run(name: &str, command: Command, input: &[u8], limit: Duration) -> Finished {
    let mut process = Process::spawn(name, command);
    process.write_stdin(input);
    process.close_stdin();
    process.finish(limit)
}

/// One output stream, gathered by a thread of its own.
#[derive(Default)]
struct Stream {
    gathered: Mutex<Gathered>,
    more: Condvar,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    ended: bool,
}

impl Stream {
    fn gather(mut source: impl Read + Send + 'static) -> Arc<Self> {
        let stream = Arc::new(Self::default());
        let sink = Arc::clone(&stream);
        thread::spawn(move || {
            let mut chunk = vec![0; 16 << 10];
            loop {
                let read = source.read(&mut chunk).unwrap_or(0);
                let mut gathered = sink.gathered.lock().unwrap_or_else(PoisonError::into_inner);
                let room = OUTPUT_BYTES_MAX - gathered.bytes.len();
                gathered.bytes.extend_from_slice(&chunk[..read.min(room)]);
                gathered.ended = read == 0;
                sink.more.notify_all();
                if gathered.ended {
                    return;
                }
            }
        });
        stream
    }

    fn text(&self) -> String {
        let gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&gathered.bytes).into_owned()
    }

    fn wait_for_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Deadline::after(limit);
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let text = String::from_utf8_lossy(&gathered.bytes);
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(line) = whole.lines().find(|line| wanted(line)) {
                return Some(line.to_owned());
            }
            if gathered.ended || deadline.is_over() {
                return None;
            }
            gathered =
                self.more.wait_timeout(gathered, deadline.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A grandchild may hold the stream open after the program's end: what is there within a moment is enough.
    fn wait_for_end(&self) {
        let deadline = Deadline::after(Duration::from_secs(2));
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        while !gathered.ended && !deadline.is_over() {
            gathered =
                self.more.wait_timeout(gathered, deadline.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_exit_code_are_handed_out() {
        let finished = run("sh", shell("cat; echo err >&2; exit 3"), b"in", Duration::from_secs(10));
        assert_eq!(finished.code(), Some(3));
        assert_eq!(finished.stdout, "in");
        assert_eq!(finished.stderr, "err\n");
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_its_limit() {
        let finished = run("sh", shell("exec sleep 60"), b"", Duration::from_millis(100));
        assert_eq!(finished.status, None);
    }

    #[test]
    fn lines_are_waited_for() {
        let process = Process::spawn("sh", shell("echo one; echo two; exec sleep 60"));
        let line = process.wait_for_line(Duration::from_secs(10), |line| line.starts_with("tw"));
        assert_eq!(line.as_deref(), Some("two"));
        assert_eq!(process.wait_for_line(Duration::from_millis(50), |line| line == "three"), None);
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let process = Process::spawn("sh", shell("exec sleep 60"));
        let proc = std::path::PathBuf::from(format!("/proc/{}", process.id()));
        assert!(proc.exists());
        drop(process);
        assert!(!proc.exists());
    }
}
