package lockkeeper.rivals;

import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import sun.misc.Signal;

/**
 * Holds one lock of the field as its documentation tells, runs a command while it holds, and tells on standard output
 * what happens.
 *
 * <pre>
 * Driver --system SYSTEM --servers HOST:PORT[,HOST:PORT...] --lock NAME --name ID [--lease-ms MS] [--times N]
 *        [--hold-ms MS] [--token-file FILE] [--boot-offset-ns NS]
 *        [--url JDBC-URL] [--database D] [--user U] [--password P] -- COMMAND ARG...
 * Driver ... --hold-ms MS --crowd N [--rejoin next|at-once]
 * Driver ... --probe STEP,... --bound-ms MS --wait-ms MS
 * </pre>
 *
 * The second form is {@link Crowd}'s, the third one {@link Probe}'s.
 *
 * Each system's class says which page it follows and what the lock promises.
 */
public final class Driver {
    /** The pace of new attempts where the library has none. */
    static final long PACE_MS = 200;

    /** A supervisor's patience; the harness has less of it than most. */
    private static final long STOP_LIMIT_MS = 10_000;

    /** Makes a client. */
    interface Opener {
        Lock open(Options options) throws Exception;
    }

    private static final Map<String, Opener> SYSTEMS = Map.ofEntries(
            Map.entry("curator-mutex", CuratorLock::mutex),
            Map.entry("curator-mutex-session-policy",
                    options -> CuratorLock.mutexBySession(options, CuratorLock.DEFAULT_EXPIRATION_PERCENT)),
            Map.entry("curator-mutex-session-policy-33", options -> CuratorLock.mutexBySession(options, 33)),
            Map.entry("curator-semaphore-mutex", CuratorLock::semaphoreMutex),
            Map.entry("zk-naive", ZkNaive::new),
            Map.entry("jdbc-row", JdbcRow::new),
            Map.entry("jdbc-row-expiry", JdbcRowExpiry::new),
            Map.entry("jdbc-for-update", JdbcForUpdate::new),
            Map.entry("jdbc-version", JdbcVersion::new),
            Map.entry("pg-advisory", PgAdvisory::new),
            Map.entry("redisson-lock", RedissonLock::plain),
            Map.entry("redisson-fenced", RedissonLock::fenced),
            Map.entry("hazelcast-fenced", HazelcastFenced::new),
            Map.entry("shedlock", ShedLock::new));

    private final Options options;
    private final Events events;
    private final Opener opener;
    private final Thread main = Thread.currentThread();
    private final CountDownLatch stopping = new CountDownLatch(1);
    private Lock acquiring;
    private Tenure tenure;
    private long had;

    private Driver(Options options, Events events, Opener opener) {
        this.options = options;
        this.events = events;
        this.opener = opener;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel",
                System.getProperty("org.slf4j.simpleLogger.defaultLogLevel", "error"));
        System.setProperty("hazelcast.logging.type", "slf4j");
        Options options = new Options(arguments);
        Opener opener = SYSTEMS.get(options.system());
        boolean crowd = options.number("crowd", 0) > 0;
        boolean probe = !options.text("probe", "").isEmpty();
        boolean isWhole = crowd
                ? options.number("hold-ms", 0) > 0 && !probe
                : !probe || options.number("bound-ms", 0) > 0 && options.number("wait-ms", 0) > 0;
        if (opener == null || options.command.isEmpty() != (crowd || probe) || !isWhole) {
            System.err.println("expected -- COMMAND, or --crowd and --hold-ms, or --probe, --bound-ms and --wait-ms, "
                    + "and a --system of " + new TreeSet<>(SYSTEMS.keySet()));
            System.exit(2);
        }
        Events events = new Events(System.out, options.number("boot-offset-ns", 0));
        if (crowd) {
            new Crowd(options, events, opener).compete();
        }
        if (probe) {
            new Probe(options, events, opener).run();
            System.exit(0);
        }
        Driver driver = new Driver(options, events, opener);
        Signal.handle(new Signal("TERM"), signal -> driver.stop());
        driver.compete();
        // Libraries leave threads behind that would keep the process.
        System.exit(0);
    }

    /** An error that has its event already. */
    private static final class Told extends Exception {
        private static final long serialVersionUID = 1L;

        Told(Exception cause) {
            super(cause);
        }
    }

    /** One client after the other: as a supervisor restarts a service whose lock library threw. */
    private void compete() throws InterruptedException {
        long times = options.number("times", Long.MAX_VALUE);
        while (!stopped() && had < times) {
            try (Lock lock = opener.open(options)) {
                events.ready();
                while (!stopped() && had < times) {
                    turn(lock);
                }
            } catch (Exception e) {
                if (!stopped() && !(e instanceof Told)) {
                    events.error(e.toString());
                }
                stopping.await(PACE_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    private void turn(Lock lock) throws Exception {
        Tenure turn = new Tenure(options, events);
        if (!begin(lock, turn)) {
            return;
        }
        Long token;
        try {
            token = lock.acquire(turn);
        } finally {
            acquired();
        }
        had++;
        try {
            turn.run(lock, token);
        } finally {
            turn.end();
            try {
                lock.release();
            } catch (Exception e) {
                // After a loss there may be nothing to give back; without one it matters. A new client either way.
                events.error("release: " + e);
                throw new Told(e);
            }
            if (!turn.isLost()) {
                events.released();
            }
        }
    }

    private synchronized boolean begin(Lock lock, Tenure turn) {
        acquiring = lock;
        tenure = turn;
        return !stopped();
    }

    private synchronized void acquired() {
        acquiring = null;
        // An interrupt that came after the lock did is about the wait that is over.
        Thread.interrupted();
    }

    private boolean stopped() {
        return stopping.getCount() == 0;
    }

    private void stop() {
        Lock waiting;
        synchronized (this) {
            stopping.countDown();
            waiting = acquiring;
            if (tenure != null) {
                tenure.stop();
            }
            if (waiting != null) {
                main.interrupt();
            }
        }
        Thread limit = new Thread(this::halt);
        limit.setDaemon(true);
        limit.start();
        try {
            if (waiting != null) {
                waiting.wake();
            }
        } catch (Exception e) {
            events.error("wake: " + e);
        }
    }

    /** A release that waits for servers that are away does not keep the process for ever. */
    private void halt() {
        try {
            main.join(STOP_LIMIT_MS);
        } catch (InterruptedException e) {
            // Nobody interrupts this thread.
        }
        if (main.isAlive()) {
            events.error("not ended " + STOP_LIMIT_MS + " ms after SIGTERM: halting");
            Runtime.getRuntime().halt(0);
        }
    }
}
