//! Topic names (`org.apache.kafka.common.internals.Topic`).

/// Longest topic name: with a partition number behind it, it is the name of a directory.
pub const NAME_BYTES_MAX: usize = 249;

/// Why a name is not one of a topic. Texts bear no part of the name that could harm a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No characters.
    #[error("topic name is empty: give it one")]
    Empty,
    /// `.` or `..`, which are directories.
    #[error("topic name cannot be . or ..: choose another")]
    Dots,
    /// More than [`NAME_BYTES_MAX`] characters.
    #[error("topic name is longer than {NAME_BYTES_MAX} characters: shorten it")]
    TooLong,
    /// A character that file names or metrics cannot bear.
    #[error("topic name may hold letters, digits, dots, underscores and dashes only: choose another")]
    Character,
    /// Metrics make `.` and `_` one character.
    #[error("topic name collides with {0}, since . and _ count as alike: choose another")]
    Collides(String),
}

/// Checks a name by itself.
///
/// # Errors
/// Where it is not a topic's.
pub fn check(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        "." | ".." => Err(NameError::Dots),
        _ if name.len() > NAME_BYTES_MAX => Err(NameError::TooLong),
        _ if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) => {
            Err(NameError::Character)
        }
        _ => Ok(()),
    }
}

/// The name as metrics see it: two topics may not share it.
#[must_use]
pub fn metric_name(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_a13_b11_names_are_kafkas() {
        let longest = "n".repeat(249);
        for good in ["a", "A-b_c.9", "...", "__consumer_offsets", longest.as_str()] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let too_long = "n".repeat(250);
        for bad in ["", ".", "..", "a b", "../x", "a/b", "a\0b", "ä", "a\u{1b}", too_long.as_str()] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.chars().all(|c| !c.is_control()), "{bad:?}");
        }
    }
}
