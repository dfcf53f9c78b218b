"""What a lock can do when nothing breaks: the steps of a script, one after the other, and what came of each.

--probe "a acquire,b try,..." names a client and a verb in each step. Each client has a thread of its own, as some
locks belong to a thread. A step that has not ended after --bound-ms `waits`, and so do all later ones of that client.
The process ends as it is: nobody needs the lock any more.

acquire and release are those of contract.py. A system says in CALLS which call of the library it makes for each other
verb that the library has one for, and makes it in probe(verb, wait), which tells whether it has the lock now:
  again   by the holder; without an entry acquire() is called again, and None says that the library has no such call
  try     without waiting
  timed   for `wait` seconds, which is --wait-ms
  share   as a reader, or with one of two permits
  exceed  as a writer, or with one permit more than there are
"""

import argparse
import os
import queue
import sys
import threading
import time

from contract import describe, emit


def run(options, connect):
    clients = {}
    for step in options.probe.split(","):
        name, verb = step.split()
        if name not in clients:
            own = argparse.Namespace(**{**vars(options), "name": f"{options.name}-{name}"})
            clients[name] = Client(own, connect)
        emit("step", **clients[name].do(verb))
    sys.stdout.flush()
    os._exit(0)


class Client:
    def __init__(self, options, connect):
        self._options = options
        self._steps = queue.Queue()
        self._outcomes = queue.Queue()
        self._waits = False
        threading.Thread(target=self._work, args=(connect,), daemon=True).start()
        # Connecting is no part of a step. It has no bound: the harness has one.
        self._system = self._outcomes.get()
        if isinstance(self._system, Exception):
            emit("error", what=describe(self._system))
            os._exit(1)

    def do(self, verb):
        call = self._system.CALLS.get(verb, "" if verb in ("acquire", "again", "release") else None)
        began = time.monotonic()
        outcome, what = "not-offered" if call is None else "waits", None
        if call is not None and not self._waits:
            self._steps.put((verb, bool(call)))
            try:
                outcome, what = self._outcomes.get(timeout=self._options.bound_ms / 1000)
            except queue.Empty:
                self._waits = True
        ms = int((time.monotonic() - began) * 1000)
        return {"outcome": outcome, "ms": ms, "call": call or None, "what": what}

    def _work(self, connect):
        try:
            system = connect(self._options)
        except Exception as error:
            self._outcomes.put(error)
            return
        self._outcomes.put(system)
        while True:
            verb, has_call = self._steps.get()
            try:
                got = True
                if has_call:
                    got = system.probe(verb, self._options.wait_ms / 1000)
                elif verb == "release":
                    system.release()
                else:
                    system.acquire(lambda how: None, threading.Event())
                self._outcomes.put(("got" if got else "busy", None))
            except Exception as error:
                self._outcomes.put(("refused", describe(error)))
