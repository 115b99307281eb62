package sluice.makespan;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/** Works on records, which takes as long as their offset says, and remembers when. */
final class Work {
    private final long meanNanos;
    private final BitSet left;
    private final CountDownLatch done = new CountDownLatch(1);
    private final List<Done> events = new ArrayList<>();
    /** The wall clock at the zero of {@link System#nanoTime}. */
    private final long wallNanos;

    private record Done(String worker, long offset, String key, long startNanos, long endNanos) {}

    Work(int records, int meanUs) {
        meanNanos = meanUs * 1_000L;
        left = new BitSet(records);
        left.set(0, records);
        Instant now = Instant.now();
        wallNanos = now.getEpochSecond() * 1_000_000_000L + now.getNano() - System.nanoTime();
    }

    /** Works on one record, in the calling thread. */
    void on(long offset, String key) {
        long start = System.nanoTime();
        long end = start + service(offset);
        for (long rest = end - start; rest > 0; rest = end - System.nanoTime()) {
            LockSupport.parkNanos(rest);
        }
        String worker = Thread.currentThread().getName();
        synchronized (events) {
            events.add(new Done(worker, offset, key, start, System.nanoTime()));
            left.clear((int) offset);
            if (left.isEmpty()) {
                done.countDown();
            }
        }
    }

    void awaitDone() throws InterruptedException {
        done.await();
    }

    /** See benches/src/mixes.rs: 99 of 100 between a half and one mean, the others 25 means. */
    private long service(long offset) {
        long hash = mixed(offset);
        double means = Long.remainderUnsigned(hash, 100) == 0 ? 25.0 : 0.5 + 0.5 * ((mixed(hash) >>> 11) * 0x1.0p-53);
        return (long) (meanNanos * means);
    }

    private static long mixed(long value) {
        long z = value + 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /** The events in the format of ../README.md. */
    void write(String path) throws IOException {
        synchronized (events) {
            try (BufferedWriter file = Files.newBufferedWriter(Path.of(path))) {
                for (Done done : events) {
                    String rest = "\t0\t" + done.offset + "\t" + (done.key == null ? "-" : done.key) + "\t1\n";
                    file.write((wallNanos + done.startNanos) + "\t" + done.worker + "\tstart" + rest);
                    file.write((wallNanos + done.endNanos) + "\t" + done.worker + "\tsuccess" + rest);
                }
            }
        }
    }
}
