//! Rules that the API server checks (CEL), written with the numbers of the code.
//!
//! CEL has no variables. A list of one element and a macro over it stand in for them:
//! `[expression].all(name, …)` in a rule, `[expression].map(name, …)[0]` in a message.

use kube::core::{Message, Reason, Rule};
use lockkeeper_lock::{KILL_ALLOWANCE, SLACK};

use crate::duration::{ApiDuration, PATTERN};
use crate::validation::DEFAULT_TICK_TIME;

/// A server of an ensemble, a little wider than [`lockkeeper_lock::zookeeper::ConnectString`] reads it.
const SERVER: &str = r"(tcp(\+tls)?://)?([A-Za-z0-9._-]+|\[[0-9A-Za-z:.%]+\])(:[0-9]{1,5})?";

/// A field is a duration within limits. One rule for both, and no `pattern` in the schema, so that there
/// is one sentence for whatever is wrong.
pub(crate) fn between(field: &str, least: ApiDuration, most: ApiDuration) -> Rule {
    Rule::new(format!(
        "self.matches('{PATTERN}') && duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    ))
    .message(Message::Expression(format!(
        "'{field} must be a whole number and one unit of ms, s, m and h, between {least} and {most}, such as 5s or \
         500ms; not ' + self"
    )))
}

/// A list of servers and a path.
pub(crate) fn connect() -> Rule {
    Rule::new(format!("self.matches(r'^{SERVER}(,{SERVER})*(/[^, ]*)?$')")).message(
        "connect must be HOST:PORT,HOST:PORT/PATH; each server may have tcp:// or tcp+tls:// before it, /PATH may be \
         left out",
    )
}

/// Authorities to trust, if and only if somebody has to prove who it is.
pub(crate) fn tls() -> Rule {
    Rule::new("has(self.tlsSecret) == self.connect.contains('tcp+tls://')").message(
        "tlsSecret and servers that speak TLS belong together: write tcp+tls://HOST:PORT in connect and name the \
         Secret with ca.crt in tlsSecret, or neither",
    )
}

/// Pods name their lock in a label, and are counted by it.
pub(crate) fn name() -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')").message(
        "the name of a lock must be of 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both \
         ends: pods name their lock in a label",
    )
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
    let condition = format!("r == 0 || {} <= t - t / 5", sum());
    // What is no duration has had its own sentence.
    let unreadable = format!(
        "!self.sessionTimeout.matches('{PATTERN}') || !self.stopGrace.matches('{PATTERN}') || \
         has(self.renewInterval) && !self.renewInterval.matches('{PATTERN}') || \
         has(self.zookeeper) && has(self.zookeeper.tickTime) && !self.zookeeper.tickTime.matches('{PATTERN}')"
    );
    // `format` and not `+`: the API server takes a text made of a number for endless, and a sum of endless texts
    // for too expensive.
    let message = format!(
        "'sessionTimeout %ss is too short: %ss for four renewals (one every %ss, tick time %ss) + %ss stopGrace + %ss \
         margin = %ss, which must be at most four fifths of it (%ss); raise sessionTimeout or lower stopGrace'\
         .format([{}])",
        ["t", &proven_age(), "r", "k", "g", &margin(), &sum(), "t - t / 5"]
            .map(seconds)
            .join(", "),
    );
    let rule = format!("{unreadable} || {}", with_times("all", "", &condition));
    Rule::new(rule).message(Message::Expression(with_times("map", "[0]", &message)))
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

fn sum() -> String {
    format!("{} + g + {}", proven_age(), margin())
}

fn seconds(micros: &str) -> String {
    format!("double({micros}) / 1000000.0")
}

/// Pods keep the mode that they were made with, so two modes would stand in one queue.
pub(crate) fn mode_while_in_use() -> Rule {
    while_in_use(
        "mode",
        "self.spec.mode == oldSelf.spec.mode",
        "spec.mode cannot change from %s to %s",
        &["oldSelf.spec.mode", "self.spec.mode"],
    )
}

/// Pods that were made for more holders would go on beside those that were made for fewer.
pub(crate) fn max_holders_while_in_use() -> Rule {
    while_in_use(
        "maxHolders",
        "self.spec.maxHolders >= oldSelf.spec.maxHolders",
        "spec.maxHolders cannot shrink from %d to %d",
        &["oldSelf.spec.maxHolders", "self.spec.maxHolders"],
    )
}

/// Pods in two ensembles know nothing of each other. A connect string that keeps a server and the
/// path is taken for the same ensemble with servers added or replaced.
pub(crate) fn ensemble_while_in_use() -> Rule {
    // Without the slashes of `tcp+tls://`, and with one at the end: the first one ends the servers.
    let connect = |object: &str| format!("({object}.spec.zookeeper.connect.replace('://', '+') + '/')");
    // At most sixteen, or the API server expects a comparison of every character with every other.
    let servers = |object: &str| {
        format!(
            "{c}.substring(0, {c}.indexOf('/')).split(',', 16)",
            c = connect(object)
        )
    };
    let path = |object: &str| format!("{c}.substring({c}.indexOf('/'))", c = connect(object));
    while_in_use(
        "zookeeper",
        &format!(
            "has(self.spec.zookeeper) == has(oldSelf.spec.zookeeper) && (!has(self.spec.zookeeper) || \
             ({new_path} == {old_path} && {new}.exists(server, server in {old})))",
            new_path = path("self"),
            old_path = path("oldSelf"),
            new = servers("self"),
            old = servers("oldSelf"),
        ),
        "spec.zookeeper cannot move to another ensemble (a change of spec.zookeeper.connect must keep a server and the \
         path)",
        &[],
    )
}

/// `unchanged`, or the last status knows of nobody who holds or awaits the lock. `what` is a format of
/// `arguments`; `field` is the one to change back.
///
/// The API server takes the status of the stored object, which may be a second old and does not know
/// pods that do not queue yet. That is why the message says to scale down first.
fn while_in_use(field: &str, unchanged: &str, what: &str, arguments: &[&str]) -> Rule {
    let holders = "(has(oldSelf.status) && has(oldSelf.status.holders) ? size(oldSelf.status.holders) : 0)";
    let waiting = "(has(oldSelf.status) && has(oldSelf.status.waiting) ? oldSelf.status.waiting : 0)";
    let arguments = [arguments, &[holders, waiting]].concat().join(", ");
    let message = format!(
        "'{what} while the lock is in use (%d hold it, %d wait): pods keep the settings that they were made with; \
         scale the workload to zero first'.format([{arguments}])"
    );
    Rule::new(format!("({unchanged}) || {holders} + {waiting} == 0"))
        .message(Message::Expression(message))
        .field_path(format!(".spec.{field}"))
        .reason(Reason::FieldValueForbidden)
}
