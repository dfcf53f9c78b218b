package lockkeeper.rivals;

import java.sql.SQLException;
import java.util.Map;

/**
 * {@code jdbc-row}: a row with the lock's name as its primary key is the lock. Who can insert it holds; the others try
 * again each 200 ms.
 *
 * <p>No page: the oldest of the home-made locks. It waits for nothing and renews nothing.
 *
 * <p>Fencing token: none. Reentrant: no. Tells of a loss: never. After a crash: nobody releases, an operator deletes
 * the row.
 */
final class JdbcRow implements Lock {
    private final Options options;
    private final Database database;

    JdbcRow(Options options) throws SQLException {
        this.options = options;
        database = new Database(options, 0);
        database.create("lock_row (name VARCHAR(200) PRIMARY KEY, owner VARCHAR(200) NOT NULL)");
    }

    /** One turn; a lock made at home has no other call. */
    @Override
    public Map<String, String> calls() {
        return Map.of("try", "INSERT");
    }

    @Override
    public boolean probe(String verb, long waitMs) throws SQLException {
        return insert();
    }

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        while (!insert()) {
            Thread.sleep(Driver.PACE_MS);
        }
        return null;
    }

    private boolean insert() throws SQLException {
        return database.insert("INSERT INTO lock_row (name, owner) VALUES (?, ?)", options.lock(), options.name());
    }

    @Override
    public void release() throws SQLException {
        database.update("DELETE FROM lock_row WHERE name = ? AND owner = ?", options.lock(), options.name());
    }

    @Override
    public void close() {
        database.close();
    }
}
