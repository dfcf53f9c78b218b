package lockkeeper;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Takes the write lock, then the read lock beside it, and releases first the one and then the other: a step a line of input. */
public final class CuratorDowngrade {
    private static final int CONNECTION_TIMEOUT_MS = 15_000;

    private CuratorDowngrade() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String connect = options.text("connect");
        String path = options.text("path");
        int sessionTimeoutMs = (int) options.number("session-timeout-ms");
        options.end();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                connect, sessionTimeoutMs, CONNECTION_TIMEOUT_MS, new ExponentialBackoffRetry(100, 10))) {
            client.start();
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
            lock.writeLock().acquire();
            say("writes");
            input.readLine();
            lock.readLock().acquire();
            say("reads");
            input.readLine();
            lock.writeLock().release();
            say("only reads");
            input.readLine();
            lock.readLock().release();
            say("released");
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
