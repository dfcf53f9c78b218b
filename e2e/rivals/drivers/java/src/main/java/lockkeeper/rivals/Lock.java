package lockkeeper.rivals;

import java.util.Map;

/**
 * One client of one lock service, with one lock. All methods but {@link #wake} are called by one thread, because many
 * of these locks belong to a thread. Any exception means: close this, make a new one.
 */
interface Lock extends AutoCloseable {
    /**
     * Waits until the lock is held, however long. What the library says about a loss later goes to
     * {@link Tenure#lose}.
     *
     * @return the fencing token, or null where the library has none
     */
    Long acquire(Tenure tenure) throws Exception;

    /** Gives the lock back; also called after a loss, as a {@code finally} block would do it. */
    void release() throws Exception;

    /**
     * The calls of the library for the verbs of {@link Probe} that it has any for. Without one for {@code again},
     * {@link #acquire} is called again.
     */
    default Map<String, String> calls() {
        return Map.of();
    }

    /** Makes one of these calls, and tells whether the lock is held now. */
    default boolean probe(String verb, long waitMs) throws Exception {
        throw new UnsupportedOperationException(verb);
    }

    /** Asks the library whether the lock is still held. Called in systems that end with {@code -checked} alone. */
    default boolean stillHeld() throws Exception {
        throw new UnsupportedOperationException("this library cannot be asked");
    }

    /** Ends an {@link #acquire} that does not heed the interrupt of its thread. */
    default void wake() throws Exception {}

    @Override
    void close() throws Exception;
}
