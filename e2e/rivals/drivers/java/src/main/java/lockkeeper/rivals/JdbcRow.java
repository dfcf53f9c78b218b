package lockkeeper.rivals;

import java.sql.SQLException;

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

    @Override
    public Long acquire(Tenure tenure) throws Exception {
        while (!database.insert("INSERT INTO lock_row (name, owner) VALUES (?, ?)", options.lock(), options.name())) {
            Thread.sleep(Driver.PACE_MS);
        }
        return null;
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
