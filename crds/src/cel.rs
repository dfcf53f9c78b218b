//! Rules that the API server checks (CEL), written with the numbers of the code.
//!
//! CEL has no variables. A list of one element and a macro over it replace them: `[expression].all(name, …)` in a rule,
//! `[expression].map(name, …)[0]` in a message.

use kube::core::{Message, Reason, Rule};

use crate::duration::{ApiDuration, PATTERN};
use crate::times::{DEFAULT_TICK_TIME, KILL_ALLOWANCE, SLACK};

/// A server of an ensemble. The pattern accepts a little more than `lockkeeper_lock::zookeeper::ConnectString`.
const SERVER: &str = r"(tcp(\+tls)?://)?([A-Za-z0-9._-]+|\[[0-9A-Za-z:.%]+\])(:[0-9]{1,5})?";

/// A field is a duration within limits. One rule checks both, and the schema has no `pattern`, so the API server
/// reports any wrong value in one sentence.
pub(crate) fn between(field: &str, least: ApiDuration, most: ApiDuration) -> Rule {
    Rule::new(is_between(least, most)).message(Message::Expression(format!(
        "'{field} must be a whole number and one unit of ms, s, m and h, between {least} and {most}, such as 5s or \
         500ms; not ' + self"
    )))
}

/// A field is `auto`, `off`, or a duration within limits; as [`between`].
pub(crate) fn lease_between(least: ApiDuration, most: ApiDuration) -> Rule {
    Rule::new(format!(
        "self == 'auto' || self == 'off' || {}",
        is_between(least, most)
    ))
    .message(Message::Expression(format!(
        "'leaseDuration must be auto, off, or a whole number and one unit of ms, s, m and h, between {least} and \
         {most}, such as 8s or 8500ms; not ' + self"
    )))
}

fn is_between(least: ApiDuration, most: ApiDuration) -> String {
    format!(
        "self.matches('{PATTERN}') && duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    )
}

/// A list of servers, and a path if there is one.
pub(crate) fn connect() -> Rule {
    Rule::new(format!("self.matches(r'^{SERVER}(,{SERVER})*(/[^, ]*)?$')")).message(
        "connect must be HOST:PORT,HOST:PORT/PATH; each server may have tcp:// or tcp+tls:// before it, /PATH may be \
         left out",
    )
}

/// Authorities are required if a server uses TLS, and only then.
pub(crate) fn tls() -> Rule {
    Rule::new("has(self.tlsSecret) == self.connect.contains('tcp+tls://')").message(
        "tlsSecret and servers that speak TLS belong together: write tcp+tls://HOST:PORT in connect and name the \
         Secret with ca.crt in tlsSecret, or neither",
    )
}

/// Pods name their lock in a label.
pub(crate) fn name() -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')").message(
        "the name of a lock must be of 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both \
         ends: pods name their lock in a label",
    )
}

/// Only an exclusive lock has a number of holders.
pub(crate) fn holders_of_mode() -> Rule {
    Rule::new("self.mode != 'ReadWrite' || self.maxHolders == 1").message(
        "mode ReadWrite and maxHolders above 1 exclude each other: a read/write lock has one writer or any number of \
         readers; leave maxHolders out or set mode to Exclusive",
    )
}

/// `lockkeeper_lock::Timing::check`, in whole microseconds: every duration of the API has whole milliseconds, so its
/// halves, fifths, eighths and hundredths are exact.
pub(crate) fn timing() -> Rule {
    let condition = format!("r == 0 || {} <= t - t / 5", sum());
    // `format` and not `+`: the API server assumes no bound on the length of a number as text, and would refuse a sum
    // of such texts as too expensive.
    let message = format!(
        "'sessionTimeout %ss is too short: %ss for four renewals (one every %ss, tick time %ss) + %ss stopGrace + %ss \
         margin = %ss, which must be at most four fifths of it (%ss); raise sessionTimeout or lower stopGrace'\
         .format([{}])",
        [
            "t",
            &proven_age(),
            "r",
            "k",
            "g",
            &margin("t"),
            &sum(),
            "t - t / 5"
        ]
        .map(seconds)
        .join(", "),
    );
    of_times(&condition, &message)
}

