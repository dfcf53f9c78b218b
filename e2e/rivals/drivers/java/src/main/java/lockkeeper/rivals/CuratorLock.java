package lockkeeper.rivals;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateErrorPolicy;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.framework.state.SessionConnectionStateErrorPolicy;
import org.apache.curator.framework.state.StandardConnectionStateErrorPolicy;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Apache Curator's locks on ZooKeeper: {@code curator-mutex}, {@code curator-mutex-session-policy} and
 * {@code curator-mutex-session-policy-33} (InterProcessMutex), and {@code curator-semaphore-mutex}
 * (InterProcessSemaphoreMutex).
 *
 * <p>Pages: https://curator.apache.org/docs/recipes-shared-reentrant-lock and
 * https://curator.apache.org/docs/recipes-shared-lock, "Error Handling": "It is strongly recommended that you add a
 * ConnectionStateListener and watch for SUSPENDED and LOST state changes"; https://curator.apache.org/docs/errors,
 * "Error Policy": the standard policy takes both states for errors, the session policy LOST alone. The listener here
 * asks the client's policy, as LeaderSelectorListenerAdapter does, and ends the holder's work. Retries are those of
 * https://curator.apache.org/docs/getting-started. The connection timeout is its default, or the session's if that is
 * shorter: Curator warns of a longer one. {@code -33} has 33 for simulatedSessionExpirationPercent, by which the client
 * takes the session for lost that much of its time after SUSPENDED; by default it is 100.
 *
 * <p>Fencing token: none. Reentrant: InterProcessMutex yes, InterProcessSemaphoreMutex no. Tells of a loss: through
 * the listener, by the client's own clock when it has no connection. After a crash: the session's timeout
 * ({@code --lease-ms}) releases, by the ZooKeeper servers.
 *
 * <p>Known, and open: https://github.com/apache/curator/issues/1121 (CURATOR-604). A client that waits, loses its
 * session and reconnects may be told that it has the lock by its node of the old session, which the servers are about
 * to delete; no state change follows. The pages have no advice about it, so the driver does nothing against it.
 */
final class CuratorLock implements Lock {
    /** What CuratorFrameworkFactory has when it is not told. */
    private static final int DEFAULT_SESSION_MS = 60_000;

    private static final int DEFAULT_CONNECTION_MS = 15_000;

    static final int DEFAULT_EXPIRATION_PERCENT = 100;

    private final CuratorFramework client;
    private final InterProcessLock lock;
    private final String path;
    private final boolean semaphore;
    private ConnectionState error;
    private Tenure holding;

    private CuratorLock(Options options, ConnectionStateErrorPolicy policy, int expirationPercent, boolean semaphore) {
        int sessionMs = (int) options.leaseMs(DEFAULT_SESSION_MS);
        client = CuratorFrameworkFactory.builder()
                .connectString(options.servers())
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(Math.min(DEFAULT_CONNECTION_MS, sessionMs))
                .retryPolicy(new ExponentialBackoffRetry(1000, 3))
                .connectionStateErrorPolicy(policy)
                .simulatedSessionExpirationPercent(expirationPercent)
                .build();
        client.getConnectionStateListenable().addListener(
                (ConnectionStateListener) (unused, state) -> changed(state));
        client.start();
        this.semaphore = semaphore;
        path = options.lock().startsWith("/") ? options.lock() : "/" + options.lock();
        lock = semaphore ? new InterProcessSemaphoreMutex(client, path) : new InterProcessMutex(client, path);
    }

    static Lock mutex(Options options) {
        return new CuratorLock(options, new StandardConnectionStateErrorPolicy(), DEFAULT_EXPIRATION_PERCENT, false);
    }

    static Lock mutexBySession(Options options, int expirationPercent) {
        return new CuratorLock(options, new SessionConnectionStateErrorPolicy(), expirationPercent, false);
    }

    static Lock semaphoreMutex(Options options) {
        return new CuratorLock(options, new StandardConnectionStateErrorPolicy(), DEFAULT_EXPIRATION_PERCENT, true);
    }

    private synchronized void changed(ConnectionState state) {
        error = client.getConnectionStateErrorPolicy().isErrorState(state) ? state : null;
        if (error != null && holding != null) {
            holding.lose("connection state " + state);
        }
    }

    /** Pages: those above; recipes-shared-reentrant-read-write-lock, recipes-shared-semaphore. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "acquire(0, …)", "timed", "acquire(…)",
                "share", semaphore ? "InterProcessSemaphoreV2" : "InterProcessReadWriteLock",
                "exceed", semaphore ? "a third lease" : "writeLock()");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws Exception {
        if (verb.equals("try") || verb.equals("timed")) {
            return lock.acquire(verb.equals("try") ? 0 : waitMs, TimeUnit.MILLISECONDS);
        }
        if (semaphore) {
            // The third lease of two exceeds them.
            return new InterProcessSemaphoreV2(client, path, 2).acquire() != null;
        }
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        InterProcessMutex one = verb.equals("share") ? both.readLock() : both.writeLock();
        one.acquire();
        return true;
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        lock.acquire();
        synchronized (this) {
            holding = tenure;
            if (error != null) {
                tenure.lose("connection state " + error + " when the lock came");
            }
        }
        return null;
    }

    @Override
    public void release() throws Exception {
        synchronized (this) {
            holding = null;
        }
        lock.release();
    }

    @Override
    public void close() {
        client.close();
    }
}
