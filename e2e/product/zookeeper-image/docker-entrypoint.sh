#!/bin/sh
# Writes the configuration from the variables of the official image, unless there is one.
set -eu
if [ ! -f /conf/zoo.cfg ]; then
    {
        echo "dataDir=/data"
        echo "dataLogDir=${ZOO_DATA_LOG_DIR:-/datalog}"
        echo "tickTime=${ZOO_TICK_TIME:-2000}"
        echo "initLimit=${ZOO_INIT_LIMIT:-5}"
        echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
        echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
        echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
        echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
        for server in ${ZOO_SERVERS:-"server.1=localhost:2888:3888;2181"}; do
            echo "$server"
        done
        if [ -n "${ZOO_4LW_COMMANDS_WHITELIST:-}" ]; then
            echo "4lw.commands.whitelist=$ZOO_4LW_COMMANDS_WHITELIST"
        fi
        for line in ${ZOO_CFG_EXTRA:-}; do
            echo "$line"
        done
    } >/conf/zoo.cfg
fi
if [ ! -f /data/myid ]; then
    echo "${ZOO_MY_ID:-1}" >/data/myid
fi
exec "$@"
