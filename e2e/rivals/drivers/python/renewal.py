"""A thread that renews a lock with an expiry, for libraries and recipes that leave that to their users.

The lock is lost when a renewal says so, and when a whole lease has gone by since the last renewal that worked was sent:
the drivers in Java do the same. A second thread watches that, since the first may wait for an answer then.
"""

import threading
import time

from contract import describe

# Of one lease: two renewals may come late before the lock expires.
RENEWALS = 3


class Renewal:
    """Calls renew() until the end; an exception of it is the library's word that the lock is lost."""

    def __init__(self, lease, since, renew, lost):
        """`since`: time.monotonic() before the request was sent that got the lock."""
        self._over = threading.Event()
        self._lease = lease
        self._renewed = since
        self._renew = renew
        self._lost = lost
        for work in (self._run, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def _run(self):
        while not self._over.wait(self._lease / RENEWALS):
            began = time.monotonic()
            try:
                self._renew()
            except Exception as error:
                self._say(describe(error))
                return
            self._renewed = began

    def _watch(self):
        """Looks again when the lease would end by what is known now."""
        while not self._over.wait(max(0, self._renewed + self._lease - time.monotonic())):
            since = time.monotonic() - self._renewed
            if since >= self._lease:
                self._say(f"not renewed for {since:.1f} s")
                return

    def _say(self, how):
        if not self._over.is_set():
            self._lost(how)

    def end(self):
        self._over.set()
