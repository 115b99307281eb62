//! The demo's records: every departure from New York in 2013, in the order in which they were scheduled.
//!
//! Owner: the demo. Input: `broker/demo/flights.bin.zst`, which stands inside the binary. Output: rows, each with
//! the key (the aircraft's tail number) and the value (one line of JSON) that the demo produces.
//!
//! Layout of the file, a zstd frame of little-endian data: the magic `flights1`; the dictionaries of carriers,
//! airports and tail numbers (u16 count, then u8 length and ASCII bytes of each); u32 row count; then the columns.
//! A u16 column is stored as all its low bytes followed by all its high bytes. Columns: minutes since the row before
//! (u16; the first since New Year), carrier (u8), flight number (u16), tail (u16, 0xFFFF none), origin (u8),
//! destination (u8), departure delay (i16, −32768 none), arrival delay (i16, same), air time (u16, 0xFFFF none).

use std::fmt::Write as _;
use std::ops::Range;

const PACKED: &[u8] = include_bytes!("../../demo/flights.bin.zst");
const MAGIC: &[u8] = b"flights1";
/// Bound on the inflated file: the real one has 5 MB.
const INFLATED_BYTES_MAX: usize = 16 << 20;
const TAIL_NONE: u16 = u16::MAX;
const AIR_TIME_NONE: u16 = u16::MAX;
const DELAY_NONE: i16 = i16::MIN;
const MINUTES_A_DAY: u32 = 1440;
const DAYS_A_MONTH_2013: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// All departures, inflated: about 5 MB, dropped with the value.
#[derive(Debug)]
pub struct Flights {
    data: Vec<u8>,
    carriers: Vec<Range<usize>>,
    airports: Vec<Range<usize>>,
    tails: Vec<Range<usize>>,
    rows: usize,
    columns: usize,
}

/// One departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight<'a> {
    /// Scheduled departure in minutes since 2013-01-01 00:00, local time.
    pub scheduled_minute: u32,
    /// IATA code of the airline.
    pub carrier: &'a str,
    /// The airline's flight number.
    pub number: u16,
    /// Tail number of the aircraft: the record's key. `None` for a flight that never got one.
    pub tail: Option<&'a str>,
    /// IATA code of the airport it leaves from.
    pub origin: &'a str,
    /// IATA code of the airport it goes to.
    pub destination: &'a str,
    /// Minutes late at departure, negative when early; `None` when it was cancelled.
    pub departure_delay: Option<i16>,
    /// Minutes late at arrival; `None` when it never arrived as planned.
    pub arrival_delay: Option<i16>,
    /// Minutes in the air.
    pub air_time: Option<u16>,
}

/// The file inside the binary is not what this code was built for.
#[derive(Debug, thiserror::Error)]
#[error("the demo's flights cannot be read ({0}): rebuild from a clean checkout")]
pub struct FlightsError(&'static str);

impl Flights {
    /// Inflates the departures that are built into the binary.
    pub fn load() -> Result<Self, FlightsError> {
        Self::unpack(PACKED)
    }

    /// Number of departures.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The departures in scheduled order.
    pub fn iter(&self) -> impl Iterator<Item = Flight<'_>> {
        (0..self.rows).scan(0u32, |minute, row| {
            *minute += u32::from(self.u16_at(0, row));
            Some(self.flight(*minute, row))
        })
    }

    fn unpack(packed: &[u8]) -> Result<Self, FlightsError> {
        let data = zstd::bulk::decompress(packed, INFLATED_BYTES_MAX)
            .map_err(|_| FlightsError("not a zstd frame of the size expected"))?;
        if !data.starts_with(MAGIC) {
            return Err(FlightsError("unknown format"));
        }
        let mut at = MAGIC.len();
        let carriers = dictionary(&data, &mut at)?;
        let airports = dictionary(&data, &mut at)?;
        let tails = dictionary(&data, &mut at)?;
        let rows = data.get(at..at + 4).ok_or(FlightsError("cut short"))?;
        let rows = u32::from_le_bytes(rows.try_into().expect("four bytes were sliced")) as usize;
        let columns = at + 4;
        if rows.checked_mul(BYTES_A_ROW) != Some(data.len() - columns) {
            return Err(FlightsError("the columns do not match the row count"));
        }
        let flights = Self { data, carriers, airports, tails, rows, columns };
        flights.check_references()?;
        Ok(flights)
    }

    /// Every row names entries that the dictionaries have: `flight` indexes them unchecked by type.
    fn check_references(&self) -> Result<(), FlightsError> {
        let bad = (0..self.rows).any(|row| {
            let tail = self.u16_at(TAIL, row);
            usize::from(self.u8_at(CARRIER, row)) >= self.carriers.len()
                || usize::from(self.u8_at(ORIGIN, row)) >= self.airports.len()
                || usize::from(self.u8_at(DESTINATION, row)) >= self.airports.len()
                || (tail != TAIL_NONE && usize::from(tail) >= self.tails.len())
        });
        if bad { Err(FlightsError("a row names what no dictionary has")) } else { Ok(()) }
    }

    fn flight(&self, scheduled_minute: u32, row: usize) -> Flight<'_> {
        let tail = self.u16_at(TAIL, row);
        let air_time = self.u16_at(AIR_TIME, row);
        Flight {
            scheduled_minute,
            carrier: self.text(&self.carriers[usize::from(self.u8_at(CARRIER, row))]),
            number: self.u16_at(NUMBER, row),
            tail: (tail != TAIL_NONE).then(|| self.text(&self.tails[usize::from(tail)])),
            origin: self.text(&self.airports[usize::from(self.u8_at(ORIGIN, row))]),
            destination: self.text(&self.airports[usize::from(self.u8_at(DESTINATION, row))]),
            departure_delay: delay(self.u16_at(DEPARTURE_DELAY, row)),
            arrival_delay: delay(self.u16_at(ARRIVAL_DELAY, row)),
            air_time: (air_time != AIR_TIME_NONE).then_some(air_time),
        }
    }

    fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.data[range.clone()]).expect("dictionary entries were checked to be ASCII")
    }

    /// `column` is the sum of the widths of the columns before it.
    fn u8_at(&self, column: usize, row: usize) -> u8 {
        self.data[self.columns + column * self.rows + row]
    }

    fn u16_at(&self, column: usize, row: usize) -> u16 {
        u16::from_le_bytes([self.u8_at(column, row), self.u8_at(column + 1, row)])
    }
}

