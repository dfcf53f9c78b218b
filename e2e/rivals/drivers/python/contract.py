"""What all drivers of this folder share: options, events, the child, and the ends of both.

A system is an object with
  acquire(lost, stop)  waits for the lock; returns its fencing token, or None if it has none. From then on
                       the library's word that the lock is lost goes to lost(how), from any thread. Once the
                       event `stop` is set it raises Interrupted as soon as it can.
  release()            gives the lock back, also after a loss: most libraries want that.
  interrupt()          wakes a waiting acquire(), if `stop` alone does not.
  close()              closes the client.
  CALLS, probe()       see probe.py.
Any exception of acquire() or release() is an `error`; the next try is with a new client.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

# After an error of a library that has no pace of its own: between two clients, in seconds.
PAUSE = 0.2
# From SIGTERM to SIGKILL of the child, in seconds.
GRACE = 2
# After the child's end, for the release, when the driver is to end: servers may be away. In seconds.
RELEASE = 5


class Interrupted(Exception):
    """The driver is to end, and held nothing."""


def parse(systems):
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", required=True, choices=systems)
    parser.add_argument("--servers", required=True, help="HOST:PORT,... or what the system says")
    parser.add_argument("--lock", required=True)
    parser.add_argument("--name", required=True, help="of this contender")
    parser.add_argument("--lease-ms", required=True, type=int)
    parser.add_argument("--times", type=int, help="end after this many; default: never")
    parser.add_argument("--hold-ms", type=int, help="default: until the command ends")
    parser.add_argument("--token-file", help="unused: no system of this folder has credentials")
    parser.add_argument("--boot-offset-ns", type=int, help="unused: Python reads CLOCK_BOOTTIME")
    parser.add_argument("--crowd", type=int, help="contenders in this process, without a command: see crowd.py")
    parser.add_argument("--rejoin", choices=["next", "at-once"], default="next", help="see crowd.py")
    parser.add_argument("--probe", help="steps, without a command: see probe.py")
    parser.add_argument("--bound-ms", type=int, help="of a step of --probe")
    parser.add_argument("--wait-ms", type=int, help="of a step of --probe that gives up by itself")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if sum(map(bool, (options.crowd, options.command, options.probe))) != 1:
        parser.error("needs -- COMMAND, or --crowd, or --probe")
    if options.probe and not (options.bound_ms and options.wait_ms):
        parser.error("--probe needs --bound-ms and --wait-ms")
    if options.crowd and not options.hold_ms:
        parser.error("--crowd needs --hold-ms")
    options.lease = options.lease_ms / 1000
    return options


def addresses(servers):
    """HOST:PORT,... as pairs."""
    pairs = [server.rsplit(":", 1) for server in servers.split(",")]
    return [(host, int(port)) for host, port in pairs]


_stdout = threading.Lock()


def emit(event, **rest):
    line = json.dumps({"event": event, "at": time.clock_gettime_ns(time.CLOCK_BOOTTIME), **rest})
    with _stdout:
        print(line, flush=True)


def describe(error):
    return f"{type(error).__module__}.{type(error).__name__}: {error}"


def run(options, connect):
    stop = Stop()
    system = None
    times = 0
    while times != options.times and not stop.event.is_set():
        try:
            if system is None:
                system = connect(options)
                stop.interrupt = system.interrupt
                emit("ready")
            hold = Hold()
            token = system.acquire(hold.lost, stop.event)
            times += 1
            stop.holding(hold)
            hold.run(options, token)
            stop.holding(None)
            system.release()
            if hold.how is None:
                emit("released")
        except Interrupted:
            break
        except Exception as error:
            if not stop.event.is_set():
                emit("error", what=describe(error))
            close(system)
            system = None
            stop.event.wait(PAUSE)
    close(system)
    sys.stdout.flush()
    # Threads of the libraries may still wait for servers that are away.
    os._exit(0)


def close(system):
    try:
        if system is not None:
            system.close()
    except Exception as error:
        emit("error", what="close: " + describe(error))


class Stop:
    """SIGTERM. A thread acts on it, because the main thread may be deep inside a library."""

    def __init__(self):
        self.event = threading.Event()
        self.interrupt = lambda: None
        self._mutex = threading.Lock()
        self._hold = None
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        # Python writes to the pipe only for signals that have a handler.
        signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()

    def holding(self, hold):
        with self._mutex:
            self._hold = hold
            if hold is not None and self.event.is_set():
                hold.over.set()

    def _watch(self, pipe):
        os.read(pipe, 1)
        with self._mutex:
            self.event.set()
            hold = self._hold
            if hold is not None:
                hold.over.set()
        if hold is None:
            # The library may not be able to stop at once, so this does not wait for it.
            threading.Thread(target=self.interrupt, daemon=True).start()
        time.sleep(GRACE + RELEASE)
        # The main thread ends the process, unless a library does not return.
        os._exit(0)


class Hold:
    """One time of holding the lock."""

    def __init__(self):
        self.over = threading.Event()
        self.how = None
        self._mutex = threading.Lock()
        self._child = None
        self._ended = False

    def lost(self, how):
        """The library says so. It may do that before there is a child, and again after its end."""
        with self._mutex:
            if self.how is not None or self._ended:
                return
            self.how = how
            if self._child is not None:
                self._child.kill()
        emit("lost", how=how)
        self.over.set()

    def run(self, options, token):
        """Until the child has ended: by itself, for its loss, its time or SIGTERM."""
        emit("held", token=token)
        if token is None:
            token = time.time_ns() // 1_000_000
        environment = {**os.environ, "LOCKKEEPER_FENCING_TOKEN": str(token)}
        with self._mutex:
            if self.how is not None:
                return
            # Of the driver's own process group: whoever kills or stops the group means both.
            child = subprocess.Popen(
                options.command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
            self._child = child
        threading.Thread(target=self._watch, daemon=True).start()
        self.over.wait(options.hold_ms / 1000 if options.hold_ms else None)
        if self.how is None:
            child.terminate()
            try:
                child.wait(GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait()
        with self._mutex:
            self._ended = True

    def _watch(self):
        self._child.wait()
        self.over.set()
