//! What the clients of a test write down: one line an event, tab-separated (`foreign/README.md` has the format).

use std::path::Path;
use std::{fs, io};

/// One line of an event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Wall clock in nanoseconds since 1970, the same for all processes of one machine.
    pub at_ns: i64,
    /// Name of the client that wrote it.
    pub member: String,
    /// What happened.
    pub what: What,
    /// Partition of the record, −1 where the event has none.
    pub partition: i32,
    /// Offset of the record, −1 where the event has none.
    pub offset: i64,
    /// Key of the record; `None` for a keyless one.
    pub key: Option<String>,
    /// Delivery count that came with the record, 0 outside share groups.
    pub deliveries: i32,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A record was acknowledged to its producer.
    Produced,
    /// A record reached an ordinary consumer.
    Consumed,
    /// A share worker begins to poll.
    Ready,
    /// Work on a record begins.
    Start,
    /// Work on a record succeeded; it is accepted next.
    Success,
    /// Work on a record failed; it is released next.
    Release,
    /// Work on a record was dropped unfinished, since its lease was lost.
    Abandoned,
    /// The client was told that an acknowledgement failed.
    AckFailed,
    /// The test killed the client; written by the test, with the time before it did.
    Killed,
    /// The client ended in order.
    End,
}

impl What {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "produced" => Self::Produced,
            "consumed" => Self::Consumed,
            "ready" => Self::Ready,
            "start" => Self::Start,
            "success" => Self::Success,
            "release" => Self::Release,
            "abandoned" => Self::Abandoned,
            "ack-failed" => Self::AckFailed,
            "killed" => Self::Killed,
            "end" => Self::End,
            _ => return None,
        })
    }
}

/// A line that is no event, with its number from 1.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of the event log is no event: {text}")]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
}

/// Parses a log. A last line without its end is left out: its writer was killed over it.
pub fn parse(text: &str) -> Result<Vec<Event>, BadLine> {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole
        .lines()
        .enumerate()
        .map(|(index, line)| {
            parse_line(line).ok_or_else(|| BadLine { line: index + 1, text: line.to_owned() })
        })
        .collect()
}

/// Reads a log file; one that is not there yet is empty. Panics on a file that cannot be read or is no log.
pub fn read(path: &Path) -> Vec<Event> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    parse(&text).unwrap_or_else(|bad| panic!("{}: {bad}", path.display()))
}

fn parse_line(line: &str) -> Option<Event> {
    let mut fields = line.split('\t');
    let event = Event {
        at_ns: fields.next()?.parse().ok()?,
        member: fields.next()?.to_owned(),
        what: What::parse(fields.next()?)?,
        partition: fields.next()?.parse().ok()?,
        offset: fields.next()?.parse().ok()?,
        key: Some(fields.next()?).filter(|&key| key != "-").map(str::to_owned),
        deliveries: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events() {
        let events = parse("5\tm\tstart\t0\t7\tk1\t2\n6\tm\tend\t-1\t-1\t-\t0\n7\tm\tsta").unwrap();
        assert_eq!(
            events[0],
            Event {
                at_ns: 5,
                member: "m".into(),
                what: What::Start,
                partition: 0,
                offset: 7,
                key: Some("k1".into()),
                deliveries: 2
            }
        );
        assert_eq!(events[1].key, None);
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        for bad in ["", "5\tm\tstart\t0\t7\tk1", "5\tm\tfoo\t0\t7\tk1\t2", "5\tm\tend\t0\t7\tk1\t2\tx"] {
            let error = parse(&format!("6\tm\tend\t-1\t-1\t-\t0\n{bad}\n")).unwrap_err();
            assert_eq!(error, BadLine { line: 2, text: bad.to_owned() });
        }
    }
}
