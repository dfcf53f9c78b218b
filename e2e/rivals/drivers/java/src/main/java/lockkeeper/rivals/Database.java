package lockkeeper.rivals;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

/** One connection to PostgreSQL or MariaDB, and where their SQL differs. */
final class Database implements AutoCloseable {
    private final Options options;
    private final long socketTimeoutMs;
    private Connection connection;

    /**
     * {@code socketTimeoutMs}: how long a statement waits for its answer; 0, the default of both drivers, is for ever.
     * A lock with an expiry needs a bound, see https://jdbc.postgresql.org/documentation/use/ (socketTimeout).
     */
    Database(Options options, long socketTimeoutMs) throws SQLException {
        this.options = options;
        this.socketTimeoutMs = socketTimeoutMs;
        connection();
    }

    static String url(Options options) {
        String database = options.text("database", "lockkeeper");
        String url = options.mariadb()
                ? "jdbc:mariadb://" + options.servers() + "/" + database
                : "jdbc:postgresql://" + options.servers() + "/" + database;
        boolean several = options.servers().contains(",");
        if (several) {
            url = options.mariadb()
                    ? "jdbc:mariadb:sequential://" + options.servers() + "/" + database
                    : url + "?targetServerType=primary";
        }
        return options.text("url", url);
    }

    static Properties properties(Options options) {
        Properties properties = new Properties();
        properties.setProperty("user", options.text("user", "lockkeeper"));
        properties.setProperty("password", options.text("password", "lockkeeper"));
        if (options.keepalive()) {
            // After half a lease of silence, and then twice more: https://www.postgresql.org/docs/current/
            // runtime-config-connection.html, "TCP Settings". They are in whole seconds, and 0 is the system's default.
            long lease = options.leaseMs(15_000) / 1000;
            properties.setProperty("options", "-c tcp_keepalives_idle=" + Math.max(1, lease / 2)
                    + " -c tcp_keepalives_interval=" + Math.max(1, lease / 4) + " -c tcp_keepalives_count=2");
        }
        return properties;
    }

    /**
     * The connection; a new one after {@link #drop} alone. One that broke by itself stays broken, since a lock may have
     * been tied to it.
     */
    Connection connection() throws SQLException {
        if (connection == null) {
            Properties properties = properties(options);
            if (socketTimeoutMs > 0) {
                // PostgreSQL's driver counts in seconds, and takes less than one for none.
                long seconds = Math.max(1, socketTimeoutMs / 1000);
                String timeout = Long.toString(options.mariadb() ? socketTimeoutMs : seconds);
                properties.setProperty("socketTimeout", timeout);
                properties.setProperty("connectTimeout", timeout);
            }
            connection = DriverManager.getConnection(url(options), properties);
        }
        return connection;
    }

    /** Creates a table if there is none; of two who do it at once PostgreSQL refuses one, which does no harm. */
    void create(String table) throws SQLException {
        try (Statement statement = connection().createStatement()) {
            statement.execute("CREATE TABLE IF NOT EXISTS " + table);
        } catch (SQLException e) {
            if (!isDuplicate(e)) {
                throw e;
            }
        }
    }

    /** Runs one statement with its parameters, and returns how many rows it changed. */
    int update(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection().prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                statement.setObject(i + 1, parameters[i]);
            }
            return statement.executeUpdate();
        }
    }

    /** Inserts a row: false if there is one with this key. */
    boolean insert(String sql, Object... parameters) throws SQLException {
        try {
            return update(sql, parameters) == 1;
        } catch (SQLException e) {
            if (isDuplicate(e)) {
                return false;
            }
            throw e;
        }
    }

    /** SQLSTATE class 23: a constraint was violated; here it can only be the primary key. */
    private static boolean isDuplicate(SQLException e) {
        return e.getSQLState() != null && e.getSQLState().startsWith("23");
    }

    /** The server's clock, which all contenders share. */
    String now() {
        return options.mariadb() ? "now(6)" : "now()";
    }

    /** The server's clock, some milliseconds ahead. */
    String in(long ms) {
        return options.mariadb()
                ? "now(6) + INTERVAL " + ms * 1000 + " MICROSECOND"
                : "now() + " + ms + " * INTERVAL '1 millisecond'";
    }

    /** The type of a column with a time. */
    String time() {
        return options.mariadb() ? "DATETIME(6)" : "TIMESTAMPTZ";
    }

    /** Drops the connection after an error: the next statement makes a new one. */
    void drop() {
        try {
            if (connection != null) {
                connection.abort(Runnable::run);
            }
        } catch (SQLException e) {
            // It is gone all the same.
        }
        connection = null;
    }

    @Override
    public void close() {
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (SQLException e) {
            // Nothing is left to save.
        }
    }
}
