//! What the page says of the method, and of each fault.

use crate::faults::Fault;

pub(super) const HOW: &str = "## How it is measured\n\n\
    Two contenders compete for the lock, each on a machine of its own (a network namespace). The one that has the lock runs a \
    program that writes down the time every 5 ms. A small *driver* uses the lock's library as its documentation tells; the header of \
    each driver names the page. The driver stops the program when, and only when, the library says that the lock is lost.\n\n\
    * *Two at once*: rounds in which both programs ran at the same time, and for how long at worst. After a fault, a \
    round watches an overlap for 30 s more; *at least* says that it had not ended then.\n\
    * *Nobody*: how long nobody ran after the fault. A program runs from its first line to its last one, however late a line in \
    between comes on a busy machine, but for the time in which its machine was stopped.\n\
    * *Nobody ever again*: nobody within 18 s more than [faults last](#the-locks).\n\
    * *Median*: of an even number of rounds it is the lower of the two in the middle.\n\
    * *Late writes*: what a former holder wrote after the next one had begun, and how many of these writes a resource refuses that \
    takes the highest [fencing token](fencing.md) only. The libraries of client-go and Consul have no token: the driver asks the server \
    for a number that grows (*a number of the server's*), which takes a request more.\n\
    * *Told*: when the library told its holder of the loss, after the fault. Lockkeeper stops the program itself, and is not asked \
    when. Some libraries leave it to their user to renew, and to notice that nobody answers: redis-py, redsync, \
    memcached's, and those of rows with an expiry or a version. There the driver renews three times in a lease, and takes a lease without \
    an answer for a loss: *by the driver*. Rows named *asked three times in a lease* are a second way to use a library that tells its \
    holder nothing: there the driver asks, and takes it for a loss if no answer comes within a third of the lease. *With keepalive* the \
    server asks a silent client's machine, too, and gives up after a lease; by default PostgreSQL begins to ask after two hours, which a \
    round does not wait for.\n\
    * *Session policy*: Curator's `SessionConnectionStateErrorPolicy`, by which a lost connection (`SUSPENDED`) is no loss yet, but the \
    end of the session (`LOST`) is. By default the client expects that end when the session's time has gone by since `SUSPENDED`; with \
    *33 %* (`simulatedSessionExpirationPercent`), when a third of it has.\n\n\
    Each round has its seed, and names the revision and the day of its run. A round that could not be played to its end is not in the \
    tables, but [in a list](#rounds-without-a-result), and another one with another seed is played. Lockkeeper is held to the same judges: one \
    of our own, and Porcupine.\n\n\
    A round shows that a lock can fail. No number of rounds shows that it cannot: for Lockkeeper, [safety.md](safety.md) has the \
    reasons.\n\n\
    All contenders run as root. Lockkeeper's guard runs without the [real-time priority](safety.md) that it takes where it is \
    allowed. Servers have their default settings, except for these:\n\n\
    | server | setting | here | default |\n|---|---|---|---|\n\
    | ZooKeeper | `tickTime` | 1 s | 3 s; 2 s in `zoo_sample.cfg` |\n\
    | ZooKeeper | `initLimit`, `syncLimit` | 10, 5 | none; these are those of `zoo_sample.cfg` |\n\
    | Redis | `maxmemory`, `maxmemory-policy` | 32 MB, `allkeys-lru` | no limit, nothing is thrown away |\n\
    | Redis | `appendonly` | yes | no |\n\
    | Sentinel | `down-after-milliseconds`, `failover-timeout` | 3 s, 10 s | 30 s, 180 s |\n\
    | memcached | memory | 16 MiB | 64 MiB |\n\
    | Hazelcast | session, its heartbeat | 4 s, 1 s | 300 s, 5 s |\n\
    | Consul | `retry_interval` | 1 s | 30 s |\n\n\
    More connections are allowed than by default, so that 500 clients fit: in PostgreSQL, MariaDB and ZooKeeper. PostgreSQL counts \
    statements (`pg_stat_statements`).\n\n\
    `make rivals ARGS=\"--only kazoo --faults holder-paused --rounds 5 --results /tmp/cell.json\"` plays one cell again and prints \
    each round. [The names of the locks](#the-locks) are below, those of the faults are the titles.\n\n";

pub(super) fn about(fault: Fault) -> &'static str {
    match fault {
        Fault::None => {
            "Nothing is done, for longer than a lease. If a lock lets two run here, its results under faults say nothing of the \
             faults."
        }
        Fault::HolderKilled => {
            "Driver and program get SIGKILL. The kernel closes their connections, of which the servers hear."
        }
        Fault::HolderCrashed => {
            "The holder's machine crashes: driver and program are gone, and nobody hears that their connections have ended."
        }
        Fault::HolderPaused => {
            "The holder's machine stops (SIGSTOP), [as long as its row says](#the-locks), and goes on: as with `docker pause`, a suspended \
             machine whose clock counts the time, or a garbage collector right before a write. A hypervisor that hides the pause \
             from its guest hides the time as well, and then no deadline on that machine is worth anything. No lock that expires can promise anything for the moment in which the machine wakes: the \
             program may run until it is told, or stopped. Only a [fencing token](fencing.md) covers that moment."
        }
        Fault::LibraryPaused => {
            "Only the process with the library stops, [as long as its row says](#the-locks); the program runs on. With a library this \
             is also the process that would stop the program; Lockkeeper has two, of which one stops here, and if both stopped, its \
             program would run on as well. It concerns locks whose holder is another \
             process than the work, such as a sidecar or a command. Where both are one process, *holder-paused* tells what \
             happens. With Lockkeeper it is the keeper that stops. Its guard is another process with a timer of its own, and \
             goes on."
        }
        Fault::HolderCutOff => {
            "The holder is cut off from all servers, and from the other contender, [as long as its row says](#the-locks)."
        }
        Fault::ServerCutOff => {
            "The server that the holder talks to is cut off from the other servers, [as long as its row says](#the-locks). It is none that \
             leads, and not the one that the other contender talks to. A server of ZooKeeper gives its leader up after \
             `syncLimit` ticks, which are 5 s here, and only then drops its clients. So a client whose session is shorter than that, as \
             the 4 s here, hears of it after its session is over."
        }
        Fault::LeaderKilled => "The server that all writes depend on is killed, and started again 1 s later.",
        Fault::LeaderPaused => {
            "The server that all writes depend on stops, [as long as its row says](#the-locks), and goes on."
        }
        Fault::Failover => {
            "The primary grants the lock while its replica cannot reach it, and dies right after. Redisson asks whether the \
             replica has the lock too, and gets none as long as the primary counts on the replica; after a minute the primary \
             does not any more. (`min-replicas-to-write` of Redis, which is not set by default, would refuse the write.)"
        }
        Fault::AllRestarted => "All servers are killed, and started again 1 s later.",
        Fault::ClockAhead => "The wall clock of the holder jumps an hour ahead.",
        Fault::WaiterAhead => "The wall clock of the waiting contender jumps an hour ahead.",
        Fault::MemoryFull => {
            "Other data fills the memory of the servers. memcached throws old data away by default. Redis does it here because its \
             policy is set to `allkeys-lru`, as where it serves as a cache as well; with its default, `noeviction`, it refuses \
             what is new, and no lock is lost."
        }
    }
}
