package lockkeeper.rivals;

import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.support.KeepAliveLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * {@code shedlock}: ShedLock on PostgreSQL, JdbcTemplateLockProvider with the database's time, and
 * KeepAliveLockProvider, which extends the lock each half of lockAtMostFor.
 *
 * <p>Page: https://github.com/lukas-krecan/ShedLock, "JdbcTemplate", "KeepAliveLockProvider" and "Locking without a
 * framework". A scheduled task that does not get the lock is skipped; a service that wants to run tries again, here
 * each 200 ms.
 *
 * <p>Fencing token: none. Reentrant: no. Tells of a loss: never; an extension that changes no row is logged, and one
 * that throws ends all further ones without a word, since the executor's schedule ends with it. After a crash:
 * lockAtMostFor lets the next one take over. KeepAliveLockProvider refuses one below 30 s, so that it is
 * {@code --lease-ms}, but at least 30 s.
 */
final class ShedLock implements Lock {
    private static final long LEAST_MS = 30_000;

    private final String name;
    private final Duration lockAtMostFor;
    private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor();
    private final LockProvider provider;
    private SimpleLock lock;

    ShedLock(Options options) throws SQLException {
        name = options.lock();
        lockAtMostFor = Duration.ofMillis(Math.max(LEAST_MS, options.leaseMs(LEAST_MS)));
        try (Database database = new Database(options, 0)) {
            database.create("shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, "
                    + "locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))");
        }
        DriverManagerDataSource source =
                new DriverManagerDataSource(Database.url(options), Database.properties(options));
        JdbcTemplateLockProvider.Configuration configuration = JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(source))
                .usingDbTime()
                // The default is the host's name, which drivers on one machine share and pods do not.
                .withLockedByValue(options.name())
                .build();
        provider = new KeepAliveLockProvider(new JdbcTemplateLockProvider(configuration), thread);
    }

    /**
     * The page has no call that waits, and none for several holders. Its DefaultLockingTaskExecutor runs a task of a lock
     * inside another task of that lock at once; LockProvider, which this driver uses, knows nothing of that.
     */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "LockProvider.lock");
    }

    @Override
    public boolean probe(String verb, long waitMs) {
        return attempt();
    }

    @Override
    public Long acquire(Tenure tenure) throws InterruptedException {
        while (!attempt()) {
            Thread.sleep(Driver.PACE_MS);
        }
        return null;
    }

    private boolean attempt() {
        Optional<SimpleLock> got =
                provider.lock(new LockConfiguration(Instant.now(), name, lockAtMostFor, Duration.ZERO));
        got.ifPresent(found -> lock = found);
        return got.isPresent();
    }

    @Override
    public void release() {
        lock.unlock();
    }

    @Override
    public void close() {
        thread.shutdownNow();
    }
}
