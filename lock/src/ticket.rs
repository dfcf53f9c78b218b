//! What a process leaves to its successor, so that the successor goes on with the same contender.
//!
//! The successor takes the session to a connection of its own, and proves a lease anew before it counts as the holder.
//! What the process before it had proven counts for nothing, and what that one had granted ends by itself.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::token::FencingToken;

/// Length of the password of a session (`ZooKeeperServer.generatePasswd`).
pub const SESSION_PASSWORD_LEN: usize = 16;

/// What a server asks of a client that comes back to its session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionKey {
    /// The number of the session, which the ensemble chose.
    pub id: i64,
    /// The password of the session, a secret: a client that has it can end the session.
    pub password: [u8; SESSION_PASSWORD_LEN],
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password is a secret: a client that has it can end the session.
        write!(formatter, "SessionKey({:#x})", self.id)
    }
}

/// A held contender, for the process that goes on with it (as in RFC 5077: what a client keeps to resume a session).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The session with which the contender ends.
    pub session: SessionKey,
    /// The shortest session timeout that a server has granted to it, in whole milliseconds.
    pub session_timeout: Duration,
    /// The unique part of its name.
    pub contender: Uuid,
    /// The token under which the contender holds the lock.
    pub token: FencingToken,
    /// L, if it may be replaced when it is silent for that long; in whole milliseconds.
    pub lease: Option<Duration>,
}

/// How a name begins that has a unique part (Curator's "protection").
const PROTECTION: &str = "_c_";

/// The beginning of a contender's name, up to its unique part.
pub(crate) fn protected(unique: Uuid) -> String {
    format!("{PROTECTION}{unique}")
}

/// The unique part of a contender's name; `None` if another client chose the name.
pub(crate) fn unique_part(name: &str) -> Option<Uuid> {
    let unique = name.strip_prefix(PROTECTION)?;
    let unique = unique.get(..uuid::fmt::Hyphenated::LENGTH)?;
    Uuid::try_parse(unique).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_is_found_again_by_the_unique_part_of_its_name() {
        let unique = Uuid::new_v4();
        let name = format!("{}-lock-0000000007", protected(unique));
        assert_eq!(unique_part(&name), Some(unique));
        for foreign in ["", "_c_", "_c_7-lock-0000000007", "x-1-0000000007"] {
            assert_eq!(unique_part(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_password_of_a_session_is_not_printed() {
        let key = SessionKey {
            id: 0x10,
            password: [77; SESSION_PASSWORD_LEN],
        };
        assert_eq!(format!("{key:?}"), "SessionKey(0x10)");
    }
}
