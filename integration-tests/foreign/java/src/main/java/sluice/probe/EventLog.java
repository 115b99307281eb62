package sluice.probe;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;

/** Appends one line an event, each with one write, so that what stands in the file survives a kill. */
final class EventLog implements AutoCloseable {
    private final FileOutputStream file;
    private final String member;

    EventLog(String path, String member) throws IOException {
        this.file = new FileOutputStream(path, true);
        this.member = member;
    }

    synchronized void write(String event, int partition, long offset, String key, int deliveries) {
        Instant now = Instant.now();
        long nanos = Math.addExact(Math.multiplyExact(now.getEpochSecond(), 1_000_000_000L), now.getNano());
        String line = nanos + "\t" + member + "\t" + event + "\t" + partition + "\t" + offset + "\t"
                + (key == null ? "-" : key) + "\t" + deliveries + "\n";
        try {
            file.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
