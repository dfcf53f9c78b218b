//! The real ensemble: `zookeeper-client` behind the traits of [`crate::ensemble`].
//!
//! Its client reconnects by itself, reports only the newest of its states, and adopts whatever session a server hands
//! out. So here one client serves one [`Connection`](crate::ensemble::Connection), to one server, and is ended at its
//! first disconnection; see docs/safety.md, "What the client must not do".

mod address;
mod connection;
mod credentials;
mod errors;
mod executor;
mod four_letter_word;
mod guarded;
mod handshake;
mod listing;
mod onlooker;
mod release;
mod rights;
mod servers;
mod tick;
#[cfg(feature = "tls")]
mod tls;

pub use address::{ConnectString, InvalidConnectString, ServerAddress};
pub use connection::ZooKeeperConnection;
pub use credentials::Credentials;
pub use guarded::AddressGuard;
pub use onlooker::Onlooker;
pub use rights::{InvalidReader, Reader};
pub use servers::ZooKeeper;
#[cfg(feature = "fuzzing")]
pub(crate) use tick::parse as tick;
#[cfg(feature = "tls")]
pub use tls::InvalidTls;
