package lockkeeper.rivals;

import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;

/**
 * {@code pg-advisory}: PostgreSQL's advisory lock of a session, on a connection that is kept open.
 *
 * <p>Page: https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS; functions pg_advisory_lock and
 * pg_advisory_unlock, with a hash of the name for the key.
 *
 * <p>Fencing token: none. Reentrant: yes, it counts. Tells of a loss: never, unless the connection is used; with
 * {@code -checked} the driver calls Connection.isValid three times in a lease. After a crash: the server releases when
 * it notices that the connection is gone, which takes two hours by default if the machine has gone silently; with
 * {@code -keepalive} it takes a lease. Otherwise {@code --lease-ms} has no meaning here.
 */
final class PgAdvisory implements Lock {
    /** The SQLSTATE lock_not_available. */
    private static final String LOCK_NOT_AVAILABLE = "55P03";

    private final Options options;
    private final Database database;
    private volatile PreparedStatement waiting;

    PgAdvisory(Options options) throws SQLException {
        this.options = options;
        database = new Database(options, 0);
    }

    /** Pages: that above, and https://www.postgresql.org/docs/current/runtime-config-client.html (lock_timeout). */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "pg_try_advisory_lock", "timed", "lock_timeout", "share", "pg_advisory_lock_shared",
                "exceed", "pg_advisory_lock");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws SQLException {
        String function = verb.equals("timed") ? "pg_advisory_lock" : calls().get(verb);
        String sql = "SELECT " + function + "(hashtextextended(?, 0))";
        try (PreparedStatement statement = database.connection().prepareStatement(sql)) {
            if (verb.equals("timed")) {
                database.update("SET lock_timeout = " + waitMs);
            }
            statement.setString(1, options.lock());
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                // The other functions return nothing, and wait.
                return !verb.equals("try") || row.getBoolean(1);
            }
        } catch (SQLException e) {
            if (LOCK_NOT_AVAILABLE.equals(e.getSQLState())) {
                return false;
            }
            throw e;
        }
    }

    @Override
    public Long acquire(Tenure tenure) throws SQLException {
        String sql = "SELECT pg_advisory_lock(hashtextextended(?, 0))";
        try (PreparedStatement statement = database.connection().prepareStatement(sql)) {
            statement.setString(1, options.lock());
            waiting = statement;
            statement.executeQuery();
            return null;
        } finally {
            waiting = null;
        }
    }

    @Override
    public boolean stillHeld() throws SQLException {
        return database.connection().isValid((int) Math.max(1, options.leaseMs(15_000) / 3000));
    }

    @Override
    public void wake() throws SQLException {
        PreparedStatement statement = waiting;
        if (statement != null) {
            statement.cancel();
        }
    }

    @Override
    public void release() throws SQLException {
        String sql = "SELECT pg_advisory_unlock(hashtextextended(?, 0))";
        try (PreparedStatement statement = database.connection().prepareStatement(sql)) {
            statement.setString(1, options.lock());
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                if (!row.getBoolean(1)) {
                    throw new SQLException("pg_advisory_unlock: the lock was not held");
                }
            }
        }
    }

    @Override
    public void close() {
        database.close();
    }
}
