package lockkeeper.rivals;

import com.hazelcast.config.Config;
import com.hazelcast.config.JoinConfig;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.cp.CPGroup;
import com.hazelcast.cp.internal.RaftService;
import com.hazelcast.instance.impl.HazelcastInstanceProxy;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * One member of the Hazelcast cluster whose CP subsystem has the lock of {@link HazelcastFenced}: three of them, each
 * a CP member in a JVM of its own.
 *
 * <pre>
 * HazelcastMember --address IP --port PORT --members IP:PORT,IP:PORT,IP:PORT
 *                 [--session-ttl-s S] [--session-heartbeat-s S]
 * </pre>
 *
 * It prints its version, {@code ready} when the CP subsystem has been discovered by all three, and {@code leads} or
 * {@code follows} whenever that has changed for the default group, to which the lock belongs. No public method tells
 * the leader. The times of a CP session are Hazelcast's own (300 s and 5 s) unless they are given.
 * Page: https://docs.hazelcast.com/hazelcast/5.3/cp-subsystem/configuration.
 */
public final class HazelcastMember {
    static final String CLUSTER = "lockkeeper";
    private static final int CP_MEMBERS = 3;
    private static final long DISCOVERY_LIMIT_S = 600;
    private static final long LOOK_MS = 200;

    private HazelcastMember() {}

    public static void main(String[] arguments) throws Exception {
        Options options = Options.plain(arguments);
        Config config = new Config();
        config.setClusterName(CLUSTER);
        config.setProperty("hazelcast.logging.type", "slf4j");
        // No news from here to its makers.
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.getNetworkConfig().setPort((int) options.number("port", 5701)).setPortAutoIncrement(false);
        config.getNetworkConfig().setPublicAddress(options.text("address") + ":" + options.number("port", 5701));
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface(options.text("address"));
        JoinConfig join = config.getNetworkConfig().getJoin();
        join.getAutoDetectionConfig().setEnabled(false);
        join.getMulticastConfig().setEnabled(false);
        join.getTcpIpConfig().setEnabled(true);
        for (String member : options.text("members").split(",")) {
            join.getTcpIpConfig().addMember(member);
        }
        config.getCPSubsystemConfig()
                .setCPMemberCount(CP_MEMBERS)
                .setSessionTimeToLiveSeconds((int) options.number("session-ttl-s", 300))
                .setSessionHeartbeatIntervalSeconds((int) options.number("session-heartbeat-s", 5));
        HazelcastInstance member = Hazelcast.newHazelcastInstance(config);
        System.out.println("version " + member.getCluster().getLocalMember().getVersion());
        boolean ready = member.getCPSubsystem()
                .getCPSubsystemManagementService()
                .awaitUntilDiscoveryCompleted(DISCOVERY_LIMIT_S, TimeUnit.SECONDS);
        if (ready) {
            // The group is made when it is first used.
            member.getCPSubsystem().getLock("first");
            tellWhoLeads(member);
        }
        System.out.println(ready ? "ready" : "no CP subsystem within " + DISCOVERY_LIMIT_S + " s");
    }

    private static void tellWhoLeads(HazelcastInstance member) {
        RaftService raft = ((HazelcastInstanceProxy) member).getOriginal().node.getNodeEngine()
                .getService(RaftService.SERVICE_NAME);
        AtomicReference<Boolean> last = new AtomicReference<>();
        ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor();
        thread.scheduleWithFixedDelay(() -> {
            boolean leads = raft.getAllRaftNodes().stream()
                    .filter(node -> node.getGroupId().getName().equals(CPGroup.DEFAULT_GROUP_NAME))
                    .anyMatch(node -> node.getLocalMember().equals(node.getLeader()));
            if (!Boolean.valueOf(leads).equals(last.getAndSet(leads))) {
                System.out.println(leads ? "leads" : "follows");
            }
        }, 0, LOOK_MS, TimeUnit.MILLISECONDS);
    }
}
