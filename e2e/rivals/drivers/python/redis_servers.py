"""A client of redis-py for --servers: HOST:PORT, or sentinel:MASTERNAME:HOST:PORT,HOST:PORT,...

Follows https://redis.readthedocs.io/en/stable/connections.html: defaults for one server (5 s to connect and
for an answer, ten more tries), and the time-outs of 0.1 s of its example for Sentinel.
"""

import redis
from redis.sentinel import Sentinel

from contract import addresses

SENTINEL = "sentinel:"
SENTINEL_TIMEOUT = 0.1


def client(servers):
    if servers.startswith(SENTINEL):
        name, sentinels = servers[len(SENTINEL) :].split(":", 1)
        sentinel = Sentinel(addresses(sentinels), socket_timeout=SENTINEL_TIMEOUT)
        return sentinel.master_for(name, socket_timeout=SENTINEL_TIMEOUT)
    [(host, port)] = addresses(servers)
    return redis.Redis(host=host, port=port)
