package lockkeeper.rivals;

import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * The thread that renews a lock with an expiry, three times in a lease. The lock is lost when a renewal finds that it
 * is another's, or when renewals failed for a whole lease by this machine's clock.
 */
final class Renewal implements AutoCloseable {
    /** One attempt: is the lock still this holder's? */
    interface Attempt {
        boolean renew() throws Exception;
    }

    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread daemon = new Thread(work, "renewal");
        daemon.setDaemon(true);
        return daemon;
    });
    private final long leaseMs;
    private final Tenure tenure;
    private final Attempt attempt;
    /** When the last attempt that worked began. */
    private long renewed;

    /** {@code since}: System.nanoTime() before the request that got the lock was sent. */
    Renewal(long leaseMs, long since, Tenure tenure, Attempt attempt) {
        this.leaseMs = leaseMs;
        this.renewed = since;
        this.tenure = tenure;
        this.attempt = attempt;
        thread.scheduleWithFixedDelay(this::renew, leaseMs / 3, leaseMs / 3, TimeUnit.MILLISECONDS);
    }

    private void renew() {
        long began = System.nanoTime();
        try {
            if (attempt.renew()) {
                renewed = began;
            } else {
                tenure.lose("renewal changed no row");
            }
        } catch (Exception e) {
            long since = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - renewed);
            if (since >= leaseMs) {
                tenure.lose("not renewed for " + since + " ms: " + e);
            }
        }
    }

    /** Ends the renewals, and waits for one that runs: it uses the connection that the release needs. */
    @Override
    public void close() {
        thread.shutdown();
        try {
            thread.awaitTermination(leaseMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
