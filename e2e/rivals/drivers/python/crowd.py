"""Many users of one lock in one process, without a command: what a lock costs, and who gets it when.

--crowd N makes N contenders, each with a client of its own, that hold for --hold-ms again and again. A contender
that has released stands back until another one holds, so that every handoff is one to somebody who waited; with
--rejoin at-once it queues again at once, and the lock decides who is next.

Events name the contender ("who"). `releasing` comes before the release is sent, `held` after the library has said
so. SIGTERM ends the process as it is.
"""

import argparse
import threading
import time

from contract import PAUSE, close, describe, emit

# The others may all have lost their clients. In seconds.
STAND_BACK = 5


def run(options, connect):
    holds = Holds()
    for who in range(options.crowd):
        own = argparse.Namespace(**{**vars(options), "name": f"{options.name}-{who}"})
        threading.Thread(target=contend, args=(own, who, connect, holds), daemon=True).start()
    threading.Event().wait()


class Holds:
    """How often the lock was held, by all together."""

    def __init__(self):
        self._changed = threading.Condition()
        self._count = 0

    def add(self):
        with self._changed:
            self._count += 1
            self._changed.notify_all()
            return self._count

    def wait_beyond(self, count):
        with self._changed:
            self._changed.wait_for(lambda: self._count > count, STAND_BACK)


def contend(options, who, connect, holds):
    never = threading.Event()
    system = None
    while True:
        try:
            if system is None:
                system = connect(options)
                emit("ready", who=who)
            system.acquire(lambda how: emit("lost", who=who, how=how), never)
            emit("held", who=who)
            count = holds.add()
            time.sleep(options.hold_ms / 1000)
            emit("releasing", who=who)
            system.release()
            if options.rejoin == "next":
                holds.wait_beyond(count)
        except Exception as error:
            emit("error", who=who, what=describe(error))
            close(system)
            system = None
            time.sleep(PAUSE)
