package lockkeeper;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Stands in the queue of a Curator InterProcessMutex some times, and writes the lines of
 * lockkeeper-recorder while it holds the lock, so that the overlap checker reads both alike.
 *
 * <p>Java cannot read CLOCK_BOOTTIME. System.nanoTime() is CLOCK_MONOTONIC on Linux, which differs
 * from it by the time that the machine was suspended: --boot-offset-ns, measured by whoever starts us.
 */
public final class CuratorContender {
    private static final int CONNECTION_TIMEOUT_MS = 15_000;
    private static final long BEAT_MS = 5;

    private CuratorContender() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String connect = options.text("connect");
        String path = options.text("path");
        long times = options.number("times");
        long holdMs = options.number("hold-ms");
        int sessionTimeoutMs = (int) options.number("session-timeout-ms");
        long bootOffset = options.number("boot-offset-ns");
        String name = options.text("name");
        String record = options.text("record");
        options.end();

        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                        connect, sessionTimeoutMs, CONNECTION_TIMEOUT_MS, new ExponentialBackoffRetry(100, 10));
                FileOutputStream file = new FileOutputStream(record, true)) {
            client.start();
            TokenMutex mutex = new TokenMutex(client, path);
            for (long i = 0; i < times; i++) {
                mutex.acquire();
                try {
                    hold(mutex.token(), holdMs, bootOffset, name, file);
                } finally {
                    mutex.release();
                }
            }
        }
    }

    private static void hold(long token, long holdMs, long bootOffset, String name, FileOutputStream file)
            throws IOException, InterruptedException {
        long pid = ProcessHandle.current().pid();
        long begin = System.nanoTime();
        long end = begin + TimeUnit.MILLISECONDS.toNanos(holdMs);
        write(file, "begin " + token + " " + (begin + bootOffset) + " " + pid + " " + name);
        while (System.nanoTime() < end) {
            Thread.sleep(BEAT_MS);
            write(file, "beat " + token + " " + (System.nanoTime() + bootOffset) + " " + pid);
        }
        write(file, "end " + token + " " + (System.nanoTime() + bootOffset) + " " + pid);
    }

    /** One write(2) of the whole line on a file opened for appending. */
    private static void write(FileOutputStream file, String line) throws IOException {
        file.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    }
}
