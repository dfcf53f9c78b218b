package lockkeeper;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/** Curator's own mutex, which also tells the fencing token: the transaction id that made its node. */
final class TokenMutex extends InterProcessMutex {
    private final CuratorFramework client;

    TokenMutex(CuratorFramework client, String path) {
        super(client, path);
        this.client = client;
    }

    long token() throws Exception {
        return client.checkExists().forPath(getLockPath()).getCzxid();
    }
}
