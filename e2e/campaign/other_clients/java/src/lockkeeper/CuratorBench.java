package lockkeeper;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * How long nobody holds a Curator InterProcessMutex between two holders, with a session for each of
 * the contenders, all of which queue again at once. Measured from just before release() to the
 * return of the next acquire(), within this process, on one clock.
 *
 * <p>Prints one JSON object: {@code {"contenders":50,"holdMillis":5,"handoffs":200,
 * "rounds":[{"p50Micros":1460,"p99Micros":2130},…]}}.
 */
public final class CuratorBench {
    private static final int CONNECTION_TIMEOUT_MS = 30_000;
    private static final int SESSION_TIMEOUT_MS = 20_000;

    private final int handoffs;
    private final int rounds;
    private final long holdMs;
    private final long[] gaps;

    // Guarded by the mutex under measurement: only its holder touches them.
    private int done;
    private long released;

    private CuratorBench(int handoffs, int rounds, long holdMs) {
        this.handoffs = handoffs;
        this.rounds = rounds;
        this.holdMs = holdMs;
        this.gaps = new long[handoffs * rounds];
        this.done = -1;
    }

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String connect = options.text("connect");
        String path = options.text("path");
        int contenders = (int) options.number("contenders");
        int rounds = (int) options.number("rounds");
        int handoffs = (int) options.number("handoffs");
        long holdMs = options.number("hold-ms");
        options.end();

        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < contenders; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(
                    connect, SESSION_TIMEOUT_MS, CONNECTION_TIMEOUT_MS, new ExponentialBackoffRetry(100, 10));
            client.start();
            clients.add(client);
        }
        for (CuratorFramework client : clients) {
            client.blockUntilConnected();
        }
        String measured = new CuratorBench(handoffs, rounds, holdMs).run(clients, path);
        System.out.println("{\"contenders\":" + contenders + ",\"holdMillis\":" + holdMs + ",\"handoffs\":" + handoffs
                + ",\"rounds\":[" + measured + "]}");
        for (CuratorFramework client : clients) {
            client.close();
        }
    }

    private String run(List<CuratorFramework> clients, String path) throws Exception {
        // The first holder waits here until everybody queues: the first gaps are of a full queue, too.
        CountDownLatch queued = new CountDownLatch(clients.size());
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (CuratorFramework client : clients) {
            Thread thread = new Thread(() -> {
                try {
                    contend(new InterProcessMutex(client, path), queued);
                } catch (Exception e) {
                    failure.compareAndSet(null, e);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        List<String> results = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            long[] sorted = Arrays.copyOfRange(gaps, round * handoffs, (round + 1) * handoffs);
            Arrays.sort(sorted);
            results.add("{\"p50Micros\":" + percentile(sorted, 50) + ",\"p99Micros\":" + percentile(sorted, 99) + "}");
        }
        return results.stream().collect(Collectors.joining(","));
    }

    private void contend(InterProcessMutex mutex, CountDownLatch queued) throws Exception {
        queued.countDown();
        boolean more = true;
        while (more) {
            mutex.acquire();
            long acquired = System.nanoTime();
            try {
                if (done < 0) {
                    queued.await();
                } else if (done < gaps.length) {
                    gaps[done] = acquired - released;
                }
                done++;
                more = done < gaps.length;
                if (more) {
                    Thread.sleep(holdMs);
                }
            } finally {
                released = System.nanoTime();
                mutex.release();
            }
        }
    }

    private static long percentile(long[] sorted, int percent) {
        return sorted[Math.min(sorted.length - 1, sorted.length * percent / 100)] / 1000;
    }
}
