#!/usr/bin/env bash
# The broker as people deploy it: both images, a volume, the real tools, a kill, and a start on the same volume.
#
# Where no Docker engine runs, one is started if this machine has it; where the base image cannot be pulled, it is made
# with debootstrap. All that was started or made here is gone at the end. SLUICE_BIN: a binary to use instead of
# building one.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
base=debian:bookworm-slim
scratch="$(mktemp -d)"
engine_pid=''
base_made=''
composed=''

say() { printf '\n== %s\n' "$*"; }
fail() { printf '\ncompose-test FAILED: %s\n' "$*" >&2; exit 1; }
skip() {
  printf '\n*** SKIPPED compose-test: %s\n\n' "$*" >&2
  [ "${CI:-}" != true ] || fail "a skip is a failure where CI=true"
  exit 0
}

# --- clean-up ------------------------------------------------------------------------------------------------------

clean_up() {
  local status=$?
  set +e
  if [ -n "$composed" ]; then
    [ "$status" = 0 ] || compose logs --no-color broker | tail -40 >&2
    compose --profile tools down --volumes --rmi all --remove-orphans > "$scratch/down.log" 2>&1
  fi
  [ -z "$base_made" ] || docker rmi "$base" > /dev/null 2>&1
  if [ -n "$engine_pid" ]; then
    kill "$engine_pid" 2> /dev/null
    for _ in $(seq 100); do kill -0 "$engine_pid" 2> /dev/null || break; sleep 0.1; done
    # The engine leaves the namespaces that it pinned mounted.
    umount "$scratch"/exec/netns/* 2> /dev/null
  fi
  rm -rf "$scratch"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- what is needed ------------------------------------------------------------------------------------------------

command -v docker > /dev/null || skip "there is no docker command"
if docker compose version > /dev/null 2>&1; then
  compose_command=(docker compose)
elif command -v docker-compose > /dev/null; then
  compose_command=(docker-compose)
else
  skip "there is neither 'docker compose' nor docker-compose"
fi

start_engine() {
  [ "$(id -u)" = 0 ] && command -v dockerd > /dev/null || return 1
  say "no Docker engine runs: starting one"
  # No default bridge and no firewall rules: nothing of it stays behind on the machine.
  dockerd --data-root "$scratch/engine" --exec-root "$scratch/exec" --pidfile "$scratch/engine.pid" \
    --host "unix://$scratch/engine.sock" --bridge none --iptables=false > "$scratch/engine.log" 2>&1 &
  engine_pid=$!
  export DOCKER_HOST="unix://$scratch/engine.sock"
  for _ in $(seq 300); do
    docker info > /dev/null 2>&1 && return 0
    kill -0 "$engine_pid" 2> /dev/null || break
    sleep 0.1
  done
  tail -5 "$scratch/engine.log" >&2
  return 1
}
docker info > /dev/null 2>&1 || start_engine || skip "no Docker engine runs, and none could be started"

make_base() {
  command -v debootstrap > /dev/null && [ "$(id -u)" = 0 ] || return 1
  local cache="${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tests/debian-bookworm.tar"
  if [ ! -e "$cache" ]; then
    say "$base cannot be pulled: making it with debootstrap (once)"
    debootstrap --variant=minbase bookworm "$scratch/base" > "$scratch/debootstrap.log" 2>&1 \
      || { tail -5 "$scratch/debootstrap.log" >&2; return 1; }
    rm -rf "$scratch"/base/var/cache/apt/archives/*.deb "$scratch"/base/var/lib/apt/lists/*
    mkdir -p "$(dirname "$cache")"
    tar -C "$scratch/base" --exclude=./dev --exclude=./proc --exclude=./sys -cf "$cache.$$" .
    mv "$cache.$$" "$cache"
    rm -rf "$scratch/base"
  fi
  docker import "$cache" "$base" > /dev/null
  base_made=yes
}
docker image inspect "$base" > /dev/null 2>&1 || timeout 120 docker pull --quiet "$base" 2> /dev/null || make_base \
  || skip "$base can neither be pulled nor made with debootstrap"

# --- images and broker ---------------------------------------------------------------------------------------------

free_port() {
  local port
  for port in $(shuf -i 20000-29999 -n 50); do
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || { echo "$port"; return; }
  done
}
SLUICE_PORT="$(free_port)"
export SLUICE_PORT
project="sluice-test-$$"
compose() {
  "${compose_command[@]}" --project-name "$project" --project-directory "$root" \
    --file "$root/docker-compose.yml" --file "$here/compose-test.yml" "$@"
}
container() { compose ps --quiet broker; }
# Waits for the ready line of the container's present run.
wait_for_ready() {
  local deadline=$((SECONDS + 60)) id started
  id="$(container)"
  started="$(docker inspect --format '{{.State.StartedAt}}' "$id")"
  until docker logs --since "$started" "$id" 2>&1 | grep -q "^sluice ready on"; do
    [ "$(docker inspect --format '{{.State.Running}}' "$id")" = true ] || fail "the broker ended"
    [ "$SECONDS" -lt "$deadline" ] || fail "the broker did not become ready within 60 s"
    sleep 0.2
  done
}
# A tool by its usual name, in the tools image, beside the broker.
tool() {
  local name="$1"
  shift
  timeout 120 "${compose_command[@]}" --project-name "$project" --project-directory "$root" \
    --file "$root/docker-compose.yml" --file "$here/compose-test.yml" \
    run --rm -T tools "$name" "$@" 2>> "$scratch/tools.log" || fail "$name $* (its messages: $(tail -5 "$scratch/tools.log"))"
}
server=(--bootstrap-server "localhost:$SLUICE_PORT")

say "building the images"
"$here/stage.sh"
composed=yes
compose --profile tools build > "$scratch/build.log" 2>&1 || { tail -30 "$scratch/build.log" >&2; fail "the images do not build"; }

say "starting the broker"
compose up --detach --no-build broker > "$scratch/up.log" 2>&1 || { cat "$scratch/up.log" >&2; fail "the broker does not start"; }
wait_for_ready
user="$(compose exec -T broker id -u)"
[ "$user" != 0 ] || fail "the broker runs as root"

# --- the main job --------------------------------------------------------------------------------------------------

records() { # how many; ten keys, in the order of their values
  local i
  for i in $(seq 0 $(($1 - 1))); do echo "k$((i % 10)):v$i"; done
}
read_share() { # how many; prints key and value, tab-separated
  tool kafka-console-share-consumer "${server[@]}" --topic orders --group workers --max-messages "$1" --timeout-ms 30000 \
    --formatter-property print.key=true < /dev/null
}
read_group() {
  tool kafka-console-consumer "${server[@]}" --topic orders --group readers --from-beginning --max-messages "$1" \
    --timeout-ms 30000 --formatter-property print.key=true < /dev/null
}
expect() { # what, expected, actual
  [ "$2" = "$3" ] || fail "$1: expected $(head -c 300 <<< "$2"), got $(head -c 300 <<< "$3")"
}
expected() { records 100 | tr ':' '\t' | sed -n "$1,$2p"; }

say "creating a topic, producing 100 records"
tool kafka-topics "${server[@]}" --create --topic orders --partitions 1 < /dev/null
records 100 | tool kafka-console-producer "${server[@]}" --topic orders \
  --reader-property parse.key=true --reader-property key.separator=:
tool kafka-configs "${server[@]}" --alter --entity-type groups --entity-name workers \
  --add-config share.auto.offset.reset=earliest,sluice.share.order=key < /dev/null

say "consuming 40 in a group and 40 in a key-ordered share group"
expect "the group's first records" "$(expected 1 40)" "$(read_group 40)"
read_share 40 > "$scratch/share"

say "killing the container, starting it again on its volume"
broker="$(container)"
docker kill --signal KILL "$broker" > /dev/null
expect "the exit code of a killed container" 137 "$(timeout 60 docker wait "$broker")"
compose up --detach --no-build broker > /dev/null 2>&1 || fail "the broker does not start again"
wait_for_ready

say "looking for everything"
expect "the topics" orders "$(tool kafka-topics "${server[@]}" --list < /dev/null | grep -v '^__' | tr -d '\r')"
expect "the log's end" orders:0:100 "$(tool kafka-get-offsets "${server[@]}" --topic orders < /dev/null | tr -d '\r')"
expect "all records, by kcat" "$(records 100)" \
  "$(tool kcat -b "localhost:$SLUICE_PORT" -C -t orders -K: -e -q -o beginning < /dev/null)"
expect "the group's other records" "$(expected 41 100)" "$(read_group 60)"
read_share 60 >> "$scratch/share"
expect "the share group's records, each once" "$(expected 1 100 | sort)" "$(sort "$scratch/share")"
for key in k0 k1 k2 k3 k4 k5 k6 k7 k8 k9; do
  expect "the order of $key" "$(expected 1 100 | grep "^$key	")" "$(grep "^$key	" "$scratch/share")"
done
tool kafka-configs "${server[@]}" --describe --entity-type groups --entity-name workers < /dev/null \
  | grep -q 'sluice.share.order=key' || fail "the group's config is gone"

say "compose-test passed"
