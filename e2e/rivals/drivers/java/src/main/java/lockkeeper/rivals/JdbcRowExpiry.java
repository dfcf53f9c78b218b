package lockkeeper.rivals;

import java.sql.SQLException;
import java.util.Map;
import java.util.UUID;

/**
 * {@code jdbc-row-expiry}: a row with an owner and an expiry. A row that has expired may be taken over; the holder
 * moves its expiry ahead three times in a lease, by the server's clock.
 *
 * <p>No page: the common home-made lease, and what Spring Integration's JdbcLockRegistry does
 * (https://docs.spring.io/spring-integration/reference/jdbc/lock-registry.html).
 *
 * <p>Fencing token: none. Reentrant: no. Tells of a loss: a renewal that changes no row, or a whole lease without a
 * renewal. After a crash: the expiry ({@code --lease-ms}) lets the next one take over.
 */
final class JdbcRowExpiry implements Lock {
    private final Options options;
    private final long leaseMs;
    private final Database database;
    private final String owner;
    private Renewal renewal;

    JdbcRowExpiry(Options options) throws SQLException {
        this.options = options;
        leaseMs = options.leaseMs(15_000);
        owner = options.name() + "/" + UUID.randomUUID();
        database = new Database(options, leaseMs / 3);
        database.create("lock_row_expiry (name VARCHAR(200) PRIMARY KEY, owner VARCHAR(200) NOT NULL, expires_at "
                + database.time() + " NOT NULL)");
    }

    /** One turn; a lock made at home has no other call. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "INSERT, UPDATE");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws SQLException {
        return insert() || takeOver();
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        long began = System.nanoTime();
        while (!insert() && !takeOver()) {
            Thread.sleep(Driver.PACE_MS);
            began = System.nanoTime();
        }
        renewal = new Renewal(leaseMs, began, tenure, this::renew);
        return null;
    }

    private boolean insert() throws SQLException {
        return database.insert("INSERT INTO lock_row_expiry (name, owner, expires_at) VALUES (?, ?, "
                + database.in(leaseMs) + ")", options.lock(), owner);
    }

    private boolean takeOver() throws SQLException {
        return database.update("UPDATE lock_row_expiry SET owner = ?, expires_at = " + database.in(leaseMs)
                + " WHERE name = ? AND expires_at < " + database.now(), owner, options.lock()) == 1;
    }

    private boolean renew() throws SQLException {
        try {
            return database.update("UPDATE lock_row_expiry SET expires_at = " + database.in(leaseMs)
                    + " WHERE name = ? AND owner = ?", options.lock(), owner) == 1;
        } catch (SQLException e) {
            database.drop();
            throw e;
        }
    }

    @Override
    public void release() throws SQLException {
        renewal.close();
        database.update("DELETE FROM lock_row_expiry WHERE name = ? AND owner = ?", options.lock(), owner);
    }

    @Override
    public void close() {
        database.close();
    }
}