/// The same of the lease duration. `auto` fits whatever fits without it (`lockkeeper_lock::Timing::lease`).
pub(crate) fn lease() -> Rule {
    let sum = format!("r + g + {}", margin("l"));
    let condition = format!("r == 0 || l == {NO_LEASE} || {sum} <= l - l / 5");
    let message = format!(
        "'leaseDuration %ss is too short: %ss until the next renewal + %ss stopGrace + %ss margin = %ss, which must \
         be at most four fifths of it (%ss); raise leaseDuration or lower stopGrace'.format([{}])",
        ["l", "r", "g", &margin("l"), &sum, "l - l / 5"]
            .map(seconds)
            .join(", "),
    );
    of_times(&condition, &message)
}

/// A rule about several times. If a text is not a duration, only the rule of its field reports it.
fn of_times(condition: &str, message: &str) -> Rule {
    let unreadable = format!(
        "!self.sessionTimeout.matches('{PATTERN}') || !self.stopGrace.matches('{PATTERN}') || \
         has(self.renewInterval) && !self.renewInterval.matches('{PATTERN}') || \
         has(self.zookeeper) && has(self.zookeeper.tickTime) && !self.zookeeper.tickTime.matches('{PATTERN}')"
    );
    let rule = format!("{unreadable} || {}", with_times("all", "", condition));
    Rule::new(rule).message(Message::Expression(with_times("map", "[0]", message)))
}

/// In the place of a lease duration that is no number: an eighth of it is longer than any renewal interval.
const NO_LEASE: u64 = 1 << 50;

/// `body` with the session timeout as `t`, the stop grace as `g`, the tick as `k`, the lease duration as `l` and the
/// renewal interval as `r`, all in microseconds.
fn with_times(r#macro: &str, element: &str, body: &str) -> String {
    let micros = |field: &str| format!("duration(self.{field}).getMilliseconds() * 1000");
    format!(
        "[{t}].{macro}(t, [{g}].{macro}(g, \
         [has(self.zookeeper) && has(self.zookeeper.tickTime) ? {k} : {tick}].{macro}(k, \
         [self.leaseDuration.matches('{PATTERN}') ? {l} : {NO_LEASE}].{macro}(l, \
         [has(self.renewInterval) ? {r} : t / 8].{macro}(q, \
         [q < l / 8 ? q : l / 8].{macro}(r, \
         {body}){element}){element}){element}){element}){element}){element}",
        t = micros("sessionTimeout"),
        g = micros("stopGrace"),
        k = micros("zookeeper.tickTime"),
        l = micros("leaseDuration"),
        r = micros("renewInterval"),
        tick = DEFAULT_TICK_TIME.get().as_micros(),
    )
}

fn proven_age() -> String {
    let slack = SLACK.get().as_micros();
    format!("r * ((k / 2 + {slack} + r - 1) / r + ({slack} + r - 1) / r + 2)")
}

fn margin(time: &str) -> String {
    format!("({time} / 100 + {})", KILL_ALLOWANCE.get().as_micros())
}

fn sum() -> String {
    format!("{} + g + {}", proven_age(), margin("t"))
}

fn seconds(micros: &str) -> String {
    format!("double({micros}) / 1000000.0")
}

/// Pods keep the mode that they were created with, so a change would put two modes into one queue.
pub(crate) fn mode_while_in_use() -> Rule {
    while_in_use(
        "mode",
        "self.spec.mode == oldSelf.spec.mode",
        "spec.mode cannot change from %s to %s",
        &["oldSelf.spec.mode", "self.spec.mode"],
    )
}

/// Pods that were created for more holders would run beside pods that were created for fewer.
pub(crate) fn max_holders_while_in_use() -> Rule {
    while_in_use(
        "maxHolders",
        "self.spec.maxHolders >= oldSelf.spec.maxHolders",
        "spec.maxHolders cannot shrink from %d to %d",
        &["oldSelf.spec.maxHolders", "self.spec.maxHolders"],
    )
}

/// Pods in two ensembles do not see each other. A connect string that keeps the path and at least one server counts as
/// the same ensemble with servers added or replaced.
pub(crate) fn ensemble_while_in_use() -> Rule {
    // Without the slashes of `tcp+tls://`, and with one at the end, so the first slash is the end of the servers.
    let connect = |object: &str| format!("({object}.spec.zookeeper.connect.replace('://', '+') + '/')");
    // At most sixteen: without a bound the API server assumes the cost of comparing every character with every other.
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

/// Either `unchanged`, or no pod holds or awaits the lock according to its last status. `what` is a format of
/// `arguments`; `field` is the field to change back.
///
/// The API server uses the status of the stored object. It may be a second old, and lacks pods that do not queue yet,
/// so the message tells the user to scale down first.
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
