package sluice.probe;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** Options of the command line: pairs of {@code --name value}. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        for (int i = 1; i + 1 < args.length; i += 2) {
            values.put(args[i].substring(2), args[i + 1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    long number(String name, long otherwise) {
        String value = values.get(name);
        return value == null ? otherwise : Long.parseLong(value);
    }

    Properties client() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", text("bootstrap"));
        properties.put("client.id", text("member"));
        // A broker that is restarted is found again within a fraction of a second.
        properties.put("reconnect.backoff.ms", "50");
        properties.put("reconnect.backoff.max.ms", "250");
        return properties;
    }
}
