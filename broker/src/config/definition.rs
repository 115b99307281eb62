//! What a setting is: its name, what values it takes, its default, and what it means.

use std::fmt;

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A 16-bit number between bounds, both included.
    Short(i16, i16),
    /// A 32-bit number between bounds, both included.
    Int(i32, i32),
    /// A 64-bit number between bounds, both included.
    Long(i64, i64),
    /// A real number between bounds, both included.
    Double(f64, f64),
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Comma-separated words out of these; any words where there are none.
    List(&'static [&'static str]),
}

/// The number of a value's type in DescribeConfigs answers (`ConfigEntry.ConfigType`).
impl Kind {
    /// Kafka's number of this type.
    #[must_use]
    pub const fn wire_type(&self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::Text | Self::Choice(_) => 2,
            Self::Int(..) => 3,
            Self::Short(..) => 4,
            Self::Long(..) => 5,
            Self::Double(..) => 6,
            Self::List(_) => 7,
        }
    }

    /// Whether values are lists, to which append and subtract apply.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self, Self::List(_))
    }
}

/// A broker setting that a topic's or group's setting falls back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The broker setting's name.
    pub name: &'static str,
    /// Its value times this is the value here (hours to milliseconds).
    pub factor: i64,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name, Kafka's where Kafka has it.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// What holds where nobody set it; `None`: nothing does.
    pub default: Option<&'static str>,
    /// Broker settings whose value is the default, the first that has one.
    pub fallbacks: &'static [Fallback],
    /// What it means, for people.
    pub doc: &'static str,
}

/// A value that a setting does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidValue {
    /// The setting.
    pub name: String,
    /// The value.
    pub value: String,
    /// What it should be.
    pub reason: String,
}

impl Definition {
    /// A broker setting.
    #[must_use]
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, default, fallbacks: &[], doc }
    }

    /// The same with broker settings to fall back to.
    #[must_use]
    pub(crate) const fn falls_back(mut self, fallbacks: &'static [Fallback]) -> Self {
        self.fallbacks = fallbacks;
        self
    }

    /// Checks a value and gives it in its plain form (trimmed, without empty list entries).
    ///
    /// # Errors
    /// Where the setting does not take it; the message names setting, value and what is expected.
    pub fn parse(&self, value: &str) -> Result<String, InvalidValue> {
        let trimmed = value.trim();
        let refuse = |reason: String| {
            Err(InvalidValue { name: self.name.to_owned(), value: value.escape_debug().to_string(), reason })
        };
        match self.kind {
            Kind::Boolean => match trimmed.to_ascii_lowercase().as_str() {
                word @ ("true" | "false") => Ok(word.to_owned()),
                _ => refuse("expected true or false".to_owned()),
            },
            Kind::Short(low, high) => within(trimmed, low, high).or_else(refuse),
            Kind::Int(low, high) => within(trimmed, low, high).or_else(refuse),
            Kind::Long(low, high) => within(trimmed, low, high).or_else(refuse),
            Kind::Double(low, high) => within(trimmed, low, high).or_else(refuse),
            Kind::Text => Ok(value.to_owned()),
            Kind::Choice(words) => match words.iter().find(|word| **word == trimmed) {
                Some(word) => Ok((*word).to_owned()),
                None => refuse(format!("expected one of {}", words.join(", "))),
            },
            Kind::List(words) => {
                let entries = list(trimmed);
                match entries.iter().find(|entry| !words.is_empty() && !words.contains(entry)) {
                    Some(entry) => {
                        refuse(format!("{} is not one of {}", entry.escape_debug(), words.join(", ")))
                    }
                    None => Ok(entries.join(",")),
                }
            }
        }
    }
}

/// The entries of a list value, in order, each once.
#[must_use]
pub fn list(value: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

fn within<T>(value: &str, low: T, high: T) -> Result<String, String>
where
    T: std::str::FromStr + PartialOrd + Copy + fmt::Display,
{
    match value.parse::<T>() {
        Ok(number) if low <= number && number <= high => Ok(number.to_string()),
        Ok(_) => Err(format!("expected a number from {low} to {high}")),
        Err(_) => Err(format!("not a number of this type, expected {low} to {high}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(kind: Kind) -> Definition {
        Definition::new("x", kind, None, "")
    }

    #[test]
    fn values_are_checked_by_kind() {
        assert_eq!(definition(Kind::Boolean).parse(" TRUE ").unwrap(), "true");
        assert!(definition(Kind::Boolean).parse("yes").is_err());
        assert_eq!(definition(Kind::Int(0, 9)).parse("7").unwrap(), "7");
        assert!(definition(Kind::Int(0, 9)).parse("10").is_err());
        assert!(definition(Kind::Int(0, 9)).parse("seven").is_err());
        assert_eq!(definition(Kind::Double(0.0, 1.0)).parse("0.5").unwrap(), "0.5");
        assert!(definition(Kind::Double(0.0, 1.0)).parse("NaN").is_err());
        assert_eq!(definition(Kind::Choice(&["a", "b"])).parse("b").unwrap(), "b");
        assert!(definition(Kind::Choice(&["a", "b"])).parse("c").is_err());
        assert_eq!(definition(Kind::List(&["a", "b"])).parse("a, b,a,").unwrap(), "a,b");
        assert!(definition(Kind::List(&["a", "b"])).parse("a,c").is_err());
    }

    #[test]
    fn messages_escape_control_characters() {
        let error = definition(Kind::Boolean).parse("\u{1b}[31m").unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'));
    }
}
