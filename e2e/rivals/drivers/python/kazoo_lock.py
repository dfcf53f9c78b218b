"""kazoo's Lock, on ZooKeeper: class kazoo.recipe.lock.Lock.

Follows https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html, which recommends a listener for
LOST and SUSPENDED, and https://kazoo.readthedocs.io/en/latest/basic_usage.html#understanding-kazoo-states:
at SUSPENDED a holder should pause until it is connected again, at LOST the lock has to be acquired anew.
A command that runs cannot be paused for certain, so
  kazoo       takes SUSPENDED and LOST for a loss;
  kazoo-lost  takes LOST alone for a loss, which is the word that the page of the lock calls certain.
  kazoo-in-one-queue  is kazoo, and sees the nodes of Curator and of Lockkeeper too: by extra_lock_patterns, which
                      that page has for it.

Fencing token: none. Reentrant: no. Tells of a loss: by the listener; LOST comes from a server, so a client
that reaches none hears it only after it has connected again. After a crash: the server ends the session,
--lease-ms after its last word, and deletes the ephemeral node.
"""

import logging

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import CancelledError, LockTimeout

from contract import Interrupted

# The page on basic usage: without this, Python complains that there is no handler.
logging.basicConfig(level=logging.WARNING)

# What other clients have before the number of a node. They see kazoo's only if they look for them, as Lockkeeper does.
OF_OTHERS = ["-lock-"]


class Kazoo:
    # From the page of the lock. A second Lock object would be another contender.
    CALLS = {
        "again": "Lock.acquire()",
        "try": "Lock.acquire(blocking=False)",
        "timed": "Lock.acquire(timeout=…)",
        "share": "ReadLock",
        "exceed": "WriteLock",
    }

    def __init__(self, options, suspended_is_lost, patterns=()):
        self._options = options
        self._patterns = patterns
        self._losses = [KazooState.LOST] + [KazooState.SUSPENDED] * suspended_is_lost
        self._lost = None
        self._lock = None
        self._client = KazooClient(hosts=options.servers, timeout=options.lease)
        self._client.add_listener(self._listen)
        self._client.start()

    def _listen(self, state):
        lost = self._lost
        if lost is not None and state in self._losses:
            lost(state)

    def acquire(self, lost, stop):
        self._lock = self._client.Lock(self._path(), self._options.name, self._patterns)
        try:
            self._lock.acquire()
        except CancelledError:
            raise Interrupted from None
        self._lost = lost
        # It may have changed before the listener knew of this lock.
        self._listen(self._client.state)
        return None

    def _path(self):
        return "/" + self._options.lock.strip("/")

    def probe(self, verb, wait):
        kinds = {"share": self._client.ReadLock, "exceed": self._client.WriteLock}
        if verb != "again":
            self._lock = kinds.get(verb, self._client.Lock)(self._path(), self._options.name)
        if verb == "try":
            return self._lock.acquire(blocking=False)
        try:
            return self._lock.acquire(timeout=wait if verb == "timed" else None)
        except LockTimeout:
            return False

    def release(self):
        self._lost = None
        self._lock.release()

    def interrupt(self):
        if self._lock is not None:
            self._lock.cancel()

    def close(self):
        self._lost = None
        self._client.stop()
        self._client.close()
