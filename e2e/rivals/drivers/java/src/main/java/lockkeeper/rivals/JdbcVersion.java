package lockkeeper.rivals;

import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;

/**
 * {@code jdbc-version}: a row with an expiry and a version. Who wants it reads the row and, if it has expired, updates
 * it under the condition that the version is still the one that was read; each renewal does the same.
 *
 * <p>No page for the lock; the column is that of optimistic locking, as JPA's {@code @Version}
 * (https://jakarta.ee/specifications/persistence/3.1/jakarta-persistence-spec-3.1#a2059).
 *
 * <p>Fencing token: the version when the lock was got; it grows with each change of the row. Reentrant: no. Tells of a
 * loss: a renewal that changes no row, or a whole lease without a renewal. After a crash: the expiry
 * ({@code --lease-ms}) lets the next one take over.
 */
final class JdbcVersion implements Lock {
    private final Options options;
    private final long leaseMs;
    private final Database database;
    private long version;
    private Renewal renewal;

    JdbcVersion(Options options) throws SQLException {
        this.options = options;
        leaseMs = options.leaseMs(15_000);
        database = new Database(options, leaseMs / 3);
        database.create("lock_version (name VARCHAR(200) PRIMARY KEY, owner VARCHAR(200), version BIGINT NOT NULL, "
                + "expires_at " + database.time() + " NOT NULL)");
        database.insert("INSERT INTO lock_version (name, version, expires_at) VALUES (?, 0, " + database.now() + ")",
                options.lock());
    }

    /** One turn; a lock made at home has no other call. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "SELECT, UPDATE");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws SQLException {
        return readExpired() && change(options.name(), leaseMs);
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        long began = System.nanoTime();
        while (!readExpired() || !change(options.name(), leaseMs)) {
            Thread.sleep(Driver.PACE_MS);
            began = System.nanoTime();
        }
        long token = version;
        renewal = new Renewal(leaseMs, began, tenure, this::renew);
        return token;
    }

    private boolean readExpired() throws SQLException {
        String sql = "SELECT version, expires_at <= " + database.now() + " FROM lock_version WHERE name = ?";
        try (PreparedStatement statement = database.connection().prepareStatement(sql)) {
            statement.setString(1, options.lock());
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                version = row.getLong(1);
                return row.getBoolean(2);
            }
        }
    }

    private boolean change(String owner, long expiresInMs) throws SQLException {
        boolean changed = database.update("UPDATE lock_version SET owner = ?, version = version + 1, expires_at = "
                + database.in(expiresInMs) + " WHERE name = ? AND version = ?", owner, options.lock(), version) == 1;
        if (changed) {
            version++;
        }
        return changed;
    }

    private boolean renew() throws SQLException {
        try {
            return change(options.name(), leaseMs);
        } catch (SQLException e) {
            database.drop();
            throw e;
        }
    }

    @Override
    public void release() throws SQLException {
        renewal.close();
        change(null, 0);
    }

    @Override
    public void close() {
        database.close();
    }
}
