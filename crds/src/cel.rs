//! Rules that the API server checks (CEL), written with the numbers of the code.
//!
//! CEL has no variables. A list of one element and a macro over it stand in for them:
//! `[expression].all(name, …)` in a rule, `[expression].map(name, …)[0]` in a message.

use kube::core::{Message, Rule};
use lockkeeper_lock::{KILL_ALLOWANCE, SLACK};

use crate::duration::ApiDuration;
use crate::validation::DEFAULT_TICK_TIME;

/// A field's duration is within limits.
pub(crate) fn between(field: &str, least: ApiDuration, most: ApiDuration) -> Rule {
    Rule::new(format!(
        "duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    ))
    .message(Message::Expression(format!(
        "'{field} must be between {least} and {most}, not ' + self"
    )))
}

/// Only an exclusive lock counts its holders.
pub(crate) fn holders_of_mode() -> Rule {
    Rule::new("self.mode != 'ReadWrite' || self.maxHolders == 1").message(
        "mode ReadWrite and maxHolders above 1 exclude each other: a read/write lock has one writer or any number of \
         readers; leave maxHolders out or set mode to Exclusive",
    )
}

/// [`lockkeeper_lock::Timing::check`], in whole microseconds: every duration of the API is of whole
/// milliseconds, so that halves, fifths, eighths and hundredths of them are exact.
pub(crate) fn timing() -> Rule {
    let condition = format!(
        "r == 0 || {proven} + g + {margin} <= t - t / 5",
        proven = proven_age(),
        margin = margin()
    );
    let message = format!(
        "[{proven}].map(p, 'sessionTimeout ' + {t} + ' is too short: ' + {p} + ' for four renewals (one every ' + {r} \
         + ', tick time ' + {k} + ') + ' + {g} + ' stopGrace + ' + {m} + ' margin = ' + {sum} + ', which must be at \
         most four fifths of it (' + {most} + '); raise sessionTimeout or lower stopGrace')[0]",
        proven = proven_age(),
        t = seconds("t"),
        p = seconds("p"),
        r = seconds("r"),
        k = seconds("k"),
        g = seconds("g"),
        m = seconds(&margin()),
        sum = seconds(&format!("p + g + {}", margin())),
        most = seconds("t - t / 5"),
    );
    Rule::new(with_times("all", "", &condition))
        .message(Message::Expression(with_times("map", "[0]", &message)))
}

/// `body` with the session timeout as `t`, the stop grace as `g`, the tick as `k` and the renewal
/// interval as `r`, all in microseconds.
fn with_times(r#macro: &str, element: &str, body: &str) -> String {
    let micros = |field: &str| format!("duration(self.{field}).getMilliseconds() * 1000");
    format!(
        "[{t}].{macro}(t, [{g}].{macro}(g, \
         [has(self.zookeeper) && has(self.zookeeper.tickTime) ? {k} : {tick}].{macro}(k, \
         [has(self.renewInterval) ? {r} : t / 8].{macro}(r, {body}){element}){element}){element}){element}",
        t = micros("sessionTimeout"),
        g = micros("stopGrace"),
        k = micros("zookeeper.tickTime"),
        r = micros("renewInterval"),
        tick = DEFAULT_TICK_TIME.get().as_micros(),
    )
}

fn proven_age() -> String {
    let slack = SLACK.as_micros();
    format!("r * ((k / 2 + {slack} + r - 1) / r + ({slack} + r - 1) / r + 2)")
}

fn margin() -> String {
    format!("(t / 100 + {})", KILL_ALLOWANCE.as_micros())
}

/// Microseconds as a text in seconds.
fn seconds(micros: &str) -> String {
    format!("string(double({micros}) / 1000000.0) + 's'")
}

/// Pods keep the mode that they were made with, so two modes would stand in one queue.
pub(crate) fn mode_while_in_use() -> Rule {
    while_in_use(
        "self.spec.mode == oldSelf.spec.mode",
        "'spec.mode cannot change from ' + oldSelf.spec.mode + ' to ' + self.spec.mode",
    )
}

/// Pods that were made for more holders would go on beside those that were made for fewer.
pub(crate) fn max_holders_while_in_use() -> Rule {
    while_in_use(
        "self.spec.maxHolders >= oldSelf.spec.maxHolders",
        "'spec.maxHolders cannot shrink from ' + string(oldSelf.spec.maxHolders) + ' to ' + \
         string(self.spec.maxHolders)",
    )
}

/// Pods in two ensembles know nothing of each other. A connect string that keeps a server and the
/// path is taken for the same ensemble with servers added or replaced.
pub(crate) fn ensemble_while_in_use() -> Rule {
    let parts = |object: &str| format!("{object}.spec.zookeeper.connect.replace('://', '+').split('/', 2)");
    let path = |parts: &str| format!("(size({parts}) > 1 ? {parts}[1] : '')");
    while_in_use(
        &format!(
            "has(self.spec.zookeeper) == has(oldSelf.spec.zookeeper) && (!has(self.spec.zookeeper) || \
             self.spec.zookeeper.connect == oldSelf.spec.zookeeper.connect || \
             [{new}].all(new, [{old}].all(old, {new_path} == {old_path} && \
             new[0].split(',').exists(server, server in old[0].split(',')))))",
            new = parts("self"),
            old = parts("oldSelf"),
            new_path = path("new"),
            old_path = path("old"),
        ),
        "'spec.zookeeper cannot move to another ensemble (a change of spec.zookeeper.connect must keep a server and \
         the path)'",
    )
}

/// `unchanged`, or the last status knows of nobody who holds or awaits the lock.
///
/// The API server takes the status of the stored object, which may be a second old and does not know
/// pods that do not queue yet. That is why the message says to scale down first.
fn while_in_use(unchanged: &str, what: &str) -> Rule {
    let holders = "(has(oldSelf.status) && has(oldSelf.status.holders) ? size(oldSelf.status.holders) : 0)";
    let waiting = "(has(oldSelf.status) && has(oldSelf.status.waiting) ? oldSelf.status.waiting : 0)";
    Rule::new(format!("({unchanged}) || {holders} + {waiting} == 0")).message(Message::Expression(format!(
        "{what} + ' while the lock is in use (' + string({holders}) + ' hold it, ' + string({waiting}) + ' wait): pods \
         keep the settings they were made with; scale the workload to zero first'"
    )))
}
