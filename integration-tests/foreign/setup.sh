#!/usr/bin/env bash
# Installs the foreign clients and tools of the tests, pinned, outside the source tree.
#
#   setup.sh [java-4.4|java-4.2|makespan|tools|python|go|node|java|all]…
#
# Prints the folder of each on standard output, one a line. What is there already is not touched; two runs at once
# wait for each other. A folder is named by the content of the files that it is made from, so that another branch with
# other pins has its own.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tests"

# Arguments: the name of a part, the folder that it is made from. Prints where it stands or will stand.
place() {
  local sum
  sum="$(cd "$here" && find "$2" setup.sh -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)"
  echo "$cache/$1-${sum:0:12}"
}

maven() { (cd "$1" && shift && mvn --quiet --batch-mode "$@") >&2; }

build_java() { # version of kafka-clients, target
  cp -r "$here/java" "$2/source"
  maven "$2/source" "-Dkafka.version=$1" compile dependency:copy-dependencies "-DoutputDirectory=$2/libs"
  mv "$2/source/target/classes" "$2/classes"
  rm -rf "$2/source"
}

build_makespan() {
  cp -r "$here/makespan" "$1/source"
  maven "$1/source" compile dependency:copy-dependencies "-DoutputDirectory=$1/libs"
  # The Parallel Consumer polls nothing through a consumer of Kafka 4: it gets the last one of Kafka 3.
  maven "$1/source" dependency:copy -Dartifact=org.apache.kafka:kafka-clients:3.9.2 \
    "-DoutputDirectory=$1/libs-parallel"
  mv "$1/source/target/classes" "$1/classes"
  rm -rf "$1/source"
}

build_tools() {
  cp -r "$here/tools" "$1/source"
  maven "$1/source" dependency:copy-dependencies "-DoutputDirectory=$1/libs"
  rm -rf "$1/source"
}

build_python() {
  python3 -m venv --copies "$1/venv" >&2
  "$1/venv/bin/python" -m pip install --quiet --requirement "$here/python/requirements.txt" >&2
  cp "$here/python/probe.py" "$1/"
}

build_go() { (cd "$here/go" && go build -trimpath -o "$1/probe" .) >&2; }

build_node() {
  cp "$here/node/package.json" "$here/node/probe.js" "$1/"
  (cd "$1" && npm install --no-package-lock --no-audit --no-fund --loglevel=error) >&2
}

part() { # name, folder it is made from, command that fills the folder given to it as last argument
  local name="$1" target; target="$(place "$1" "$2")"; shift 2
  if [ ! -e "$target/.complete" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/$name.lock"
    flock 9
    if [ ! -e "$target/.complete" ]; then
      echo "setting up $name (once)…" >&2
      # Filled in place, since a Python environment knows its own path; only the mark at the end makes it count.
      rm -rf "$target"
      mkdir -p "$target"
      "$@" "$target"
      touch "$target/.complete"
    fi
    exec 9>&-
  fi
  echo "$target"
}

[ $# -gt 0 ] || set -- all
for wanted in "$@"; do
  case "$wanted" in
    java-4.4) part java-4.4 java build_java 4.4.0 ;;
    java-4.2) part java-4.2 java build_java 4.2.1 ;;
    makespan) part makespan makespan build_makespan ;;
    tools) part tools tools build_tools ;;
    python) part python python build_python ;;
    go) part go go build_go ;;
    node) part node node build_node ;;
    java) "$0" java-4.4 java-4.2 ;;
    all) "$0" tools java-4.4 java-4.2 makespan python go node ;;
    *) sed -n '2,5p' "$0" >&2; exit 2 ;;
  esac
done
