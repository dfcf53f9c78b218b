"""The lock of `add` with an expiry, on one memcached server, by pymemcache.

Follows https://github.com/memcached/memcached/wiki/ProgrammingTricks#ghetto-central-locking (`add` succeeds
for one client, who deletes the item to unlock) with a retry every 50 ms, and
https://pymemcache.readthedocs.io/en/latest/getting_started.html#best-practices (set both time-outs and
no_delay). The renewal is `gets`, a look whether the value is ours, and `cas` with a new expiry, in a thread:
`touch` alone would also renew another's lock. The release is a `cas` with an expiry in the past, so that it
does not delete another's lock.

memcached counts whole seconds and may evict any item, or forget all at a restart.

Fencing token: none. Reentrant: no. Tells of a loss: by the answers to gets and cas, if one asks, and by a whole
lease without an answer (renewal.py). After a
crash: the item expires --lease-ms, rounded up to seconds, after the last renewal.
"""

import math
import time
import uuid

from pymemcache.client.base import PooledClient

from contract import Interrupted, addresses
from renewal import RENEWALS, Renewal

# In seconds.
PAUSE = 0.05


class Lost(Exception):
    """An answer of the server."""


class Memcached:
    # One turn of the recipe, which has no other call: see the wiki's page.
    CALLS = {"try": "add"}

    def __init__(self, options):
        self._options = options
        self._expire = math.ceil(options.lease)
        [server] = addresses(options.servers)
        # Not longer than the time between two renewals.
        timeout = options.lease / RENEWALS
        # A pool: two threads use it.
        self._client = PooledClient(
            server, connect_timeout=timeout, timeout=timeout, no_delay=True, default_noreply=False
        )
        self._client.version()
        self._value = None
        self._renewal = None

    def acquire(self, lost, stop):
        self._value = f"{self._options.name} {uuid.uuid4()}".encode()
        began = time.monotonic()
        while not self._client.add(self._options.lock, self._value, expire=self._expire):
            if stop.wait(PAUSE):
                raise Interrupted
            began = time.monotonic()
        self._renewal = Renewal(self._options.lease, began, lambda: self._set_expiry(self._expire), lost)
        return None

    def probe(self, verb, wait):
        self._value = f"{self._options.name} {uuid.uuid4()}".encode()
        return self._client.add(self._options.lock, self._value, expire=self._expire)

    def _set_expiry(self, expire):
        value, cas = self._client.gets(self._options.lock)
        if value != self._value:
            raise Lost("gets: the item is gone" if value is None else "gets: another's item")
        if not self._client.cas(self._options.lock, self._value, cas, expire=expire):
            raise Lost("cas: the item has changed")

    def release(self):
        self._renewal.end()
        try:
            self._set_expiry(-1)
        except Lost:
            # Expired, or another's by now.
            pass

    def interrupt(self):
        pass

    def close(self):
        if self._renewal is not None:
            self._renewal.end()
        self._client.close()
