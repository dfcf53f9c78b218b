//! Asking the application as a kubelet asks (`pkg/probe` of Kubernetes).

use std::time::Duration;

pub(crate) use super::http::HttpGet;
use super::{grpc, http, tcp};

/// How an application is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// A command in the application's container.
    Exec(Vec<String>),
    /// Status 200 to 399 is success.
    Http(HttpGet),
    /// A connection is success.
    Tcp {
        /// Name or address.
        host: String,
        port: u16,
    },
    /// `grpc.health.v1.Health/Check` with the answer `SERVING` is success.
    Grpc {
        /// Name or address.
        host: String,
        port: u16,
        /// The service to ask about; empty for the whole server.
        service: String,
    },
}

/// One probe or hook of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub handler: Handler,
    pub timeout: Duration,
}

/// Pause before a hook is sent again to an application that does not listen yet.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl Check {
    /// Asks once.
    ///
    /// # Errors
    /// In words, when the answer is bad or does not come in time.
    pub(crate) async fn ask(&self) -> Result<(), String> {
        let asked = async {
            match &self.handler {
                Handler::Exec(_) => {
                    Err("a command can be run in the application's container only".to_owned())
                }
                Handler::Http(get) => http::check(get).await,
                Handler::Tcp { host, port } => tcp::connect(host, *port).await.map(drop),
                Handler::Grpc { host, port, service } => grpc::check(host, *port, service).await,
            }
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {:?}", self.timeout)),
        }
    }

    /// Sends a hook. Every answer is success, as for a kubelet. A kubelet sends it some moments after the start, and
    /// we at once: so it is sent again for the whole timeout while the application does not listen yet.
    ///
    /// # Errors
    /// When the application does not answer.
    pub(crate) async fn send(&self) -> Result<(), String> {
        let sent = async {
            loop {
                let sent = match &self.handler {
                    Handler::Http(get) => http::send(get).await,
                    _ => return self.ask().await,
                };
                match sent {
                    Err(problem) if problem.is_refused => tokio::time::sleep(RETRY_PAUSE).await,
                    Err(problem) => return Err(problem.to_string()),
                    Ok(()) => return Ok(()),
                }
            }
        };
        match tokio::time::timeout(self.timeout, sent).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("no answer within {:?}", self.timeout)),
        }
    }
}
