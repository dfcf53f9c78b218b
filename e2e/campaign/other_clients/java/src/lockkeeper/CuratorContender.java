package lockkeeper;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Stands in the queue of a Curator InterProcessMutex some times, and records when it holds the lock. */
public final class CuratorContender {
    private static final int CONNECTION_TIMEOUT_MS = 15_000;

    private CuratorContender() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String connect = options.text("connect");
        String path = options.text("path");
        long times = options.number("times");
        int sessionTimeoutMs = (int) options.number("session-timeout-ms");
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                        connect, sessionTimeoutMs, CONNECTION_TIMEOUT_MS, new ExponentialBackoffRetry(100, 10));
                Recorder recorder = new Recorder(options)) {
            options.end();
            client.start();
            TokenMutex mutex = new TokenMutex(client, path);
            for (long i = 0; i < times; i++) {
                mutex.acquire();
                try {
                    recorder.hold(mutex.token());
                } finally {
                    mutex.release();
                }
            }
        }
    }
}
