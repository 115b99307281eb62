package sluice.probe;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A worker of a share group: works on each record for a while, then accepts or releases it. */
final class Share {
    /** Ten seconds: Kafka's own share groups take five. */
    private static final int WARM_UP_ROUNDS = 100;

    private final KafkaShareConsumer<String, String> consumer;
    private final EventLog log;
    private final Random random;
    private final boolean explicit;
    private final long serviceUsMin;
    private final long serviceUsMax;
    private final long releasePercent;
    private final Stop stop = new Stop();
    private final Limit limit;

    private Share(KafkaShareConsumer<String, String> consumer, Options options, EventLog log) {
        this.consumer = consumer;
        this.log = log;
        random = new Random(options.number("seed", 1));
        explicit = options.text("ack", "explicit").equals("explicit");
        serviceUsMin = options.number("service-us-min", 0);
        serviceUsMax = Math.max(serviceUsMin, options.number("service-us-max", 0));
        releasePercent = options.number("release-percent", 0);
        limit = new Limit(options);
    }

    static void run(Options options, EventLog log) throws InterruptedException {
        Properties properties = options.client();
        properties.put("share.acknowledgement.mode", options.text("ack", "explicit"));
        properties.put("max.poll.records", options.text("max-poll-records", "500"));
        String warmGroup = options.text("warm-group", "");
        if (!warmGroup.isEmpty()) {
            properties.put("group.id", warmGroup);
            warmUp(properties, options.text("topic"));
        }
        properties.put("group.id", options.text("group"));
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(options.text("topic")));
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    offsets.forEach((partition, list) -> list.forEach(
                            offset -> log.write("ack-failed", partition.partition(), offset, null, 0)));
                }
            });
            Share share = new Share(consumer, options, log);
            String commit = options.text("commit", "poll");
            log.write("ready", -1, -1, null, 0);
            while (!share.stop.asked() && !share.limit.reached()) {
                share.round(commit);
            }
            if (!commit.equals("none")) {
                consumer.commitSync();
            }
        }
    }

    /** Lets the virtual machine load and compile what a share consumer needs until it has its first record. */
    private static void warmUp(Properties properties, String topic) {
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            for (int round = 0; records.isEmpty() && round < WARM_UP_ROUNDS; round++) {
                records = consumer.poll(Duration.ofMillis(100));
            }
            records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RELEASE));
        }
    }

    private void round(String commit) throws InterruptedException {
        ConsumerRecords<String, String> records;
        try {
            records = consumer.poll(Duration.ofMillis(100));
        } catch (KafkaException e) {
            System.err.println("poll: " + e);
            Thread.sleep(100);
            return;
        }
        for (ConsumerRecord<String, String> record : records) {
            // With implicit acknowledgement the commit at the end accepts the whole batch: it has to be worked off.
            if (stop.asked() && explicit) {
                return;
            }
            work(record);
            if (commit.equals("record")) {
                consumer.commitSync();
            }
        }
        if (commit.equals("sync") && !records.isEmpty()) {
            consumer.commitSync();
        }
    }

    private void work(ConsumerRecord<String, String> record) throws InterruptedException {
        int deliveries = record.deliveryCount().map(Short::intValue).orElse(0);
        log.write("start", record.partition(), record.offset(), record.key(), deliveries);
        long us = serviceUsMin + (long) (random.nextDouble() * (serviceUsMax - serviceUsMin));
        Thread.sleep(us / 1000, (int) (us % 1000) * 1000);
        // The third delivery succeeds always: a record must not reach the group's delivery limit.
        boolean release = explicit && deliveries < 3 && random.nextInt(100) < releasePercent;
        log.write(release ? "release" : "success", record.partition(), record.offset(), record.key(), deliveries);
        if (release) {
            limit.touch();
        } else {
            limit.count();
        }
        if (explicit) {
            consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
        }
    }
}
