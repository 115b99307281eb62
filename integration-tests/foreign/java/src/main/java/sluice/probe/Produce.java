package sluice.probe;

import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces keyed records with the producer's defaults: idempotent, acks=all. */
final class Produce {
    private Produce() {}

    static void run(Options options, EventLog log) throws Exception {
        Properties properties = options.client();
        properties.put("compression.type", options.text("compression", "none"));
        long records = options.number("records", 1000);
        long keys = options.number("keys", 10);
        long keylessPercent = options.number("keyless-percent", 0);
        long pauseUs = options.number("pause-us", 0);
        Random random = new Random(options.number("seed", 1));
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (long i = 0; i < records; i++) {
                String key = random.nextInt(100) < keylessPercent ? null : "k" + random.nextInt((int) keys);
                producer.send(new ProducerRecord<>(options.text("topic"), key, "v" + i), (metadata, error) -> {
                    if (error == null) {
                        log.write("produced", metadata.partition(), metadata.offset(), key, 0);
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
                if (pauseUs > 0) {
                    Thread.sleep(pauseUs / 1000, (int) (pauseUs % 1000) * 1000);
                }
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }
}
