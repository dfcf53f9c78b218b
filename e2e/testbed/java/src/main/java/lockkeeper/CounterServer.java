package lockkeeper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * ZooKeeper's own server, whose transaction counter can be set while it leads.
 *
 * <p>The counter is the lower half of a zxid. It begins at 0 with every leader ({@code Leader.lead}), whatever the
 * server's files hold, so no prepared files make an ensemble start close to its end: only four billion transactions
 * do, or {@code setZxid}, as in ZooKeeper's own ZxidRolloverTest. Servers accept the gap with {@code
 * -Dzookeeper.test.allowDiscontinuousProposals=true}.
 *
 * <p>The file that the system property {@code lockkeeper.counter} names has the counter to be set, in decimal, and is
 * removed when that is done. It has to appear at once, by being renamed.
 */
public final class CounterServer {
    private static final long COUNTER = 0xffffffffL;
    private static final long POLL_MILLIS = 20;

    private CounterServer() {}

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(System.getProperty("lockkeeper.counter"));
        Server server = new Server();
        Thread setter = new Thread(() -> obey(file, server), "counter");
        setter.setDaemon(true);
        setter.start();
        server.run(arguments);
    }

    private static void obey(Path file, Server server) {
        try {
            while (true) {
                if (Files.exists(file)) {
                    server.set(Long.parseLong(Files.readString(file).strip()));
                    Files.delete(file);
                }
                Thread.sleep(POLL_MILLIS);
            }
        } catch (IOException | InterruptedException | RuntimeException e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static final class Server extends QuorumPeerMain {
        void run(String[] arguments) throws Exception {
            initializeAndRun(arguments);
        }

        void set(long counter) {
            QuorumPeer peer = quorumPeer;
            if (peer == null || peer.leader == null) {
                throw new IllegalStateException("the counter is the leader's, and this server does not lead");
            }
            ZooKeeperServer leader = peer.getActiveServer();
            leader.setZxid(leader.getZxid() & ~COUNTER | counter);
        }
    }
}
