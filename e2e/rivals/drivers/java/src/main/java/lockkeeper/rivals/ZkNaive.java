package lockkeeper.rivals;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * {@code zk-naive}: one ephemeral node of a fixed name is the lock; all others watch it, and all of them try again when
 * it goes (the herd that the recipe's queue avoids).
 *
 * <p>Page: https://zookeeper.apache.org/doc/current/recipes.html, "Locks", whose queue is there to avoid the herd;
 * https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkSessions for what the states mean. After a
 * lost connection the node's owner tells whose it is.
 *
 * <p>Fencing token: none is handed out (a node's czxid would be one). Reentrant: yes, the node of its session is found
 * again, and one release deletes it. Tells of a loss: the events Expired (from a server, or, in 3.9.5, from the client
 * itself when it has had none for 4/3 of the timeout) and NodeDeleted. Disconnected is not a loss. After a crash: the
 * session's timeout ({@code --lease-ms}) releases, by the servers.
 */
final class ZkNaive implements Lock, Watcher {
    /** Nothing is the library's default here: the client must be told one. This is what its examples have. */
    private static final int DEFAULT_SESSION_MS = 15_000;

    private final ZooKeeper client;
    private final String path;
    private final byte[] name;
    private boolean connected;
    private boolean expired;
    private boolean changed;
    private boolean deleted;
    private Tenure holding;

    ZkNaive(Options options) throws Exception {
        path = options.lock().startsWith("/") ? options.lock() : "/" + options.lock();
        name = options.name().getBytes(StandardCharsets.UTF_8);
        client = new ZooKeeper(options.servers(), (int) options.leaseMs(DEFAULT_SESSION_MS), this);
        try {
            createParents();
        } catch (Exception e) {
            client.close();
            throw e;
        }
    }

    @Override
    public synchronized void process(WatchedEvent event) {
        switch (event.getState()) {
            case SyncConnected -> connected = true;
            case Expired -> {
                expired = true;
                lose("session expired");
            }
            default -> connected = false;
        }
        if (event.getType() != Event.EventType.None) {
            changed = true;
            if (event.getType() == Event.EventType.NodeDeleted) {
                deleted = true;
                lose("node deleted");
            }
        }
        notifyAll();
    }

    private void lose(String how) {
        if (holding != null) {
            holding.lose(how);
        }
    }

    private void createParents() throws Exception {
        for (int slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
            awaitConnection();
            String parent = path.substring(0, slash);
            try {
                client.create(parent, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                // Another driver was faster.
            }
        }
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        while (true) {
            try {
                awaitConnection();
                if (attempt()) {
                    synchronized (this) {
                        holding = tenure;
                        if (expired || deleted) {
                            tenure.lose(expired ? "session expired" : "node deleted");
                        }
                    }
                    return null;
                }
                awaitChange();
            } catch (KeeperException.ConnectionLossException e) {
                synchronized (this) {
                    // The event may still be on its way.
                    connected = client.getState().isConnected();
                }
            }
        }
    }

    /** One turn of the recipe, which has no other call. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "create");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws Exception {
        awaitConnection();
        return attempt();
    }

    /** Creates the node if there is none, and watches it in both cases: is it this session's now? */
    private boolean attempt() throws Exception {
        synchronized (this) {
            changed = false;
            deleted = false;
        }
        try {
            client.create(path, name, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        } catch (KeeperException.NodeExistsException e) {
            // Whose it is comes next: a create whose answer was lost may have worked.
        }
        Stat stat = client.exists(path, this);
        if (stat == null) {
            // It went between the two requests: try again at once.
            synchronized (this) {
                changed = true;
            }
            return false;
        }
        return stat.getEphemeralOwner() == client.getSessionId();
    }

    private synchronized void awaitConnection() throws Exception {
        while (!connected && !expired) {
            wait();
        }
        if (expired) {
            throw new KeeperException.SessionExpiredException();
        }
    }

    private synchronized void awaitChange() throws Exception {
        while (!changed && !expired) {
            wait();
        }
    }

    @Override
    public void release() throws Exception {
        synchronized (this) {
            holding = null;
            if (expired) {
                throw new KeeperException.SessionExpiredException();
            }
        }
        Stat stat = client.exists(path, false);
        if (stat != null && stat.getEphemeralOwner() == client.getSessionId()) {
            client.delete(path, -1);
        }
    }

    @Override
    public void close() throws InterruptedException {
        client.close();
    }
}
