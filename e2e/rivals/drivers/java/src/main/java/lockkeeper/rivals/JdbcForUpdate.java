package lockkeeper.rivals;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;

/**
 * {@code jdbc-for-update}: a transaction that is held open has the row locked by SELECT ... FOR UPDATE; the others wait
 * in the server for it.
 *
 * <p>Pages: https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS and
 * https://mariadb.com/kb/en/for-update/. MariaDB ends a wait after innodb_lock_wait_timeout, 50 s; it is begun again.
 *
 * <p>Fencing token: none. Reentrant: yes, within the transaction, whose end releases. Tells of a loss: never, unless the
 * connection is used; with {@code -checked} the driver calls Connection.isValid three times in a lease. After a crash:
 * the server releases when it notices that the connection is gone; {@code --lease-ms} has no meaning here.
 */
final class JdbcForUpdate implements Lock {
    /** ER_LOCK_WAIT_TIMEOUT of MariaDB. */
    private static final int LOCK_WAIT_TIMEOUT = 1205;

    /** The SQLSTATE lock_not_available of PostgreSQL. */
    private static final String LOCK_NOT_AVAILABLE = "55P03";

    private final Options options;
    private final Database database;
    private volatile PreparedStatement waiting;

    JdbcForUpdate(Options options) throws SQLException {
        this.options = options;
        database = new Database(options, 0);
        database.create("lock_for_update (name VARCHAR(200) PRIMARY KEY)");
        // The row is found first: an insert of a row that is there waits on MariaDB for the lock on it.
        if (!exists()) {
            database.insert("INSERT INTO lock_for_update (name) VALUES (?)", options.lock());
        }
        database.connection().setAutoCommit(false);
    }

    private boolean exists() throws SQLException {
        String sql = "SELECT name FROM lock_for_update WHERE name = ?";
        try (PreparedStatement statement = database.connection().prepareStatement(sql)) {
            statement.setString(1, options.lock());
            return statement.executeQuery().next();
        }
    }

    /**
     * Pages: those above; https://www.postgresql.org/docs/current/runtime-config-client.html (lock_timeout),
     * https://mariadb.com/kb/en/wait-and-nowait/ and https://mariadb.com/kb/en/lock-in-share-mode/.
     */
    @Override
    public Map<String, String> calls() {
        return options.mariadb()
                ? Map.of("try", "NOWAIT", "timed", "WAIT …", "share", "LOCK IN SHARE MODE", "exceed", "FOR UPDATE")
                : Map.of("try", "NOWAIT", "timed", "lock_timeout", "share", "FOR SHARE", "exceed", "FOR UPDATE");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws SQLException {
        String how = switch (verb) {
            case "try" -> "FOR UPDATE NOWAIT";
            case "timed" -> "FOR UPDATE" + (options.mariadb() ? " WAIT " + Math.max(1, waitMs / 1000) : "");
            case "share" -> calls().get("share");
            default -> "FOR UPDATE";
        };
        try (Statement statement = database.connection().createStatement()) {
            if (verb.equals("timed") && !options.mariadb()) {
                statement.execute("SET LOCAL lock_timeout = " + waitMs);
            }
            statement.executeQuery("SELECT name FROM lock_for_update WHERE name = '" + options.lock() + "' " + how);
            return true;
        } catch (SQLException e) {
            if (e.getErrorCode() != LOCK_WAIT_TIMEOUT && !LOCK_NOT_AVAILABLE.equals(e.getSQLState())) {
                throw e;
            }
            database.connection().rollback();
            return false;
        }
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        Connection connection = database.connection();
        String sql = "SELECT name FROM lock_for_update WHERE name = ? FOR UPDATE";
        while (true) {
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                statement.setString(1, options.lock());
                waiting = statement;
                statement.executeQuery();
                return null;
            } catch (SQLException e) {
                if (!options.mariadb() || e.getErrorCode() != LOCK_WAIT_TIMEOUT) {
                    throw e;
                }
                connection.rollback();
            } finally {
                waiting = null;
            }
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
        database.connection().commit();
    }

    @Override
    public void close() {
        database.close();
    }
}
