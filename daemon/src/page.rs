//! A page on this machine with all locks, live: its server, and what is on it. Who runs it fills the board.
//!
//! For every system on which the plug-in of kubectl runs.

mod board;
mod key;
mod row;
mod serve;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use serde::Serialize;
use tokio::net::TcpListener;

pub use board::Board;
use key::Key;
pub use row::{Problem, Row};
use serve::Site;

use crate::exit::{Exit, Failure};

/// The words in which pages differ.
#[derive(Clone, Debug, Serialize)]
pub struct Words {
    /// How a user starts the page: `kubectl lockkeeper ui`.
    pub program: &'static str,
    /// What holders are called: `Pod`.
    pub who: &'static str,
    /// Where they run: `Node`.
    pub place: &'static str,
    /// By what a user can filter: `lock, pod or node`.
    pub filter: &'static str,
    /// The heading of the former holders.
    pub past: String,
    /// A sentence about the timeline; empty if there is none.
    pub note: String,
}

/// When the holders of the lock with this number have renewed, in JSON (`{"CONTENDER":{"age":MILLISECONDS,"isSeen":BOOL}}`).
pub type Renewals = Arc<dyn Fn(u64) -> String + Send + Sync>;

/// A page that has its address, and is not served yet.
pub struct Page {
    listener: TcpListener,
    site: Site,
}

impl Page {
    /// Takes a port on 127.0.0.1; 0 for one that is free. `title` says which locks these are. With `renewals` the story of a
    /// lock that has a number counts its leases down.
    ///
    /// # Errors
    /// When the port cannot be used, or the system gives no random numbers.
    pub async fn bind(
        port: u16,
        title: String,
        words: Words,
        renewals: Option<Renewals>,
    ) -> Result<Self, Failure> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let refused =
            |error| Failure::new(Exit::CannotCreate, format!("cannot listen at {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?.to_string();
        let site = Site {
            title,
            words,
            address,
            key: Key::new()?,
            seal: Key::new()?,
            board: Arc::default(),
            renewals,
        };
        Ok(Self { listener, site })
    }

    /// What to print for the user: what the page shows, its address, and that the address is a secret.
    pub fn greeting(&self) -> String {
        let Site {
            title, address, key, ..
        } = &self.site;
        format!(
            "{}: http://{address}/?key={key}\nThe address is a secret: who has it sees these locks. Ctrl-C ends it.\n",
            crate::table::plain(title)
        )
    }

    /// What the page shows.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.site.board)
    }

    /// Serves for ever.
    pub async fn serve(self) {
        serve::serve(self.listener, self.site).await;
    }
}