// Bytes a row of the columns before each column; minutes stand first, at 0.
const CARRIER: usize = 2;
const NUMBER: usize = 3;
const TAIL: usize = 5;
const ORIGIN: usize = 7;
const DESTINATION: usize = 8;
const DEPARTURE_DELAY: usize = 9;
const ARRIVAL_DELAY: usize = 11;
const AIR_TIME: usize = 13;
const BYTES_A_ROW: usize = 15;

impl Flight<'_> {
    /// The record's value: one line of JSON. Units: minutes.
    pub fn to_json(&self) -> String {
        let (month, day) = month_and_day(self.scheduled_minute / MINUTES_A_DAY);
        let of_day = self.scheduled_minute % MINUTES_A_DAY;
        let mut json = String::with_capacity(160);
        write!(
            json,
            r#"{{"scheduled":"2013-{month:02}-{day:02}T{:02}:{:02}","carrier":"{}","flight":{},"origin":"{}","dest":"{}""#,
            of_day / 60,
            of_day % 60,
            self.carrier,
            self.number,
            self.origin,
            self.destination,
        )
        .expect("writing to a string cannot fail");
        for (name, minutes) in [
            ("dep_delay", self.departure_delay.map(i32::from)),
            ("arr_delay", self.arrival_delay.map(i32::from)),
            ("air_time", self.air_time.map(i32::from)),
        ] {
            match minutes {
                Some(minutes) => write!(json, r#","{name}":{minutes}"#),
                None => write!(json, r#","{name}":null"#),
            }
            .expect("writing to a string cannot fail");
        }
        json.push('}');
        json
    }
}

fn delay(raw: u16) -> Option<i16> {
    let minutes = raw.cast_signed();
    (minutes != DELAY_NONE).then_some(minutes)
}

/// Month and day, both from 1, of a day of 2013, from 0. Days past the year count on in December.
fn month_and_day(mut day_of_year: u32) -> (u32, u32) {
    for (month, days) in (1..12).zip(DAYS_A_MONTH_2013) {
        if day_of_year < days {
            return (month, day_of_year + 1);
        }
        day_of_year -= days;
    }
    (12, day_of_year + 1)
}

fn dictionary(data: &[u8], at: &mut usize) -> Result<Vec<Range<usize>>, FlightsError> {
    let cut = FlightsError("cut short");
    let Some(&[low, high]) = data.get(*at..*at + 2) else { return Err(cut) };
    *at += 2;
    let mut entries = Vec::new();
    for _ in 0..u16::from_le_bytes([low, high]) {
        let Some(&len) = data.get(*at) else { return Err(cut) };
        let range = *at + 1..*at + 1 + usize::from(len);
        match data.get(range.clone()) {
            Some(text) if text.is_ascii() => {}
            Some(_) => return Err(FlightsError("a dictionary entry is not ASCII")),
            None => return Err(cut),
        }
        *at = range.end;
        entries.push(range);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
