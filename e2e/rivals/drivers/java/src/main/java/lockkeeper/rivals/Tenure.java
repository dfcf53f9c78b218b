package lockkeeper.rivals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** One time of holding the lock: the child that runs meanwhile, and who may end it. */
final class Tenure {
    private static final long STOP_GRACE_MS = 2_000;

    private final Options options;
    private final Events events;
    private Process child;
    private boolean held;
    private boolean over;
    private boolean stopped;
    private String lost;
    /** Since when the library owes an answer (System.nanoTime()); null if nobody has asked. */
    private Long asked;

    Tenure(Options options, Events events) {
        this.options = options;
        this.events = events;
    }

    /** The library says that the lock is lost: the child dies now, and the word about it comes after. */
    synchronized void lose(String how) {
        if (over || lost != null) {
            return;
        }
        lost = how;
        if (child != null) {
            child.destroyForcibly();
        }
        if (held) {
            events.lost(how);
        }
        notifyAll();
    }

    /** The driver is asked to end. */
    synchronized void stop() {
        stopped = true;
        notifyAll();
    }

    /** No more losses: the lock is being given back, or was never got. */
    synchronized void end() {
        over = true;
        notifyAll();
    }

    synchronized boolean isLost() {
        return lost != null;
    }

    /** Runs the child until it ends, or time is up, or the lock is lost, or the driver is stopped. */
    void run(Lock lock, Long token) throws Exception {
        start(token);
        long holdMs = options.number("hold-ms", 0);
        long checkMs = options.checked() ? options.leaseMs(15_000) / 3 : 0;
        if (checkMs > 0) {
            Thread watch = new Thread(() -> watch(checkMs), "watch");
            watch.setDaemon(true);
            watch.start();
        }
        long began = System.nanoTime();
        long nextCheckMs = checkMs;
        while (true) {
            synchronized (this) {
                long heldMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
                if (child == null || !child.isAlive() || lost != null || stopped || holdMs > 0 && heldMs >= holdMs) {
                    break;
                }
                long holdLeft = holdMs > 0 ? holdMs - heldMs : Long.MAX_VALUE;
                long checkLeft = checkMs > 0 ? nextCheckMs - heldMs : Long.MAX_VALUE;
                if (checkLeft > 0) {
                    long left = Math.min(holdLeft, checkLeft);
                    wait(left == Long.MAX_VALUE ? 0 : left);
                    continue;
                }
            }
            check(lock);
            nextCheckMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began) + checkMs;
        }
        finish();
    }

    /** Libraries answer the thread that has the lock only, so this one asks; another one watches how long it waits. */
    private void check(Lock lock) {
        owes(System.nanoTime());
        try {
            if (!lock.stillHeld()) {
                lose("asked, and the answer was: not held");
            }
        } catch (Exception e) {
            lose("asked, and it threw " + e);
        }
        owes(null);
    }

    private synchronized void owes(Long since) {
        asked = since;
        notifyAll();
    }

    /** Takes an answer that does not come in this time for a loss. */
    private synchronized void watch(long patienceMs) {
        try {
            while (!over && lost == null) {
                if (asked == null) {
                    wait();
                    continue;
                }
                long left = patienceMs - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - asked);
                if (left > 0) {
                    wait(left);
                } else {
                    lose("asked, and nobody answered within " + patienceMs + " ms");
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void start(Long token) throws IOException {
        held = true;
        events.held(token);
        if (lost != null) {
            events.lost(lost);
        }
        if (lost != null || stopped) {
            return;
        }
        String value = Long.toString(token != null ? token : System.currentTimeMillis());
        write(options.text("token-file", ""), value);
        // The shell replaces itself by the command: one process, whose output goes where the driver's errors go.
        List<String> command = new ArrayList<>(List.of("/bin/sh", "-c", "exec \"$@\" >&2", "sh"));
        command.addAll(options.command);
        ProcessBuilder builder = new ProcessBuilder(command)
                .redirectInput(new File("/dev/null"))
                .redirectOutput(ProcessBuilder.Redirect.INHERIT)
                .redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("LOCKKEEPER_FENCING_TOKEN", value);
        child = builder.start();
        child.onExit().thenRun(this::wakeUp);
    }

    private synchronized void wakeUp() {
        notifyAll();
    }

    /** Ends the child in the way that befits how the tenure ended, and waits for it. */
    private void finish() throws InterruptedException {
        if (child == null) {
            return;
        }
        if (!isLost()) {
            child.destroy();
            boolean gone;
            synchronized (this) {
                while (!stopped && lost == null && child.isAlive()) {
                    wait();
                }
            }
            gone = child.waitFor(STOP_GRACE_MS, TimeUnit.MILLISECONDS);
            if (!gone) {
                child.destroyForcibly();
            }
        }
        child.waitFor();
    }

    private static void write(String file, String value) throws IOException {
        if (!file.isEmpty()) {
            Path half = Path.of(file + ".new");
            Files.writeString(half, value);
            Files.move(half, Path.of(file), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        }
    }
}
