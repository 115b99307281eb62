use std::collections::HashSet;

use super::*;

#[test]
fn the_year_is_complete_and_in_scheduled_order() {
    let flights = Flights::load().unwrap();
    assert_eq!(flights.len(), 336_776);
    let rows: Vec<Flight<'_>> = flights.iter().collect();
    assert_eq!(rows.len(), 336_776);
    assert!(rows.is_sorted_by_key(|row| row.scheduled_minute));
    assert_eq!(rows[0].scheduled_minute / MINUTES_A_DAY, 0);
    assert_eq!(rows.last().unwrap().scheduled_minute / MINUTES_A_DAY, 364);

    let tails: HashSet<&str> = rows.iter().filter_map(|row| row.tail).collect();
    assert_eq!(tails.len(), 4_043);
    assert_eq!(rows.iter().filter(|row| row.tail.is_none()).count(), 2_512);
}

#[test]
fn the_columns_hold_what_the_package_holds() {
    let flights = Flights::load().unwrap();
    let rows: Vec<Flight<'_>> = flights.iter().collect();
    // Counted in the package's own table.
    assert_eq!(rows.iter().filter(|row| row.departure_delay.is_none()).count(), 8_255);
    assert_eq!(rows.iter().filter(|row| row.arrival_delay.is_none()).count(), 9_430);
    assert_eq!(rows.iter().filter(|row| row.air_time.is_none()).count(), 9_430);
    let carriers: HashSet<&str> = rows.iter().map(|row| row.carrier).collect();
    assert_eq!(carriers.len(), 16);
    let destinations: HashSet<&str> = rows.iter().map(|row| row.destination).collect();
    assert_eq!(destinations.len(), 105);
    let origins: HashSet<&str> = rows.iter().map(|row| row.origin).collect();
    assert_eq!(origins, HashSet::from(["EWR", "JFK", "LGA"]));

    let known = rows.iter().find(|row| row.carrier == "UA" && row.number == 1545).unwrap();
    assert_eq!(known.tail, Some("N14228"));
    assert_eq!(
        known.to_json(),
        r#"{"scheduled":"2013-01-01T05:15","carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","dep_delay":2,"arr_delay":11,"air_time":227}"#
    );
}

#[test]
fn a_cancelled_flight_shows_nulls() {
    let flights = Flights::load().unwrap();
    let cancelled = flights.iter().find(|row| row.departure_delay.is_none()).unwrap();
    assert!(cancelled.to_json().contains(r#""dep_delay":null,"arr_delay":null,"air_time":null}"#));
}

#[test]
fn days_turn_into_dates() {
    assert_eq!(month_and_day(0), (1, 1));
    assert_eq!(month_and_day(30), (1, 31));
    assert_eq!(month_and_day(31), (2, 1));
    assert_eq!(month_and_day(58), (2, 28));
    assert_eq!(month_and_day(59), (3, 1));
    assert_eq!(month_and_day(364), (12, 31));
}

#[test]
fn a_damaged_file_is_refused() {
    assert!(Flights::unpack(b"not zstd").is_err());
    for bad in [&b"flights2"[..], b"flights1", b"flights1\x01\x00\x02A"] {
        assert!(Flights::unpack(&zstd::bulk::compress(bad, 1).unwrap()).is_err());
    }
    let mut whole = zstd::bulk::decompress(PACKED, INFLATED_BYTES_MAX).unwrap();
    whole.pop();
    assert!(Flights::unpack(&zstd::bulk::compress(&whole, 1).unwrap()).is_err());
    whole.push(0);
    let columns = whole.len() - 336_776 * BYTES_A_ROW;
    whole[columns + CARRIER * 336_776] = 0xFF;
    assert!(Flights::unpack(&zstd::bulk::compress(&whole, 1).unwrap()).is_err());
}
