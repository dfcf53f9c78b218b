package lockkeeper.rivals;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.cp.ISemaphore;
import com.hazelcast.cp.lock.FencedLock;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * {@code hazelcast-fenced}: FencedLock of Hazelcast's CP subsystem, used by a client of the members that
 * {@link HazelcastMember} runs.
 *
 * <p>Page: https://docs.hazelcast.com/hazelcast/5.3/data-structures/fencedlock; CP sessions:
 * https://docs.hazelcast.com/hazelcast/5.3/cp-subsystem/cp-subsystem#cp-sessions. The page tells users that a paused
 * holder "may not immediately notice", and to pass the fence to the resource.
 *
 * <p>Fencing token: getFence(). Reentrant: yes, by thread. Tells of a loss: the next call throws
 * LockOwnershipLostException, but nothing is said by itself; with {@code -checked} the driver calls
 * isLockedByCurrentThread three times in a lease. After a crash: the CP session's time to live releases, by the CP
 * group; it is the member's option, 300 s by default, so {@code --lease-ms} has no meaning here but for
 * {@code -checked}.
 */
final class HazelcastFenced implements Lock {
    private final HazelcastInstance client;
    private final FencedLock lock;
    private final String name;

    HazelcastFenced(Options options) {
        ClientConfig config = new ClientConfig();
        config.setClusterName(HazelcastMember.CLUSTER);
        config.setInstanceName(options.name());
        config.getNetworkConfig().addAddress(options.servers().split(","));
        client = HazelcastClient.newHazelcastClient(config);
        name = options.lock();
        lock = client.getCPSubsystem().getLock(name);
    }

    /**
     * Pages: that above, and for several holders https://docs.hazelcast.com/hazelcast/5.3/data-structures/isemaphore.
     */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "tryLock()", "timed", "tryLock(…)", "share", "ISemaphore", "exceed", "a third permit");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws InterruptedException {
        if (verb.equals("try")) {
            return lock.tryLock();
        }
        if (verb.equals("timed")) {
            return lock.tryLock(waitMs, TimeUnit.MILLISECONDS);
        }
        ISemaphore semaphore = client.getCPSubsystem().getSemaphore(name);
        // False if another client was faster. The third permit of two exceeds them.
        semaphore.init(2);
        semaphore.acquire();
        return true;
    }

    @Override
    public Long acquire(Tenure tenure) throws InterruptedException {
        lock.lockInterruptibly();
        return lock.getFence();
    }

    @Override
    public boolean stillHeld() {
        return lock.isLockedByCurrentThread();
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
