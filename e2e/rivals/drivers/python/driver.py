"""Stands for one user of a lock: runs a command while it holds the lock, as the lock's documentation tells.

driver.py --system SYSTEM --servers HOST:PORT[,...] --lock NAME --name ID --lease-ms MS
          [--times N] [--hold-ms MS] -- COMMAND ARG...
driver.py ... --hold-ms MS --crowd N [--rejoin next|at-once]

contract.py has what all systems share, and crowd.py what many contenders in one process do; each other module has
one system, and names the page it follows.
"""

import sys

import contract
import crowd


def main():
    options = contract.parse(sorted(SYSTEMS))
    run = crowd.run if options.crowd else contract.run
    run(options, SYSTEMS[options.system])


# A system's library is imported when it is asked for, so that no other one can disturb the measurement.


def kazoo(options):
    import kazoo_lock

    return kazoo_lock.Kazoo(options, suspended_is_lost=True)


def kazoo_lost(options):
    import kazoo_lock

    return kazoo_lock.Kazoo(options, suspended_is_lost=False)


def redis_setnx(options):
    import redis_setnx

    return redis_setnx.Setnx(options)


def redis_lock(options):
    import redis_lock

    return redis_lock.RedisLock(options)


def memcached(options):
    import memcached

    return memcached.Memcached(options)


SYSTEMS = {
    "kazoo": kazoo,
    "kazoo-lost": kazoo_lost,
    "redis-setnx": redis_setnx,
    "redis-lock": redis_lock,
    "memcached": memcached,
}

if __name__ == "__main__":
    sys.exit(main())
