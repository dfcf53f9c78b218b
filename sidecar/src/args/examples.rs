//! Examples at the end of `--help`.

pub(super) const RUN: &str = "\
Examples:

A nightly job on several machines: the first machine runs it; the others see that the lock is taken, and exit with 0.
  lockkeeper run --connect zk1:2181,zk2:2181,zk3:2181 --lock /locks/report --wait-timeout 0s -E 0 -- nightly-report

A service that stands by everywhere and runs in one place.
  lockkeeper run --connect zk1:2181 --lock /locks/scheduler --restart always --on-exit hold -- scheduler";

pub(super) const STATUS: &str = "\
Examples:

The state as JSON.
  lockkeeper status --socket /run/report.sock -o json

A line for each change.
  lockkeeper status --socket /run/report.sock -o json --watch";

pub(super) const WAIT: &str = "\
Examples:

Wait at most half a minute for the lock.
  lockkeeper wait --socket /run/report.sock --timeout 30s

Wait until it is released.
  lockkeeper wait --socket /run/report.sock --for released";

pub(super) const LIST: &str = "\
Examples:

Every lock of an ensemble.
  lockkeeper list --connect zk1:2181

Those of one team, for a program.
  lockkeeper list --connect zk1:2181 --lock \"/locks/shop/*\" -o json";

pub(super) const INSPECT: &str = "\
Examples:

Who holds, and who waits.
  lockkeeper inspect --connect zk1:2181 --lock /locks/report

Each change of it.
  lockkeeper watch --connect zk1:2181 --lock /locks/report";

pub(super) const HISTORY: &str = "\
Examples:

Who has held the lock, and how each hold ended.
  lockkeeper history --connect zk1:2181 --lock /locks/report

The same of a lock of the operator, for a program.
  lockkeeper history --connect zk1:2181 --lock /lockkeeper/locks/shop/report --control /lockkeeper/control/shop/report -o json";

pub(super) const HANDOFF: &str = "\
Examples:

Hand the lock over, and wait at most a minute for the next holder.
  lockkeeper handoff --connect zk1:2181 --lock /locks/report --timeout 1m

One of several holders.
  lockkeeper handoff --connect zk1:2181 --lock /locks/import --holder db-1";

pub(super) const UI: &str = "\
Examples:

A page with every lock of an ensemble.
  lockkeeper ui --connect zk1:2181

Those of one team, always at the same port.
  lockkeeper ui --connect zk1:2181 --lock \"/locks/shop/*\" --port 8111";
