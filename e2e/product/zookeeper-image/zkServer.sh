#!/bin/sh
# start-foreground is all that the image runs.
set -eu
if [ "${1:-}" != start-foreground ]; then
    echo "usage: zkServer.sh start-foreground" >&2
    exit 64
fi
exec java -Xmx256m -XX:+UseSerialGC -Dzookeeper.admin.enableServer=false \
    -cp '/apache-zookeeper/lib/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
