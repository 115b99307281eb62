"""One client of a test on librdkafka: probe.py ROLE --option value …; roles and options stand in ../README.md."""

import os
import random
import sys
import threading
import time

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer


class Options:
    def __init__(self, args):
        self.values = {args[i][2:]: args[i + 1] for i in range(0, len(args) - 1, 2)}

    def text(self, name, otherwise=None):
        value = self.values.get(name, otherwise)
        if value is None:
            sys.exit(f"--{name} is missing")
        return value

    def number(self, name, otherwise):
        return int(self.values.get(name, otherwise))

    def client(self, **more):
        return {
            "bootstrap.servers": self.text("bootstrap"),
            "client.id": self.text("member"),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 250,
            **more,
        }


class EventLog:
    """Appends one line an event, each with one write, so that what stands in the file survives a kill."""

    def __init__(self, path, member):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.member = member

    def write(self, event, partition=-1, offset=-1, key=None, deliveries=0):
        key = "-" if key is None else key.decode()
        fields = (time.time_ns(), self.member, event, partition, offset, key, deliveries)
        os.write(self.file, ("\t".join(map(str, fields)) + "\n").encode())


class Limit:
    """When a consumer stops: standard input ended, enough records came, or none for a time."""

    def __init__(self, options):
        self.records_left = options.number("records", 1 << 62)
        self.idle_s = options.number("idle-ms", 60_000) / 1000
        self.last = time.monotonic()
        self.asked = False
        threading.Thread(target=self._read_stdin, daemon=True).start()

    def _read_stdin(self):
        while os.read(0, 4096):
            pass
        self.asked = True

    def count(self):
        self.records_left -= 1
        self.touch()

    def touch(self):
        self.last = time.monotonic()

    def reached(self):
        return self.asked or self.records_left <= 0 or time.monotonic() - self.last > self.idle_s


def produce(options, log):
    rng = random.Random(options.number("seed", 1))
    producer = Producer(
        options.client(**{"enable.idempotence": True, "compression.type": options.text("compression", "none")})
    )
    failures = []

    def delivered(error, message):
        if error is not None:
            failures.append(error)
        else:
            log.write("produced", message.partition(), message.offset(), message.key())

    pause_s = options.number("pause-us", 0) / 1e6
    for i in range(options.number("records", 1000)):
        keyless = rng.randrange(100) < options.number("keyless-percent", 0)
        key = None if keyless else f"k{rng.randrange(options.number('keys', 10))}"
        producer.produce(options.text("topic"), key=key, value=f"v{i}", on_delivery=delivered)
        producer.poll(pause_s)
    producer.flush(60)
    if failures:
        sys.exit(f"{len(failures)} records failed, the first with {failures[0]}")


def consume(options, log):
    consumer = Consumer(
        options.client(
            **{
                "group.id": options.text("group"),
                "group.protocol": options.text("protocol", "classic"),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": options.text("isolation", "read_uncommitted"),
            }
        )
    )
    consumer.subscribe([options.text("topic")])
    limit = Limit(options)
    while not limit.reached():
        messages = consumer.consume(500, timeout=0.1)
        for message in messages:
            if message.error():
                print(f"consume: {message.error()}", file=sys.stderr)
                continue
            log.write("consumed", message.partition(), message.offset(), message.key())
            limit.count()
        if any(not message.error() for message in messages):
            consumer.commit(asynchronous=False)
    consumer.close()


def share(options, log):
    explicit = options.text("ack", "explicit") == "explicit"
    consumer = ShareConsumer(
        options.client(
            **{
                "group.id": options.text("group"),
                "share.acknowledgement.mode": "explicit" if explicit else "implicit",
                "max.poll.records": options.number("max-poll-records", 500),
            }
        )
    )

    def acknowledged(offsets, error):
        if error is not None:
            for partition, failed in offsets.items():
                for offset in failed:
                    log.write("ack-failed", partition.partition, offset)

    consumer.set_acknowledgement_commit_callback(acknowledged)
    consumer.subscribe([options.text("topic")])
    rng = random.Random(options.number("seed", 1))
    service_us = options.number("service-us-min", 0), options.number("service-us-max", 0)
    release_percent = options.number("release-percent", 0)
    commit = options.text("commit", "poll")
    limit = Limit(options)
    log.write("ready")
    while not limit.reached():
        try:
            messages = list(consumer.poll(0.1))
        except KafkaException as error:
            print(f"poll: {error}", file=sys.stderr)
            time.sleep(0.1)
            continue
        for message in messages:
            if message.error():
                print(f"poll: {message.error()}", file=sys.stderr)
                continue
            # With implicit acknowledgement the commit at the end accepts the whole batch: it has to be worked off.
            if limit.asked and explicit:
                break
            place = (message.partition(), message.offset(), message.key(), message.delivery_count() or 0)
            log.write("start", *place)
            time.sleep(rng.uniform(service_us[0], max(service_us)) / 1e6)
            # The third delivery succeeds always: a record must not reach the group's delivery limit.
            release = explicit and place[3] < 3 and rng.randrange(100) < release_percent
            log.write("release" if release else "success", *place)
            if release:
                limit.touch()
            else:
                limit.count()
            if explicit:
                consumer.acknowledge(message, AcknowledgeType.RELEASE if release else AcknowledgeType.ACCEPT)
            if commit == "record":
                settle(consumer)
        if commit == "sync" and messages:
            settle(consumer)
    if commit != "none":
        settle(consumer)
    consumer.close()


def settle(consumer):
    try:
        consumer.commit_sync(10.0)
    except KafkaException as error:
        print(f"commit: {error}", file=sys.stderr)


def main():
    roles = {"produce": produce, "consume": consume, "share": share}
    if len(sys.argv) < 2 or sys.argv[1] not in roles:
        sys.exit("usage: probe.py produce|consume|share --option value …")
    options = Options(sys.argv[2:])
    log = EventLog(options.text("log"), options.text("member"))
    roles[sys.argv[1]](options, log)
    log.write("end")


main()
