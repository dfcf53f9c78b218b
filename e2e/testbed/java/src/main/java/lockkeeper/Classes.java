package lockkeeper;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.server.quorum.QuorumPeerConfig;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * Loads the classes of servers and of a client, and ends: three servers serve one lock in this process. What was loaded
 * is put into an archive by {@code -XX:ArchiveClassesAtExit}.
 */
public final class Classes {
    private static final int SERVERS = 3;
    private static final int TIMEOUT_MS = 30_000;

    private Classes() {}

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        // Free ports of this moment: should another program take one of them, then the archive is made by the next call.
        List<ServerSocket> sockets = new ArrayList<>();
        for (int i = 0; i < 3 * SERVERS; i++) {
            sockets.add(new ServerSocket(0, 1, InetAddress.getLoopbackAddress()));
        }
        Properties members = new Properties();
        for (int id = 1; id <= SERVERS; id++) {
            members.setProperty(
                    "server." + id,
                    "127.0.0.1:" + sockets.get(id - 1).getLocalPort()
                            + ":" + sockets.get(SERVERS + id - 1).getLocalPort());
        }
        String connect = "";
        for (ServerSocket socket : sockets) {
            socket.close();
        }
        for (int id = 1; id <= SERVERS; id++) {
            int port = sockets.get(2 * SERVERS + id - 1).getLocalPort();
            connect += (id == 1 ? "" : ",") + "127.0.0.1:" + port;
            Path data = Files.createDirectory(directory.resolve("server-" + id));
            Files.writeString(data.resolve("myid"), String.valueOf(id));
            Properties properties = new Properties();
            properties.putAll(members);
            properties.setProperty("tickTime", "2000");
            properties.setProperty("initLimit", "10");
            properties.setProperty("syncLimit", "5");
            properties.setProperty("dataDir", data.toString());
            properties.setProperty("clientPort", String.valueOf(port));
            properties.setProperty("clientPortAddress", "127.0.0.1");
            properties.setProperty("admin.enableServer", "false");
            Path file = data.resolve("zoo.cfg");
            try (var writer = Files.newBufferedWriter(file)) {
                properties.store(writer, null);
            }
            start(file);
        }
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(connect, TIMEOUT_MS, TIMEOUT_MS, new RetryOneTime(100));
        client.start();
        if (!client.blockUntilConnected(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("the servers did not serve within " + TIMEOUT_MS + " ms");
        }
        InterProcessMutex mutex = new InterProcessMutex(client, "/lock");
        mutex.acquire();
        mutex.release();
        System.exit(0);
    }

    private static void start(Path file) throws QuorumPeerConfig.ConfigException {
        QuorumPeerConfig config = new QuorumPeerConfig();
        config.parse(file.toString());
        Thread server = new Thread(() -> {
            try {
                new QuorumPeerMain().runFromConfig(config);
            } catch (Exception e) {
                e.printStackTrace();
            }
        });
        server.setDaemon(true);
        server.start();
    }
}
