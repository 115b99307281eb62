package sluice.probe;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Consumes in an ordinary group, from the earliest record, and commits what it has logged. */
final class Consume {
    private Consume() {}

    static void run(Options options, EventLog log) {
        Properties properties = options.client();
        properties.put("group.id", options.text("group"));
        properties.put("group.protocol", options.text("protocol", "classic"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", options.text("isolation", "read_uncommitted"));
        Stop stop = new Stop();
        Limit limit = new Limit(options);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(options.text("topic")));
            while (!stop.asked() && !limit.reached()) {
                var records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> record : records) {
                    log.write("consumed", record.partition(), record.offset(), record.key(), 0);
                    limit.count();
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }
}
