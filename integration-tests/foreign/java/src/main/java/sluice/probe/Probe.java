package sluice.probe;

/** One client of a test: {@code Probe ROLE --option value …}; the roles and options stand in ../README.md. */
public final class Probe {
    private Probe() {}

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            System.err.println("usage: Probe produce|consume|share|latency --option value …");
            System.exit(2);
        }
        Options options = new Options(args);
        if (args[0].equals("latency")) {
            Latency.run(options);
            System.exit(0);
        }
        try (EventLog log = new EventLog(options.text("log"), options.text("member"))) {
            switch (args[0]) {
                case "produce" -> Produce.run(options, log);
                case "consume" -> Consume.run(options, log);
                case "share" -> Share.run(options, log);
                default -> {
                    System.err.println("unknown role " + args[0]);
                    System.exit(2);
                }
            }
            log.write("end", -1, -1, null, 0);
        }
        System.exit(0);
    }
}
