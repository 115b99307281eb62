package sluice.makespan;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** The same threads and a queue in memory, without any broker: what this machine and this language leave possible. */
final class Floor implements AutoCloseable {
    /** The records of one key; a keyless record is a key of its own. */
    private record Key(String name, ArrayDeque<Long> offsets) {}

    private final BlockingQueue<Key> ready = new LinkedBlockingQueue<>();
    private final Work work;

    Floor(Makespan options, Work work) throws IOException {
        this.work = work;
        List<String> names = Files.readAllLines(Path.of(options.text("keys")));
        Map<String, Key> keys = new HashMap<>();
        for (int offset = 0; offset < names.size(); offset++) {
            String name = names.get(offset).equals("-") ? null : names.get(offset);
            Key key = name == null ? new Key(null, new ArrayDeque<>()) : keys.get(name);
            if (key == null) {
                key = new Key(name, new ArrayDeque<>());
                keys.put(name, key);
            }
            if (key.offsets.isEmpty()) {
                ready.add(key);
            }
            key.offsets.add((long) offset);
        }
        for (int i = 0; i < options.number("workers"); i++) {
            Thread thread = new Thread(this::run, "worker-" + i);
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void run() {
        try {
            while (true) {
                // Nobody else has this key until it is put back.
                Key key = ready.take();
                work.on(key.offsets.remove(), key.name);
                if (!key.offsets.isEmpty()) {
                    ready.put(key);
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {}
}
