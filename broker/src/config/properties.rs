//! The Java properties format, as `server.properties` of Apache Kafka uses it.

/// A line that is not of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Malformed {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Reads names and values in their order, each with its line number (from 1).
///
/// Comments begin with `#` or `!`; a backslash at the end of a line continues it; name and value are parted by `=`,
/// `:` or blanks; `\t \n \r \f \uXXXX` stand for characters, any other `\c` for `c` (`java.util.Properties.load`).
///
/// # Errors
/// On a broken `\u` escape or a line without a name.
pub fn read(text: &str) -> Result<Vec<(usize, String, String)>, Malformed> {
    let mut entries = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let line = index + 1;
        let start = first.trim_start();
        if start.is_empty() || start.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = start.to_owned();
        while continues(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let (name, value) = split(&logical);
        if name.is_empty() {
            return Err(Malformed { line, reason: "a setting needs a name before its value" });
        }
        let unescaped = |text: &str| {
            unescape(text)
                .ok_or(Malformed { line, reason: "\\u must be followed by four hexadecimal digits" })
        };
        entries.push((line, unescaped(name)?, unescaped(value.trim_end())?));
    }
    Ok(entries)
}

fn continues(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' => return (&line[..at], line[at + 1..].trim_start()),
            c if c.is_whitespace() => {
                let rest = line[at..].trim_start();
                let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
                return (&line[..at], rest.trim_start());
            }
            _ => {}
        }
    }
    (line, "")
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = (digits.len() == 4).then(|| u32::from_str_radix(&digits, 16).ok())??;
                plain.push(char::from_u32(code)?);
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        read(text).unwrap().into_iter().map(|(_, name, value)| (name, value)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn reads_what_kafka_users_write() {
        let text = "# comment\n! another\n\nnum.partitions=3\nlog.dirs = /a b \nlisteners:PLAINTEXT://h:1\nkey value\n\
                    long=a,\\\n   b\nempty=\n";
        assert_eq!(
            pairs(text),
            [
                pair("num.partitions", "3"),
                pair("log.dirs", "/a b"),
                pair("listeners", "PLAINTEXT://h:1"),
                pair("key", "value"),
                pair("long", "a,b"),
                pair("empty", ""),
            ]
        );
    }

    #[test]
    fn escapes() {
        assert_eq!(pairs("a\\=b=\\u0041\\tc\\\\"), [pair("a=b", "A\tc\\")]);
        assert_eq!(read("\nx=\\u00").unwrap_err().line, 2);
        assert_eq!(read("=x").unwrap_err().line, 1);
    }
}
