package lockkeeper.rivals;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * What a lock can do when nothing breaks: the steps of a script, one after the other, and what came of each.
 *
 * <p>{@code --probe "a acquire,b try,..."} names a client and a verb in each step. Each client has a thread of its own,
 * as many of these locks belong to a thread. A step that has not ended after {@code --bound-ms} waits, and so do all
 * later ones of that client. The process ends as it is: nobody needs the lock any more.
 *
 * <p>The verbs but {@code acquire} and {@code release}: {@code again}, by the holder; {@code try}, without waiting;
 * {@code timed}, for {@code --wait-ms}; {@code share}, as a reader or with one of two permits; {@code exceed}, as a
 * writer or with one permit more than there are. {@link Lock#calls} has the library's call for each of them.
 */
final class Probe {
    private final Options options;
    private final Events events;
    private final Driver.Opener opener;
    private final Map<String, Client> clients = new HashMap<>();

    Probe(Options options, Events events, Driver.Opener opener) {
        this.options = options;
        this.events = events;
        this.opener = opener;
    }

    /** Does all steps. An exception means that a client could not be made. */
    void run() throws Exception {
        for (String step : options.text("probe").split(",")) {
            String[] words = step.trim().split(" ");
            Client client = clients.get(words[0]);
            if (client == null) {
                client = new Client(options.named(options.name() + "-" + words[0]));
                clients.put(words[0], client);
            }
            client.step(words[1]);
        }
    }

    /** One client of the lock, and its thread. */
    private final class Client {
        private final ExecutorService thread = Executors.newSingleThreadExecutor(work -> {
            Thread daemon = new Thread(work, "client");
            daemon.setDaemon(true);
            return daemon;
        });
        private final Options own;
        private final Lock lock;
        private boolean waits;

        /** Connecting is no part of a step. It has no bound: the harness has one. */
        Client(Options own) throws Exception {
            this.own = own;
            lock = thread.submit(() -> opener.open(own)).get();
        }

        void step(String verb) throws InterruptedException {
            String call = lock.calls().get(verb);
            boolean isOffered = call != null || verb.equals("acquire") || verb.equals("again")
                    || verb.equals("release");
            long began = System.nanoTime();
            String outcome = isOffered ? "waits" : "not-offered";
            String what = null;
            if (isOffered && !waits) {
                Future<Boolean> done = thread.submit(work(verb, call != null));
                try {
                    outcome = done.get(own.number("bound-ms", 0), TimeUnit.MILLISECONDS) ? "got" : "busy";
                } catch (TimeoutException e) {
                    waits = true;
                } catch (ExecutionException e) {
                    outcome = "refused";
                    what = e.getCause().toString();
                }
            }
            events.step(outcome, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began), call, what);
        }

        private Callable<Boolean> work(String verb, boolean hasCall) {
            return () -> {
                if (hasCall) {
                    return lock.probe(verb, own.number("wait-ms", 0));
                }
                if (verb.equals("release")) {
                    lock.release();
                } else {
                    lock.acquire(new Tenure(own, events));
                }
                return true;
            };
        }
    }
}
