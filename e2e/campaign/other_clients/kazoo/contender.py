"""Stands in the queue of a kazoo Lock some times, and writes the lines of lockkeeper-recorder while it
holds the lock, so that the overlap checker reads both alike.

Follows https://kazoo.readthedocs.io/en/latest/basic_usage.html and the "extra_lock_patterns" of
https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html: regular expressions for what stands before the
ten digits in the names of other clients.
"""

import argparse
import os
import time

from kazoo.client import KazooClient

BEAT = 0.005


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--times", required=True, type=int)
    parser.add_argument("--hold-ms", required=True, type=int)
    parser.add_argument("--session-timeout-ms", required=True, type=int)
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--pattern", action="append", default=[])
    options = parser.parse_args()

    client = KazooClient(hosts=options.connect, timeout=options.session_timeout_ms / 1000)
    client.start()
    # One write of the whole line on a file opened for appending.
    record = os.open(options.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    lock = client.Lock(options.path, options.name, extra_lock_patterns=options.pattern)
    for _ in range(options.times):
        with lock:
            token = client.exists(f"{options.path}/{lock.node}").czxid
            hold(record, token, options.hold_ms * 1_000_000, options.name)
    client.stop()


def hold(record, token, nanoseconds, name):
    def write(moment, *rest):
        line = " ".join(map(str, [moment, token, now(), os.getpid(), *rest]))
        os.write(record, f"{line}\n".encode())

    end = now() + nanoseconds
    write("begin", name)
    while now() < end:
        time.sleep(BEAT)
        write("beat")
    write("end")


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


main()
