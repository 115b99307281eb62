package sluice.makespan;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Stock share consumers, a thread each. */
final class Share implements AutoCloseable {
    private final Work work;
    private final boolean explicit;
    private volatile boolean stopped;

    Share(Makespan options, Work work) {
        this.work = work;
        String commit = options.text("commit", "poll");
        explicit = !commit.equals("poll");
        for (int i = 0; i < options.number("workers"); i++) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", options.text("bootstrap"));
            properties.put("group.id", options.text("group"));
            properties.put("client.id", "worker-" + i);
            properties.put("max.poll.records", options.text("max-poll-records", "500"));
            properties.put("share.acquire.mode", options.text("acquire-mode", "batch_optimized"));
            properties.put("share.acknowledgement.mode", explicit ? "explicit" : "implicit");
            KafkaShareConsumer<String, String> consumer =
                    new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(options.text("topic")));
            new Thread(() -> run(consumer, commit), "worker-" + i).start();
        }
    }

    private void run(KafkaShareConsumer<String, String> consumer, String commit) {
        while (!stopped) {
            try {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(1_000))) {
                    work.on(record.offset(), record.key());
                    if (explicit) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    if (commit.equals("sync")) {
                        consumer.commitSync();
                    } else if (commit.equals("async")) {
                        consumer.commitAsync();
                    }
                }
            } catch (KafkaException e) {
                System.err.println("poll: " + e);
            }
        }
    }

    @Override
    public void close() {
        stopped = true;
    }
}
