"""The lock of SETNX and GETSET, on one Redis server, with the time of its expiry in the value.

Follows "Design pattern: Locking with SETNX" and "Handling deadlocks" of https://redis.io/commands/setnx/,
which discourages it today and keeps it because programs in use link to it.

The recipe has no renewal: its holder is to be done before the lock expires, and looks at the time again only
before DEL. So nothing ever tells a holder of a loss, and a command that runs for longer than
--lease-ms and a second runs on beside the next one. The recipe compares clocks of different machines.

Fencing token: none. Reentrant: no. Tells of a loss: never. After a crash: contenders find that the
time in the value has passed; the key itself never expires.
"""

import time

import redis_servers
from contract import Interrupted

# The recipe says to "sleep for some time". In seconds.
PAUSE = 0.2


class Setnx:
    # One turn of the recipe. It has no other call: https://redis.io/commands/setnx/.
    CALLS = {"try": "SETNX, GET, GETSET"}

    def __init__(self, options):
        self._options = options
        self._redis = redis_servers.client(options.servers)
        self._redis.ping()
        self._expiry = None

    def acquire(self, lost, stop):
        while not self._try():
            if stop.wait(PAUSE):
                raise Interrupted
        return None

    def probe(self, verb, wait):
        return self._try()

    def _try(self):
        key = self._options.lock
        expiry = self._new_expiry()
        if self._redis.setnx(key, expiry):
            self._expiry = expiry
            return True
        found = self._redis.get(key)
        # Deleted in between: from the start again.
        if found is None or not self._expired(found):
            return False
        expiry = self._new_expiry()
        before = self._redis.getset(key, expiry)
        # Another contender was faster. Our value is in the key now: the recipe accepts that small error.
        if before is not None and not self._expired(before):
            return False
        self._expiry = expiry
        return True

    def _new_expiry(self):
        # "current Unix time + lock timeout + 1"
        return repr(time.time() + self._options.lease + 1)

    @staticmethod
    def _expired(value):
        return float(value) <= time.time()

    def release(self):
        # "should always check the timeout didn't expire before unlocking the key with DEL"
        if not self._expired(self._expiry):
            self._redis.delete(self._options.lock)

    def interrupt(self):
        pass

    def close(self):
        self._redis.close()
