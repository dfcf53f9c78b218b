package lockkeeper.rivals;

import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Renews a lock with an expiry, three times in a lease. The lock is lost when a renewal finds that it is another's, or
 * when a whole lease has gone by on this machine's clock since the last renewal that worked was sent; a second thread
 * watches that, since the first may wait for an answer then.
 */
final class Renewal implements AutoCloseable {
    /** One attempt: is the lock still this holder's? */
    interface Attempt {
        boolean renew() throws Exception;
    }

    private final ScheduledThreadPoolExecutor threads = new ScheduledThreadPoolExecutor(2, work -> {
        Thread daemon = new Thread(work, "renewal");
        daemon.setDaemon(true);
        return daemon;
    });
    private final long leaseMs;
    private final Tenure tenure;
    private final Attempt attempt;
    /** When the last attempt that worked began. */
    private volatile long renewed;
    private volatile Exception failure;

    /** {@code since}: System.nanoTime() before the request that got the lock was sent. */
    Renewal(long leaseMs, long since, Tenure tenure, Attempt attempt) {
        this.leaseMs = leaseMs;
        this.renewed = since;
        this.tenure = tenure;
        this.attempt = attempt;
        // What is due later does not keep the threads once they are told to end.
        threads.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        threads.scheduleWithFixedDelay(this::renew, leaseMs / 3, leaseMs / 3, TimeUnit.MILLISECONDS);
        watch();
    }

    private void renew() {
        long began = System.nanoTime();
        try {
            if (attempt.renew()) {
                renewed = began;
                failure = null;
            } else {
                tenure.lose("renewal changed no row");
            }
        } catch (Exception e) {
            failure = e;
        }
    }

    /** Looks again when the lease would end by what is known now. */
    private void watch() {
        long sinceMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - renewed);
        if (sinceMs >= leaseMs) {
            tenure.lose("not renewed for " + sinceMs + " ms, last error: " + failure);
        } else {
            threads.schedule(this::watch, leaseMs - sinceMs, TimeUnit.MILLISECONDS);
        }
    }

    /** Ends the renewals, and waits for one that runs: it uses the connection that the release needs. */
    @Override
    public void close() {
        threads.shutdown();
        try {
            threads.awaitTermination(leaseMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
