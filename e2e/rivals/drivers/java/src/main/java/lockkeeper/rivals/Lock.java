package lockkeeper.rivals;

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

    /** Asks the library whether the lock is still held. Called in systems that end with {@code -checked} alone. */
    default boolean stillHeld() throws Exception {
        throw new UnsupportedOperationException("this library cannot be asked");
    }

    /** Ends an {@link #acquire} that does not heed the interrupt of its thread. */
    default void wake() throws Exception {}

    @Override
    void close() throws Exception;
}
