package lockkeeper.rivals;

import java.util.concurrent.TimeUnit;

/**
 * Many users of one lock in one process, without a command: what a lock costs, and who gets it when.
 *
 * <p>{@code --crowd N} makes N contenders, each with a client of its own, that hold for {@code --hold-ms} again and
 * again. A contender that has released stands back until another one holds, so that every handoff is one to somebody
 * who waited; with {@code --rejoin at-once} it queues again at once, and the lock decides who is next.
 *
 * <p>Events name the contender ("who"). {@code releasing} comes before the release is sent, {@code held} after the
 * library has said so. SIGTERM ends the process as it is.
 */
final class Crowd {
    /** The others may all have lost their clients. */
    private static final long STAND_BACK_MS = 5_000;

    private final Options options;
    private final Events events;
    private final Driver.Opener opener;
    private final long holdMs;
    private final boolean standsBack;
    /** How often the lock was held, by all together. */
    private long holds;

    Crowd(Options options, Events events, Driver.Opener opener) {
        this.options = options;
        this.events = events;
        this.opener = opener;
        holdMs = options.number("hold-ms", 0);
        standsBack = options.text("rejoin", "next").equals("next");
    }

    /** Competes for ever. */
    void compete() throws InterruptedException {
        long count = options.number("crowd", 0);
        for (int who = 0; who < count; who++) {
            Options own = options.named(options.name() + "-" + who);
            int number = who;
            new Thread(() -> contend(own, number), own.name()).start();
        }
        Thread.currentThread().join();
    }

    /** One client after the other, as {@link Driver} does. */
    private void contend(Options own, int who) {
        while (true) {
            try (Lock lock = opener.open(own)) {
                events.ready(who);
                while (true) {
                    turn(lock, own, who);
                }
            } catch (Exception e) {
                events.error(who, e.toString());
                pause();
            }
        }
    }

    private void turn(Lock lock, Options own, int who) throws Exception {
        Tenure tenure = new Tenure(own, events);
        lock.acquire(tenure);
        events.held(who);
        long mine = held();
        TimeUnit.MILLISECONDS.sleep(holdMs);
        tenure.end();
        events.releasing(who);
        lock.release();
        if (standsBack) {
            standBack(mine);
        }
    }

    private synchronized long held() {
        notifyAll();
        return ++holds;
    }

    private synchronized void standBack(long mine) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STAND_BACK_MS);
        while (holds == mine) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            if (leftMs <= 0) {
                return;
            }
            wait(leftMs);
        }
    }

    private static void pause() {
        try {
            TimeUnit.MILLISECONDS.sleep(Driver.PACE_MS);
        } catch (InterruptedException e) {
            // Nobody interrupts these threads.
        }
    }
}
