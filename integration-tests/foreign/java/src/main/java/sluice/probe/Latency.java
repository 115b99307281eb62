package sluice.probe;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends at a steady rate and measures how long each record takes to reach a consumer, from when it was due. */
final class Latency {
    private static final int VALUE_BYTES = 1024;

    private Latency() {}

    static void run(Options options) throws InterruptedException {
        int records = (int) options.number("records", 10_000);
        int warmUp = records / 5;
        long interval = 1_000_000_000L / options.number("rate", 1_000);
        TopicPartition partition = new TopicPartition(options.text("topic"), 0);
        long[] latencies = new long[records];
        Properties consuming = options.client();
        consuming.put("key.deserializer", ByteArrayDeserializer.class.getName());
        consuming.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consuming)) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            Thread producer = new Thread(() -> produce(options, partition.topic(), warmUp + records, interval));
            producer.start();
            int seen = 0;
            while (seen < warmUp + records) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (seen >= warmUp) {
                        latencies[seen - warmUp] = System.nanoTime() - ByteBuffer.wrap(record.value()).getLong();
                    }
                    seen++;
                }
            }
            producer.join();
        }
        Arrays.sort(latencies);
        System.out.printf("p50 %d p99 %d max %d%n", latencies[records / 2] / 1_000,
            latencies[records - 1 - records / 100] / 1_000, latencies[records - 1] / 1_000);
    }

    private static void produce(Options options, String topic, int records, long interval) {
        Properties producing = options.client();
        producing.put("key.serializer", ByteArraySerializer.class.getName());
        producing.put("value.serializer", ByteArraySerializer.class.getName());
        producing.put("linger.ms", "0");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producing)) {
            producer.partitionsFor(topic);
            long start = System.nanoTime();
            for (int i = 0; i < records; i++) {
                long due = start + i * interval;
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                byte[] value = new byte[VALUE_BYTES];
                ByteBuffer.wrap(value).putLong(due);
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
        }
    }
}
