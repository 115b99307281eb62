package sluice.probe;

/** When a consumer stops by itself: after a number of records, or after a time without any. */
final class Limit {
    private final long recordsMax;
    private final long idleNanos;
    private long records;
    private long last = System.nanoTime();

    Limit(Options options) {
        recordsMax = options.number("records", Long.MAX_VALUE);
        idleNanos = options.number("idle-ms", 60_000) * 1_000_000L;
    }

    void count() {
        records++;
        last = System.nanoTime();
    }

    /** Work that ends without success is no idleness. */
    void touch() {
        last = System.nanoTime();
    }

    boolean reached() {
        return records >= recordsMax || System.nanoTime() - last > idleNanos;
    }
}
