//! Probes and hooks of a wrapped container: they keep their meaning while the application waits, is
//! paused or runs.
//!
//! Probes over the network go to the sidecar, which answers them itself or asks the application; commands stay in the
//! container, behind `lockkeeper probe`.

use lockkeeper_daemon::token::AppToken;
use serde_json::{Map, Value, json};

use super::names;
use super::refusal::Refusal;

/// Seconds that the sidecar may need beside the application's own timeout.
const RELAY_SECONDS: i64 = 1;
/// Kubernetes' default of `timeoutSeconds` and `periodSeconds` (API reference, `Probe`).
const TIMEOUT_SECONDS: i64 = 1;
const PERIOD_SECONDS: i64 = 10;

/// Field of a container, name for the sidecar, name for `lockkeeper probe --kind`.
const PROBES: [(&str, &str, &str); 2] = [
    ("livenessProbe", "liveness", "liveness"),
    ("readinessProbe", "readiness", "readiness"),
];
const HOOKS: [(&str, &str); 2] = [("postStart", "post-start"), ("preStop", "pre-stop")];

/// Redirects the probes and hooks of `container` to the sidecar, which answers only requests with the token. Returns
/// the originals, for `LOCKKEEPER_APP_PROBES`.
///
/// # Errors
/// When a port has a name that the container does not declare.
pub(crate) fn redirect(
    container: &mut Map<String, Value>,
    token: &AppToken,
) -> Result<Map<String, Value>, Refusal> {
    let ports = Ports::of(container, token);
    let mut originals = Map::new();
    for (field, kind, flag) in PROBES {
        let Some(probe) = container.get_mut(field).and_then(Value::as_object_mut) else {
            continue;
        };
        if let Some(original) = ports.relay(probe, kind, flag)? {
            let timeout = seconds(probe, "timeoutSeconds", TIMEOUT_SECONDS);
            probe.insert("timeoutSeconds".to_owned(), json!(timeout + RELAY_SECONDS));
            originals.insert(kind.to_owned(), original);
        }
    }
    redirect_startup(container, &ports, &mut originals)?;
    if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) {
        for (kind, flag) in HOOKS {
            if let Some(hook) = lifecycle.get_mut(kind).and_then(Value::as_object_mut)
                && let Some(original) = ports.relay(hook, kind, flag)?
            {
                originals.insert(kind.to_owned(), original);
            }
        }
    }
    Ok(originals)
}

/// A kubelet runs the startup probe once in a container's life, and the application may start many times in it. So
/// the sidecar counts the budget from each start, and the liveness probe reports its end.
fn redirect_startup(
    container: &mut Map<String, Value>,
    ports: &Ports<'_>,
    originals: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    let Some(Value::Object(mut startup)) = container.remove("startupProbe") else {
        return Ok(());
    };
    ports.resolve(&mut startup, "startup")?;
    let timeout = seconds(&startup, "timeoutSeconds", TIMEOUT_SECONDS) + RELAY_SECONDS;
    let command = startup.get("exec").and_then(|exec| exec.get("command"));
    match (
        container.get_mut("livenessProbe").and_then(Value::as_object_mut),
        command,
    ) {
        (None, _) => {
            let mut liveness = match command {
                Some(command) => json!({ "exec": { "command": behind_probe("startup", command) } }),
                None => ports.to_sidecar("liveness"),
            };
            liveness["periodSeconds"] = json!(seconds(&startup, "periodSeconds", PERIOD_SECONDS));
            liveness["timeoutSeconds"] = json!(timeout);
            container.insert("livenessProbe".to_owned(), liveness);
        }
        // The startup command can only be executed in the container, so the liveness probe goes there.
        (Some(liveness), Some(_)) => {
            if liveness.remove("httpGet").is_some() {
                let command = behind_probe("liveness", &Value::Null);
                liveness.insert("exec".to_owned(), json!({ "command": command }));
            }
            let own = seconds(liveness, "timeoutSeconds", TIMEOUT_SECONDS);
            liveness.insert("timeoutSeconds".to_owned(), json!(timeout.max(own)));
        }
        (Some(_), None) => {}
    }
    originals.insert("startup".to_owned(), Value::Object(startup));
    Ok(())
}

fn seconds(probe: &Map<String, Value>, field: &str, default: i64) -> i64 {
    probe.get(field).and_then(Value::as_i64).unwrap_or(default)
}

/// Numbers of a container's named ports, and what the sidecar's path holds.
struct Ports<'a> {
    container: String,
    numbers: Vec<(String, Value)>,
    token: &'a AppToken,
}

impl<'a> Ports<'a> {
    fn of(container: &Map<String, Value>, token: &'a AppToken) -> Self {
        let declared = container
            .get("ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Self {
            container: container
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            numbers: declared
                .filter_map(|port| {
                    Some((
                        port.get("name")?.as_str()?.to_owned(),
                        port.get("containerPort")?.clone(),
                    ))
                })
                .collect(),
            token,
        }
    }

    /// A probe or hook that the sidecar answers.
    fn to_sidecar(&self, kind: &str) -> Value {
        let path = format!("/app/{}/{kind}", self.token.as_str());
        json!({ "httpGet": { "path": path, "port": names::PORT } })
    }

    /// Makes `probe` one that the sidecar answers, and returns the original if the sidecar has to know it.
    fn relay(
        &self,
        probe: &mut Map<String, Value>,
        kind: &'static str,
        flag: &str,
    ) -> Result<Option<Value>, Refusal> {
        if let Some(command) = probe.get("exec").and_then(|exec| exec.get("command")) {
            let command = behind_probe(flag, command);
            probe["exec"]["command"] = command;
            return Ok(None);
        }
        // `sleep` calls no program, and a kubelet does nothing for a hook that is a tcpSocket.
        let is_hook = matches!(kind, "postStart" | "preStop");
        let handlers: &[&str] = if is_hook {
            &["httpGet"]
        } else {
            &["httpGet", "tcpSocket", "grpc"]
        };
        if !handlers.iter().any(|handler| probe.contains_key(*handler)) {
            return Ok(None);
        }
        let mut original = probe.clone();
        self.resolve(&mut original, kind)?;
        for handler in handlers {
            probe.remove(*handler);
        }
        probe.insert("httpGet".to_owned(), self.to_sidecar(kind)["httpGet"].take());
        Ok(Some(Value::Object(original)))
    }

    /// Names of ports mean nothing in the sidecar.
    fn resolve(&self, probe: &mut Map<String, Value>, kind: &'static str) -> Result<(), Refusal> {
        for handler in ["httpGet", "tcpSocket"] {
            let Some(port) = probe.get_mut(handler).and_then(|handler| handler.get_mut("port")) else {
                continue;
            };
            let Some(name) = port.as_str() else { continue };
            let number = self.numbers.iter().find(|(declared, _)| declared == name);
            *port = match number {
                Some((_, number)) => number.clone(),
                None => {
                    return Err(Refusal::UnknownPort {
                        container: self.container.clone(),
                        kind,
                        port: name.to_owned(),
                    });
                }
            };
        }
        Ok(())
    }
}

/// Without a command, `lockkeeper probe` lets the sidecar ask the application.
fn behind_probe(flag: &str, command: &Value) -> Value {
    let mut words = vec![json!(names::BINARY), json!("probe"), json!("--kind"), json!(flag)];
    if let Some(command) = command.as_array() {
        words.push(json!("--"));
        words.extend(command.iter().cloned());
    }
    Value::Array(words)
}
