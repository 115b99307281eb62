package sluice.makespan;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Confluent's Parallel Consumer on an ordinary group, ordered by key. */
final class Parallel implements AutoCloseable {
    private final ParallelStreamProcessor<String, String> processor;

    Parallel(Makespan options, Work work) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.text("bootstrap"));
        properties.put("group.id", options.text("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        processor = ParallelStreamProcessor.createEosStreamProcessor(
                ParallelConsumerOptions.<String, String>builder()
                        .ordering(ProcessingOrder.KEY)
                        .maxConcurrency(options.number("workers"))
                        .consumer(consumer)
                        // It looks for a field that newer consumers no longer have.
                        .ignoreReflectiveAccessExceptionsForAutoCommitDisabledCheck(true)
                        .build());
        processor.subscribe(List.of(options.text("topic")));
        processor.poll(context -> {
            ConsumerRecord<String, String> record = context.getSingleConsumerRecord();
            work.on(record.offset(), record.key());
        });
    }

    @Override
    public void close() {
        processor.close();
    }
}
