//! The ensemble, and how to reach it.

use std::path::PathBuf;

use clap::Args;
use lockkeeper_daemon::credentials::Credentials;
use lockkeeper_daemon::exit::Failure;
#[cfg(feature = "tls")]
use lockkeeper_daemon::tls::{Tls, TlsArgs};
use lockkeeper_lock::zookeeper::ConnectString;

/// The ensemble, and how to reach it: shared by all commands that do.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Ensemble")]
pub struct EnsembleArgs {
    /// The ensemble: HOST:PORT,… with an optional /chroot at the end; tcp+tls://HOST:PORT for TLS
    #[arg(long, env = "LOCKKEEPER_CONNECT", value_name = "HOSTS")]
    pub connect: ConnectString,

    /// File with the credentials; a keeper follows its changes: USER:PASSWORD or digest:USER:PASSWORD, one in each line
    #[arg(long, env = "LOCKKEEPER_AUTH_FILE", value_name = "FILE")]
    pub auth_file: Option<PathBuf>,

    /// How to speak TLS with the servers that want it.
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// The same with the content of the files: everything fits together.
#[derive(Clone, Debug)]
pub(crate) struct EnsembleSettings {
    pub(crate) connect: ConnectString,
    pub(crate) credentials: Option<Credentials>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
}

impl EnsembleArgs {
    /// Reads the files, and checks what clap cannot.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check(self) -> Result<EnsembleSettings, Failure> {
        let Self {
            connect,
            auth_file,
            #[cfg(feature = "tls")]
            tls,
        } = self;
        #[cfg(feature = "tls")]
        let tls = tls.read()?;
        #[cfg(feature = "tls")]
        if !tls.is_default() && !connect.servers().iter().any(|server| server.tls) {
            return Err(Failure::usage(
                "TLS files are given and no server of --connect speaks TLS: write tcp+tls://HOST:PORT",
            ));
        }
        #[cfg(feature = "tls")]
        if let (Some(server), None) = (connect.servers().iter().find(|server| server.tls), &tls.ca) {
            return Err(Failure::usage(format!(
                "--connect {server} wants TLS and no authority is trusted: add --tls-ca with the authorities that \
                 sign the ensemble's certificates"
            )));
        }
        #[cfg(not(feature = "tls"))]
        if let Some(server) = connect.servers().iter().find(|server| server.tls) {
            return Err(Failure::usage(format!(
                "--connect {server} wants TLS, which this binary was built without: build it with --features tls"
            )));
        }
        Ok(EnsembleSettings {
            connect,
            credentials: auth_file.as_deref().map(Credentials::read).transpose()?,
            #[cfg(feature = "tls")]
            tls,
        })
    }
}
