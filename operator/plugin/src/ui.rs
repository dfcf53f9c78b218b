//! `kubectl lockkeeper ui`: a page on this machine with all locks, live.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::exit::{Exit, Failure};
use tokio::net::TcpListener;

use crate::problem::failed;

mod board;
mod follow;
mod key;
mod row;
mod serve;

use board::Board;
use key::Key;

/// Which locks the page shows, and where it is.
pub(crate) struct Ui {
    pub(crate) client: Client,
    /// Those of this namespace; of all if there is none.
    pub(crate) namespace: Option<String>,
    /// The context of the kubeconfig, if it has a name.
    pub(crate) context: Option<String>,
    /// A selector of labels; all if there is none.
    pub(crate) selector: Option<String>,
    /// The port on 127.0.0.1; 0 for one that is free.
    pub(crate) port: u16,
}

impl Ui {
    /// Prints the page's address, and serves it until the process is ended.
    ///
    /// # Errors
    /// When the locks cannot be listed, or the port cannot be used.
    pub(crate) async fn run(
        self,
        print: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let locks: Api<DistributedLock> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        // A user without the right to it is told so here, and not on a page that stays empty.
        let first = ListParams {
            label_selector: self.selector.clone(),
            limit: Some(1),
            ..ListParams::default()
        };
        let found = locks.list(&first).await;
        found.map_err(|error| failed("list locks", &error))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        let refused =
            |error| Failure::new(Exit::CannotCreate, format!("cannot listen at {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let key = Key::new()?;
        let mut what = match &self.namespace {
            Some(namespace) => format!("Locks of the namespace {namespace}"),
            None => "Locks of all namespaces".to_owned(),
        };
        if let Some(selector) = &self.selector {
            what += &format!(" with {selector}");
        }
        // So that the pages of two clusters can be told apart.
        if let Some(context) = &self.context {
            what += &format!(" in {context}");
        }
        print(&format!(
            "{what}: http://{address}/?key={key}\nThe address is a secret: who has it sees these locks. Ctrl-C ends it.\n"
        ))?;
        let board = Arc::new(Board::default());
        let site = serve::Site {
            title: what,
            address: address.to_string(),
            key,
            seal: Key::new()?,
            board: Arc::clone(&board),
        };
        tokio::select! {
            () = follow::follow(locks, self.selector, &board) => {}
            () = serve::serve(listener, site) => {}
        }
        Ok(())
    }
}
