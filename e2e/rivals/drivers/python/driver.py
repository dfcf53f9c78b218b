"""Stands for one user of a lock: runs a command while it holds the lock, as the lock's documentation tells.

driver.py --system SYSTEM --servers HOST:PORT[,...] --lock NAME --name ID --lease-ms MS
          [--times N] [--hold-ms MS] -- COMMAND ARG...
driver.py ... --hold-ms MS --crowd N [--rejoin next|at-once]
driver.py ... --probe STEP,... --bound-ms MS --wait-ms MS

contract.py has what all systems share, crowd.py what many contenders in one process do, and probe.py what a lock is
asked when nothing breaks; each other module has one system, and names the page it follows.
"""

import sys

import contract
import crowd
import probe


def main():
    options = contract.parse(sorted(SYSTEMS))
    run = contract.run
    if options.crowd:
        run = crowd.run
    if options.probe:
        run = probe.run
    run(options, SYSTEMS[options.system])


# A system's library is imported when it is asked for, so that no other one can disturb the measurement.


def kazoo(options):
    import kazoo_lock

    return kazoo_lock.Kazoo(options, suspended_is_lost=True)


def kazoo_lost(options):
    import kazoo_lock

    return kazoo_lock.Kazoo(options, suspended_is_lost=False)


def kazoo_in_one_queue(options):
    import kazoo_lock

    return kazoo_lock.Kazoo(options, suspended_is_lost=True, patterns=kazoo_lock.OF_OTHERS)


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
    "kazoo-in-one-queue": kazoo_in_one_queue,
    "redis-setnx": redis_setnx,
    "redis-lock": redis_lock,
    "memcached": memcached,
}

if __name__ == "__main__":
    sys.exit(main())
