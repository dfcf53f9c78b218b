"""A thread that renews a lock with an expiry, for libraries and recipes that leave that to their users."""

import threading

from contract import describe

# Of one lease: two renewals may come late before the lock expires.
RENEWALS = 3


class Renewal:
    """Calls renew() until the end; an exception of it is the library's word that the lock is lost."""

    def __init__(self, lease, renew, lost):
        self._over = threading.Event()
        self._period = lease / RENEWALS
        self._renew = renew
        self._lost = lost
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while not self._over.wait(self._period):
            try:
                self._renew()
            except Exception as error:
                if not self._over.is_set():
                    self._lost(describe(error))
                return

    def end(self):
        self._over.set()
