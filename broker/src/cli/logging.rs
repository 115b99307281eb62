//! Logs to stderr: one line an event, control characters escaped, since names in there come from strangers.

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// What is logged unless `SLUICE_LOG` says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Starts logging. Later calls change nothing.
pub(super) fn start() {
    let filter = EnvFilter::try_from_env("SLUICE_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(Escaped)
        .try_init();
}

/// Makes writers that let no control character through but line ends and this program's own colours.
#[derive(Clone, Copy, Debug)]
struct Escaped;

impl<'a> MakeWriter<'a> for Escaped {
    type Writer = EscapedLine;

    fn make_writer(&'a self) -> Self::Writer {
        EscapedLine { colours: io::stderr().is_terminal() }
    }
}

/// Writes an event's line.
#[derive(Debug)]
struct EscapedLine {
    colours: bool,
}

impl Write for EscapedLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log that cannot be written (a full disk, a closed pipe) is no reason to stop serving.
        let _ = io::stderr().lock().write_all(&escape(bytes, self.colours));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// The line with its control characters escaped, but for the line end. On a terminal the escape sequences of colours
/// (`ESC [ digits m`) stay: they can do no harm.
fn escape(line: &[u8], colours: bool) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(line.len());
    let (body, end) = match line.strip_suffix(b"\n") {
        Some(body) => (body, &b"\n"[..]),
        None => (line, &b""[..]),
    };
    let mut at = 0;
    while at < body.len() {
        let byte = body[at];
        if byte == 0x1b
            && colours
            && let Some(length) = colour(&body[at..])
        {
            escaped.extend_from_slice(&body[at..at + length]);
            at += length;
            continue;
        }
        if byte < 0x20 || byte == 0x7f {
            escaped.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        } else if byte == 0xc2 && body.get(at + 1).is_some_and(|next| (0x80..0xa0).contains(next)) {
            // C1 controls, of which some terminals obey the 8-bit form.
            escaped.extend_from_slice(format!("\\u{{{:x}}}", body[at + 1]).as_bytes());
            at += 1;
        } else {
            escaped.push(byte);
        }
        at += 1;
    }
    escaped.extend_from_slice(end);
    escaped
}

fn colour(bytes: &[u8]) -> Option<usize> {
    let inner = bytes.strip_prefix(b"\x1b[")?;
    let digits = inner.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    (inner.get(digits) == Some(&b'm')).then_some(digits + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b11_control_characters_are_escaped() {
        assert_eq!(escape(b"a\tb\rc\x1b[2Jd\x7f\n", true), b"a\\x09b\\x0dc\\x1b[2Jd\\x7f\n");
        assert_eq!(escape("x\u{9b}31my".as_bytes(), true), b"x\\u{9b}31my");
        assert_eq!(escape("größe".as_bytes(), false), "größe".as_bytes());
        assert_eq!(escape(b"two\nlines\n", false), b"two\\x0alines\n");
    }

    #[test]
    fn colours_stay_on_a_terminal_only() {
        assert_eq!(escape(b"\x1b[1;31mred\x1b[0m\n", true), b"\x1b[1;31mred\x1b[0m\n");
        assert_eq!(escape(b"\x1b[1mx", false), b"\\x1b[1mx");
    }
}
