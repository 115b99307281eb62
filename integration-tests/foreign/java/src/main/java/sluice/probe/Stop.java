package sluice.probe;

import java.io.IOException;

/** Turns true when standard input ends: the way in which a test asks its clients to stop in order. */
final class Stop {
    private volatile boolean asked;

    Stop() {
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // What is read does not matter, only that it ends.
                }
            } catch (IOException e) {
                // A broken pipe is an end too.
            }
            asked = true;
        });
        reader.setDaemon(true);
        reader.start();
    }

    boolean asked() {
        return asked;
    }
}
