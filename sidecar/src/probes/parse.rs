//! From the JSON of `LOCKKEEPER_APP_PROBES` to [`AppProbes`].
//!
//! The objects are those of a container in Kubernetes (`Probe`, `LifecycleHandler`). Their other fields
//! are for the kubelet, which still has them: how often it asks, and what it makes of the answers.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::handler::{Handler, HttpGet};
use super::{AppProbes, Check, Startup};

/// Defaults of Kubernetes: API reference, `Probe`.
const TIMEOUT_SECONDS: u32 = 1;
const PERIOD_SECONDS: u32 = 10;
const FAILURE_THRESHOLD: u32 = 3;

/// Hooks have no timeout of their own: a kubelet ends them with the grace period, 30 s by default.
const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Document {
    liveness: Option<Probe>,
    readiness: Option<Probe>,
    startup: Option<Probe>,
    post_start: Option<Probe>,
    pre_stop: Option<Probe>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    exec: Option<Exec>,
    http_get: Option<HttpGetAction>,
    tcp_socket: Option<TcpSocket>,
    grpc: Option<Grpc>,
    initial_delay_seconds: Option<u32>,
    timeout_seconds: Option<u32>,
    period_seconds: Option<u32>,
    failure_threshold: Option<u32>,
}

#[derive(Deserialize)]
struct Exec {
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpGetAction {
    path: Option<String>,
    port: Value,
    host: Option<String>,
    scheme: Option<String>,
    #[serde(default)]
    http_headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct TcpSocket {
    port: Value,
    host: Option<String>,
}

#[derive(Deserialize)]
struct Grpc {
    port: Value,
    service: Option<String>,
}

// === impl AppProbes ===

impl AppProbes {
    /// Reads the JSON; nothing, or nothing in it, is no probe. `pod` is the address for probes that name
    /// no host.
    ///
    /// # Errors
    /// What is wrong with it, to be read after the name of the option.
    pub fn parse(json: Option<&str>, pod: Option<IpAddr>) -> Result<Self, String> {
        let Some(json) = json.filter(|json| !json.trim().is_empty()) else {
            return Ok(Self::default());
        };
        let document: Document = serde_json::from_str(json).map_err(|error| {
            format!(
                "is not the JSON of probes: {error}; write it as in \
                 {{\"liveness\":{{\"httpGet\":{{\"path\":\"/healthz\",\"port\":8080}}}}}}"
            )
        })?;
        let host = pod.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_string();
        let probe = |kind: &str, probe: Option<Probe>| match probe {
            None => Ok(None),
            Some(probe) if probe.exec.is_some() => Err(format!(
                "has a command for {kind}, which can only run in the application's container: make that \
                 `lockkeeper probe`"
            )),
            Some(probe) => probe
                .check(&host)
                .map(Some)
                .map_err(|problem| format!("{problem} for {kind}")),
        };
        let hook = |kind: &str, of: Option<Probe>| {
            probe(kind, of).map(|check| {
                check.map(|check| Check {
                    timeout: HOOK_TIMEOUT,
                    ..check
                })
            })
        };
        Ok(Self {
            liveness: probe("liveness", document.liveness)?,
            readiness: probe("readiness", document.readiness)?,
            startup: match document.startup {
                None => None,
                Some(probe) => Some(
                    probe
                        .startup(&host)
                        .map_err(|problem| format!("{problem} for startup"))?,
                ),
            },
            post_start: hook("postStart", document.post_start)?,
            pre_stop: hook("preStop", document.pre_stop)?,
        })
    }
}

// === impl Probe ===

impl Probe {
    fn startup(self, host: &str) -> Result<Startup, String> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let delay = seconds(self.initial_delay_seconds.unwrap_or(0));
        // Kubernetes takes 0 for "not given".
        let or = |value: Option<u32>, default| value.filter(|value| *value > 0).unwrap_or(default);
        let budget =
            seconds(or(self.period_seconds, PERIOD_SECONDS)) * or(self.failure_threshold, FAILURE_THRESHOLD);
        Ok(Startup {
            check: self.check(host)?,
            delay,
            budget: delay.saturating_add(budget),
        })
    }

    fn check(self, pod: &str) -> Result<Check, String> {
        let timeout = self.timeout_seconds.filter(|seconds| *seconds > 0);
        let host = |host: Option<String>| host.filter(|host| !host.is_empty()).unwrap_or(pod.to_owned());
        let handler = match (self.exec, self.http_get, self.tcp_socket, self.grpc) {
            (Some(exec), None, None, None) if !exec.command.is_empty() => Handler::Exec(exec.command),
            (None, Some(get), None, None) => {
                let headers = get
                    .http_headers
                    .into_iter()
                    .map(|header| (header.name, header.value));
                Handler::Http(HttpGet::new(
                    get.scheme.as_deref().unwrap_or("HTTP"),
                    &host(get.host),
                    port(&get.port)?,
                    get.path.as_deref().unwrap_or("/"),
                    headers,
                )?)
            }
            (None, None, Some(tcp), None) => Handler::Tcp {
                host: host(tcp.host),
                port: port(&tcp.port)?,
            },
            (None, None, None, Some(grpc)) => Handler::Grpc {
                host: pod.to_owned(),
                port: port(&grpc.port)?,
                service: service(grpc.service.unwrap_or_default())?,
            },
            _ => {
                return Err(
                    "has not exactly one of exec (with a command), httpGet, tcpSocket and grpc".to_owned(),
                );
            }
        };
        Ok(Check {
            handler,
            timeout: Duration::from_secs(timeout.unwrap_or(TIMEOUT_SECONDS).into()),
        })
    }
}

/// The call has to fit into one frame of HTTP/2 (16 KiB).
fn service(name: String) -> Result<String, String> {
    if name.len() > 4096 {
        return Err("has a service whose name is longer than 4096 bytes".to_owned());
    }
    Ok(name)
}

/// Names of ports are those of the application's container, which this one does not know.
fn port(port: &Value) -> Result<u16, String> {
    port.as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("has the port {port}, which is no number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<AppProbes, String> {
        AppProbes::parse(Some(json), Some("10.1.2.3".parse().unwrap()))
    }

    #[test]
    fn a_startup_budget_is_its_delay_and_all_its_attempts_with_the_defaults_of_kubernetes() {
        for (fields, seconds) in [
            ("", 30),
            (r#","periodSeconds":5,"failureThreshold":60"#, 300),
            (r#","initialDelaySeconds":7,"failureThreshold":1"#, 17),
            (r#","periodSeconds":0,"failureThreshold":0"#, 30),
        ] {
            let json = format!(r#"{{"startup":{{"tcpSocket":{{"port":80}}{fields}}}}}"#);
            let startup = parse(&json).unwrap().startup.unwrap();
            assert_eq!(startup.budget, Duration::from_secs(seconds), "{json}");
            assert_eq!(startup.check.timeout, Duration::from_secs(1));
        }
    }

    #[test]
    fn a_probe_without_a_host_is_for_the_address_of_the_pod() {
        let probes = parse(
            r#"{"liveness":{"tcpSocket":{"port":1}},"readiness":{"tcpSocket":{"port":1,"host":"localhost"}}}"#,
        )
        .unwrap();
        let host = |check: Option<Check>| match check.unwrap().handler {
            Handler::Tcp { host, .. } => host,
            other => panic!("{other:?}"),
        };
        assert_eq!(host(probes.liveness), "10.1.2.3");
        assert_eq!(host(probes.readiness), "localhost");
        for nothing in [None, Some(""), Some("{}")] {
            assert_eq!(AppProbes::parse(nothing, None), Ok(AppProbes::default()));
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_the_kind_that_it_is_for() {
        for (json, parts) in [
            ("liveness", &["is not the JSON of probes"][..]),
            (r#"{"livenes":{}}"#, &["unknown field `livenes`"]),
            (r#"{"liveness":{}}"#, &["exactly one of", "for liveness"]),
            (
                r#"{"liveness":{"exec":{"command":["x"]}}}"#,
                &["a command for liveness", "lockkeeper probe"],
            ),
            (
                r#"{"startup":{"exec":{"command":[]}}}"#,
                &["exactly one of", "for startup"],
            ),
            (
                r#"{"readiness":{"httpGet":{"port":"web"}}}"#,
                &["the port \"web\", which is no number", "for readiness"],
            ),
            (r#"{"readiness":{"tcpSocket":{"port":0}}}"#, &["the port 0"]),
            (
                r#"{"preStop":{"httpGet":{"port":80,"scheme":"FTP"}}}"#,
                &["scheme FTP", "for preStop"],
            ),
            (
                r#"{"postStart":{"httpGet":{"port":80,"path":"/a b"}}}"#,
                &["/a b", "for postStart"],
            ),
            (
                r#"{"liveness":{"httpGet":{"port":80,"httpHeaders":[{"name":"a b","value":""}]}}}"#,
                &["header a b", "for liveness"],
            ),
        ] {
            let problem = parse(json).unwrap_err();
            for part in parts {
                assert!(problem.contains(part), "{json}: {part:?} is not in {problem}");
            }
        }
    }
}
