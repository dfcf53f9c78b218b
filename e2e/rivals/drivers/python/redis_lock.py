"""redis-py's Lock, on one Redis server or a master that Sentinel names: class redis.lock.Lock.

Follows https://redis.readthedocs.io/en/stable/lock.html: SET NX PX to acquire, a script that compares the
value to release, and reacquire(), which sets the expiry back to its full time, in a thread; for that,
thread_local is False. An exception of reacquire() is a loss: LockNotOwnedError, but also an error of the
connection, after the tries that redis_servers.py names. Those tries may take longer than the lease, so a whole
lease without a reacquire() that worked is a loss as well (renewal.py).

Fencing token: none. Reentrant: no. Tells of a loss: by the exception of reacquire(), if one calls it. After a
crash: the key expires --lease-ms after the last renewal.
"""

import time

import redis_servers
from contract import Interrupted
from redis.exceptions import LockError
from renewal import Renewal

# acquire() cannot be interrupted, so it is called again after this time. In seconds.
TURN = 1


class RedisLock:
    # From the page of the lock, which has no lock for several. A second Lock object would be another contender.
    CALLS = {
        "again": "Lock.acquire()",
        "try": "Lock.acquire(blocking=False)",
        "timed": "Lock.acquire(blocking_timeout=…)",
    }

    def __init__(self, options):
        self._options = options
        self._redis = redis_servers.client(options.servers)
        self._redis.ping()
        self._lock = None
        self._renewal = None

    def _new(self):
        return self._redis.lock(self._options.lock, timeout=self._options.lease, thread_local=False)

    def acquire(self, lost, stop):
        self._lock = self._new()
        # The request that gets the lock is sent some time after this.
        began = time.monotonic()
        while not self._lock.acquire(blocking_timeout=TURN):
            if stop.is_set():
                raise Interrupted
            began = time.monotonic()
        self._renewal = Renewal(self._options.lease, began, self._lock.reacquire, lost)
        return None

    def probe(self, verb, wait):
        if verb == "again":
            return self._lock.acquire()
        self._lock = self._new()
        if verb == "try":
            return self._lock.acquire(blocking=False)
        return self._lock.acquire(blocking_timeout=wait)

    def release(self):
        self._renewal.end()
        try:
            self._lock.release()
        except LockError:
            # Expired, or another's by now.
            pass

    def interrupt(self):
        pass

    def close(self):
        if self._renewal is not None:
            self._renewal.end()
        self._redis.close()
