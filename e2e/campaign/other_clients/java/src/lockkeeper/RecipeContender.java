package lockkeeper;

import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Stands in the queue of ZooKeeper's own recipe some times, and records when it holds the lock.
 *
 * <p>Follows "Locks" on https://zookeeper.apache.org/doc/current/recipes.html with ZooKeeper's Java client. The
 * contender is named {@code x-<session>-<sequence>}, as by WriteLock of zookeeper-recipes-lock, a module of
 * ZooKeeper's source that is in no registry.
 */
public final class RecipeContender {
    private RecipeContender() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String connect = options.text("connect");
        String path = options.text("path");
        long times = options.number("times");
        int sessionTimeoutMs = (int) options.number("session-timeout-ms");
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper client = new ZooKeeper(connect, sessionTimeoutMs, event -> {
                    if (event.getState() == KeeperState.SyncConnected) {
                        connected.countDown();
                    }
                });
                Recorder recorder = new Recorder(options)) {
            options.end();
            connected.await();
            for (long i = 0; i < times; i++) {
                Stat stat = new Stat();
                String own = lock(client, path, stat);
                recorder.hold(stat.getCzxid());
                client.delete(own, -1);
            }
        }
    }

    private static String lock(ZooKeeper client, String path, Stat stat) throws Exception {
        String prefix = path + "/x-" + client.getSessionId() + "-";
        String own = client.create(
                prefix, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL, stat);
        while (true) {
            List<String> children = client.getChildren(path, false);
            String before = children.stream()
                    .filter(child -> sequence(child) < sequence(own))
                    .max(Comparator.comparingInt(RecipeContender::sequence))
                    .orElse(null);
            if (before == null) {
                return own;
            }
            CountDownLatch gone = new CountDownLatch(1);
            try {
                client.getData(path + "/" + before, event -> gone.countDown(), null);
                gone.await();
            } catch (KeeperException.NoNodeException e) {
                // It went in between: look again.
            }
        }
    }

    private static int sequence(String name) {
        return Integer.parseInt(name.substring(name.length() - 10));
    }
}
