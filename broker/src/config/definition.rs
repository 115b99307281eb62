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
    /// The number −1, or one between bounds, both included.
    MinusOneOr(i32, i32),
    /// `false`: a switch that cannot be turned on here, with the reason.
    Off(&'static str),
    /// Comma-separated words out of these; any words where there are none.
    List(&'static [&'static str]),
    /// Comma-separated PARTITION:BROKER pairs, or `*` (`ThrottledReplicaListValidator`).
    Replicas,
}

impl Kind {
    /// The number of this type in DescribeConfigs answers (`DescribeConfigsResponse.ConfigType`).
    #[must_use]
    pub const fn wire_type(&self) -> i8 {
        match self {
            Self::Boolean | Self::Off(_) => 1,
            Self::Text | Self::Choice(_) => 2,
            Self::Int(..) | Self::MinusOneOr(..) => 3,
            Self::Short(..) => 4,
            Self::Long(..) => 5,
            Self::Double(..) => 6,
            Self::List(_) | Self::Replicas => 7,
        }
    }

    /// Whether values are lists, to which append and subtract apply.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::Replicas)
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

/// A setting of a topic or a group, which falls back to settings of the broker.
pub(super) const fn on(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    fallbacks: &'static [Fallback],
    doc: &'static str,
) -> Definition {
    Definition::new(name, kind, default, doc).falls_back(fallbacks)
}

/// The broker settings that [`on`] falls back to, in order: names, each with a factor where the unit differs.
macro_rules! broker {
    ($($name:literal $(* $factor:literal)?),*) => {
        &[$($crate::config::definition::Fallback { name: $name, factor: 1 $(* $factor)? }),*]
    };
}
pub(super) use broker;

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

    /// Checks a value and gives it in its plain form (trimmed, list entries once).
    ///
    /// # Errors
    /// Where the setting does not take it; the message names setting, value and what is expected.
    pub fn parse(&self, value: &str) -> Result<String, InvalidValue> {
        self.kind.parse(value).map_err(|reason| self.refuse(value, reason))
    }

    /// The refusal of a value of this setting.
    #[must_use]
    pub fn refuse(&self, value: &str, reason: String) -> InvalidValue {
        InvalidValue { name: self.name.to_owned(), value: value.escape_debug().to_string(), reason }
    }
}

impl Kind {
    fn parse(&self, value: &str) -> Result<String, String> {
        let trimmed = value.trim();
        match *self {
            Self::Boolean => boolean(trimmed).map(|on| on.to_string()),
            Self::Off(reason) => match boolean(trimmed)? {
                true => Err(reason.to_owned()),
                false => Ok(false.to_string()),
            },
            Self::Short(low, high) => within(trimmed, low, high),
            Self::Int(low, high) => within(trimmed, low, high),
            Self::MinusOneOr(low, high) => match trimmed {
                "-1" => Ok(trimmed.to_owned()),
                _ => within(trimmed, low, high).map_err(|reason| format!("{reason}, or -1")),
            },
            Self::Long(low, high) => within(trimmed, low, high),
            Self::Double(low, high) => within(trimmed, low, high).map(|_| trimmed.to_owned()),
            Self::Text => Ok(value.to_owned()),
            Self::Choice(words) => one_of(trimmed, words),
            Self::List(words) => entries(trimmed, |entry| words.is_empty() || words.contains(&entry))
                .map_err(|entry| match entry.as_str() {
                    "" => "an entry of the list is empty".to_owned(),
                    _ if words.is_empty() => format!("{entry} is no entry"),
                    _ => format!("{entry} is not one of {}", words.join(", ")),
                }),
            Self::Replicas if trimmed == "*" => Ok(trimmed.to_owned()),
            Self::Replicas => entries(trimmed, is_replica)
                .map_err(|_| "expected * or a list such as 0:1,1:1 of PARTITION:BROKER".to_owned()),
        }
    }
}

fn boolean(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn one_of(word: &str, words: &[&str]) -> Result<String, String> {
    match words.contains(&word) {
        true => Ok(word.to_owned()),
        false => Err(format!("expected one of {}", words.join(", "))),
    }
}

/// A list in plain form, or the first entry that cannot be. No text at all is the empty list; an empty entry beside
/// others is none (`ConfigDef.ValidList`).
fn entries(value: &str, good: impl Fn(&str) -> bool) -> Result<String, String> {
    if value.is_empty() {
        return Ok(String::new());
    }
    match value.split(',').map(str::trim).find(|entry| entry.is_empty() || !good(entry)) {
        Some(entry) => Err(entry.escape_debug().to_string()),
        None => Ok(list(value).join(",")),
    }
}

fn is_replica(entry: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    entry.split_once(':').is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
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
    let range = match high.to_string() {
        // The type's own end is no bound that someone set.
        top if top == i64::MAX.to_string() || top == i32::MAX.to_string() => format!("of at least {low}"),
        top => format!("from {low} to {top}"),
    };
    match value.parse::<T>() {
        Ok(number) if low <= number && number <= high => Ok(number.to_string()),
        Ok(_) => Err(format!("expected a number {range}")),
        Err(_) => Err(format!("not a number of this type, expected one {range}")),
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
    }

    #[test]
    fn doubles_stay_as_written() {
        assert_eq!(definition(Kind::Double(0.0, 1.0)).parse(" 1.0 ").unwrap(), "1.0");
    }

    #[test]
    fn a04_lists_hold_known_entries_once_and_no_empty_ones() {
        let list = definition(Kind::List(&["a", "b"]));
        assert_eq!(list.parse("a, b,a").unwrap(), "a,b");
        assert_eq!(list.parse("").unwrap(), "");
        for bad in ["a,c", ",", "a,,b", "a,"] {
            assert!(list.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a04_throttled_replicas_are_pairs_or_all() {
        let replicas = definition(Kind::Replicas);
        for good in ["", "*", "0:1", "0:1,1:2"] {
            assert_eq!(replicas.parse(good).unwrap(), good);
        }
        for bad in ["foo", "0", "0:", ":1", "0:1,", "0:-1", "*,0:1"] {
            assert!(replicas.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_refused_is_told_with_its_reason() {
        let choice = definition(Kind::Choice(&["a"]));
        assert_eq!(choice.parse("a").unwrap(), "a");
        assert!(choice.parse("c").unwrap_err().to_string().contains("expected one of a"));
        let off = definition(Kind::Off("there is none"));
        assert_eq!(off.parse("False").unwrap(), "false");
        assert!(off.parse("true").unwrap_err().to_string().contains("there is none"));
        let level = definition(Kind::MinusOneOr(1, 9));
        assert_eq!(level.parse("-1").unwrap(), "-1");
        assert!(level.parse("0").is_err());
    }

    #[test]
    fn messages_escape_control_characters() {
        let error = definition(Kind::Boolean).parse("\u{1b}[31m").unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'));
    }
}
