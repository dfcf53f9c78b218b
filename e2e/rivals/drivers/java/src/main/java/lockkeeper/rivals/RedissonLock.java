package lockkeeper.rivals;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;

/**
 * Redisson's locks on Redis: {@code redisson-lock} (RLock) and {@code redisson-fenced} (RFencedLock), without a lease
 * time, so that the watchdog renews them three times in {@code lockWatchdogTimeout} ({@code --lease-ms}; 30 s with
 * {@code -defaults}). {@code --servers HOST:PORT}, or {@code sentinel:MASTER:HOST:PORT,HOST:PORT...}.
 *
 * <p>Page: https://redisson.pro/docs/data-and-services/locks-and-synchronizers/ ("Lock", "Fenced Lock"), and
 * https://redisson.pro/docs/configuration/ for lockWatchdogTimeout, single and Sentinel mode. All else is default:
 * checkLockSyncedSlaves is true.
 *
 * <p>Fencing token: RFencedLock alone. Reentrant: yes, by thread. Tells of a loss: never; the watchdog gives up
 * without a word when the lock is not there, and unlock throws (a listener is asked for in
 * https://github.com/redisson/redisson/issues/4698, open). With {@code -checked} the driver calls
 * isHeldByCurrentThread three times in a lease. After a crash: the key's time to live releases, by Redis.
 */
final class RedissonLock implements Lock {
    private static final String SENTINEL = "sentinel:";
    private static final long DEFAULT_WATCHDOG_MS = 30_000;

    private final RedissonClient client;
    private final RLock lock;

    private RedissonLock(Options options, boolean fenced) {
        Config config = new Config();
        config.setLockWatchdogTimeout(options.leaseMs(DEFAULT_WATCHDOG_MS));
        String servers = options.servers();
        if (servers.startsWith(SENTINEL)) {
            String[] parts = servers.substring(SENTINEL.length()).split(":", 2);
            SentinelServersConfig sentinel = config.useSentinelServers().setMasterName(parts[0]);
            Arrays.stream(parts[1].split(",")).forEach(server -> sentinel.addSentinelAddress("redis://" + server));
        } else {
            config.useSingleServer().setAddress("redis://" + servers);
        }
        client = Redisson.create(config);
        lock = fenced ? client.getFencedLock(options.lock()) : client.getLock(options.lock());
    }

    static Lock plain(Options options) {
        return new RedissonLock(options, false);
    }

    static Lock fenced(Options options) {
        return new RedissonLock(options, true);
    }

    /** Page: that above; "ReadWriteLock" for those who share. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "tryLock()", "timed", "tryLock(…)", "share", "RReadWriteLock", "exceed", "writeLock()");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws InterruptedException {
        switch (verb) {
            case "try" -> {
                return lock.tryLock();
            }
            case "timed" -> {
                return lock.tryLock(waitMs, TimeUnit.MILLISECONDS);
            }
            case "share" -> client.getReadWriteLock(lock.getName()).readLock().lock();
            default -> client.getReadWriteLock(lock.getName()).writeLock().lock();
        }
        return true;
    }

    @Override
    public Long acquire(Tenure tenure) throws InterruptedException {
        if (lock instanceof RFencedLock fenced) {
            return fenced.lockAndGetToken();
        }
        lock.lockInterruptibly();
        return null;
    }

    @Override
    public boolean stillHeld() {
        return lock.isHeldByCurrentThread();
    }

    @Override
    public void wake() {
        client.shutdown();
    }

    @Override
    public void release() {
        lock.unlock();
    }

    @Override
    public void close() {
        client.shutdown();
    }
}
