//! Times on the command line: milliseconds since 1970 and ISO 8601 (`2026-11-30T12:00:00Z`), without a calendar crate.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A time as people write it, in UTC to the millisecond; −1 and less is none.
pub(super) fn shown(ms: i64) -> String {
    if ms < 0 {
        return "-".to_owned();
    }
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date_of(days);
    let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", rest % 1_000)
}

/// Milliseconds since 1970 of digits alone, or of `YYYY-MM-DDTHH:MM[:SS[.mmm]]` with `Z`, `+HH:MM` or `-HH:MM`.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    const HOW: &str = "expected milliseconds since 1970, or a time such as 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00";
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| HOW.to_owned());
    }
    parse_iso(text).ok_or_else(|| HOW.to_owned())
}

fn parse_iso(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| number(part, part.len()));
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let offset_ms = match zone {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
            let ms = (hours * 60 + minutes) * 60_000;
            if zone.starts_with('-') { -ms } else { ms }
        }
    };
    let mut clock = clock.splitn(3, ':');
    let (hours, minutes) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let (seconds, millis) = match clock.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            Some((seconds, millis)) => (number(seconds, 2)?, number(millis, 3)?),
            None => (number(seconds, 2)?, 0),
        },
    };
    let valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hours < 24
        && minutes < 60
        && seconds < 60;
    let ms = days_of(year, month, day) * DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis;
    valid.then_some(ms - offset_ms).filter(|ms| *ms >= 0)
}

/// Exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn days_in(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_of(next_year, next_month, 1) - days_of(year, month, 1)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the leap day is the
/// last of its year.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The date that lies so many days behind 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let mut year = 1970 + days / 366;
    while days_of(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_of(year, month + 1, 1) <= days {
        month += 1;
    }
    (year, month, days - days_of(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T12:30:05.007Z", 951_827_405_007),
            ("2026-11-30T01:36:06.000Z", 1_796_002_566_000),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400_000),
        ] {
            assert_eq!(shown(ms), text);
            assert_eq!(parse(text), Ok(ms), "{text}");
        }
        assert_eq!(shown(-1), "-");
    }

    #[test]
    fn every_day_of_four_centuries_has_its_date() {
        for days in (0..146_097).step_by(13) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days);
            assert!((1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day));
        }
    }

    #[test]
    fn zones_and_short_forms() {
        assert_eq!(parse("1796002566000"), Ok(1_796_002_566_000));
        assert_eq!(parse("2026-11-30T01:36Z"), Ok(1_796_002_560_000));
        assert_eq!(parse("2026-11-30T02:36:06+01:00"), Ok(1_796_002_566_000));
        assert_eq!(parse("2026-11-29T20:06:06-05:30"), Ok(1_796_002_566_000));
        for bad in [
            "",
            "yesterday",
            "2026-11-30",
            "2026-11-30T01:36",
            "2026-02-30T00:00Z",
            "2026-13-01T00:00Z",
            "2026-11-30T24:00Z",
            "2026-11-30T01:36:06.5Z",
            "2026-11-30T01:36:06+0100",
            "99999999999999999999",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
