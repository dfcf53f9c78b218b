package lockkeeper;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/**
 * Writes the lines of lockkeeper-recorder while a lock is held, so that the overlap checker reads all
 * clients alike.
 *
 * <p>Java cannot read CLOCK_BOOTTIME. System.nanoTime() is CLOCK_MONOTONIC on Linux, which differs
 * from it by the time that the machine was suspended: --boot-offset-ns, measured by whoever starts us.
 */
final class Recorder implements AutoCloseable {
    private static final long BEAT_MS = 5;

    private final FileOutputStream file;
    private final long holdMs;
    private final long bootOffset;
    private final String name;

    Recorder(Options options) throws IOException {
        holdMs = options.number("hold-ms");
        bootOffset = options.number("boot-offset-ns");
        name = options.text("name");
        file = new FileOutputStream(options.text("record"), true);
    }

    void hold(long token) throws IOException, InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(holdMs);
        write("begin", token, " " + name);
        while (System.nanoTime() < end) {
            Thread.sleep(BEAT_MS);
            write("beat", token, "");
        }
        write("end", token, "");
    }

    /** One write(2) of the whole line on a file opened for appending. */
    private void write(String moment, long token, String rest) throws IOException {
        long pid = ProcessHandle.current().pid();
        String line = moment + " " + token + " " + (System.nanoTime() + bootOffset) + " " + pid + rest + "\n";
        file.write(line.getBytes(StandardCharsets.US_ASCII));
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
