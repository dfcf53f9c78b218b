//! Asking the application as a kubelet asks (`pkg/probe` of Kubernetes).

use std::time::Duration;

use tokio::net::TcpStream;

pub use super::http::HttpGet;
use super::{Check, grpc, http};

/// How an application is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// A command in the application's container.
    Exec(Vec<String>),
    /// Status 200 to 399 is success.
    Http(HttpGet),
    /// To be connected is success.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// `grpc.health.v1.Health/Check` with the answer `SERVING` is success.
    Grpc {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// The service to ask about; empty for the whole server.
        service: String,
    },
}

/// Pause before a hook is sent again to an application that does not listen yet.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl Check {
    /// Asks once; what is wrong otherwise.
    ///
    /// # Errors
    /// In words, when the answer is bad or does not come in time.
    pub async fn ask(&self) -> Result<(), String> {
        let asked = async {
            match &self.handler {
                Handler::Exec(_) => {
                    Err("a command can be run in the application's container only".to_owned())
                }
                Handler::Http(get) => http::check(get).await,
                Handler::Tcp { host, port } => connect(host, *port).await.map(drop),
                Handler::Grpc { host, port, service } => grpc::check(host, *port, service).await,
            }
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {:?}", self.timeout)),
        }
    }

    /// Sends a hook. Whatever is answered is success, as for a kubelet. A kubelet sends it some moments
    /// after the start and we at once: so an application that does not listen yet gets the whole time.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn send(&self) -> Result<(), String> {
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

/// A connection to the application.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port))
        .await
        .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))
}
