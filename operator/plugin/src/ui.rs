//! `kubectl lockkeeper ui`: a page on this machine with all locks, live.

use kube::api::ListParams;
use kube::{Api, Client};
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::page::{Page, Words};

use crate::problem::failed;

mod follow;
mod row;

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
        let page = Page::bind(self.port, what, words(), None).await?;
        print(&page.greeting())?;
        let board = page.board();
        tokio::select! {
            () = follow::follow(locks, self.selector, &board) => {}
            () = page.serve() => {}
        }
        Ok(())
    }
}

fn words() -> Words {
    Words {
        program: "kubectl lockkeeper ui",
        who: "Pod",
        place: "Node",
        filter: "lock, pod or node",
        past: "Former holders".to_owned(),
        note: String::new(),
    }
}
