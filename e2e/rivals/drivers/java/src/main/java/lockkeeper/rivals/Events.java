package lockkeeper.rivals;

import java.io.PrintStream;

/** What happened to the lock, one JSON object a line on standard output, flushed at once. */
final class Events {
    private final PrintStream out;
    private final long bootOffsetNs;

    /** {@code bootOffsetNs}: from CLOCK_MONOTONIC, which System.nanoTime reads on Linux, to CLOCK_BOOTTIME. */
    Events(PrintStream out, long bootOffsetNs) {
        this.out = out;
        this.bootOffsetNs = bootOffsetNs;
    }

    void ready() {
        write("ready", "");
    }

    void held(Long token) {
        write("held", ",\"token\":" + token);
    }

    void lost(String how) {
        write("lost", ",\"how\":" + quoted(how));
    }

    void released() {
        write("released", "");
    }

    void error(String what) {
        write("error", ",\"what\":" + quoted(what));
    }

    void ready(int who) {
        write("ready", by(who));
    }

    void held(int who) {
        write("held", by(who));
    }

    void releasing(int who) {
        write("releasing", by(who));
    }

    void error(int who, String what) {
        write("error", by(who) + ",\"what\":" + quoted(what));
    }

    void step(String outcome, long ms, String call, String what) {
        write("step", ",\"outcome\":" + quoted(outcome) + ",\"ms\":" + ms + ",\"call\":" + orNull(call)
                + ",\"what\":" + orNull(what));
    }

    private static String orNull(String text) {
        return text == null ? "null" : quoted(text);
    }

    private static String by(int who) {
        return ",\"who\":" + who;
    }

    private synchronized void write(String event, String more) {
        long at = System.nanoTime() + bootOffsetNs;
        out.print("{\"event\":\"" + event + "\",\"at\":" + at + more + "}\n");
        out.flush();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
