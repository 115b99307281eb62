#!/usr/bin/env bash
# Lays out what the two images are built from under target/image: small folders instead of the whole tree.
#
# SLUICE_BIN: a binary to use instead of building one. It has to run on Debian 12's C library.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

binary="${SLUICE_BIN:-}"
if [ -z "$binary" ]; then
  cargo build --release -p sluice-broker
  binary="${CARGO_TARGET_DIR:-target}/release/sluice"
fi
tools="$(integration-tests/foreign/setup.sh tools)"

mkdir -p target/image/broker target/image/tools/libs
install -m 755 "$binary" target/image/broker/sluice
cp docker/Dockerfile target/image/broker/Dockerfile
cp --update "$tools"/libs/*.jar target/image/tools/libs/
install -m 755 integration-tests/foreign/kafka target/image/tools/kafka
cp docker/tools/Dockerfile target/image/tools/Dockerfile
