package sluice.makespan;

import java.util.HashMap;
import java.util.Map;

/**
 * One job of keyed records by many workers of one JVM: {@code Makespan share|parallel|floor --option value …}, see
 * ../README.md. Prints {@code ready}, then {@code done} when every record was worked off; ends when standard input does,
 * and writes its events then.
 */
public final class Makespan {
    private final Map<String, String> options = new HashMap<>();

    private Makespan(String[] args) {
        for (int i = 1; i + 1 < args.length; i += 2) {
            options.put(args[i].substring(2), args[i + 1]);
        }
    }

    String text(String name) {
        String value = options.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    public static void main(String[] args) throws Exception {
        Makespan options = new Makespan(args);
        Work work = new Work(options.number("records"), options.number("mean-us"));
        Thread main = Thread.currentThread();
        Thread stdin = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // What is read does not matter, only that it ends.
                }
            } catch (java.io.IOException e) {
                // A broken pipe is an end too.
            }
            main.interrupt();
        });
        stdin.setDaemon(true);
        AutoCloseable workers = switch (args[0]) {
            case "share" -> new Share(options, work);
            case "parallel" -> new Parallel(options, work);
            case "floor" -> new Floor(options, work);
            default -> throw new IllegalArgumentException("unknown role " + args[0]);
        };
        System.out.println("ready");
        stdin.start();
        try {
            work.awaitDone();
            System.out.println("done");
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            // Standard input has ended.
        }
        work.write(options.text("log"));
        System.out.println("written");
        // What a slow end of a consumer would add belongs to nobody's makespan.
        Runtime.getRuntime().halt(0);
    }
}
