//! The authorities in the webhook's configuration. Pure.
//!
//! Authorities that no operator has made stay there: replicas with another setting, older or newer, serve certificates
//! that these vouch for. Those that were there when the first certificate was made are removed when that certificate is
//! replaced.

use super::authority::{Issued, each, is_ours};

/// Most authorities in a bundle: ours, the one before, and those of others.
const AUTHORITIES_AT_MOST: usize = 16;

/// The authorities that the API server trusts, by the configuration that was read.
pub(super) struct Bundle {
    pub(super) version: Option<String>,
    /// Name and authorities of each webhook.
    pub(super) webhooks: Vec<(String, String)>,
}

impl Bundle {
    /// Authorities that no operator has made, as many as fit.
    pub(super) fn foreign(&self) -> String {
        let of_first = self.webhooks.first().map_or("", |(_, bundle)| bundle);
        listed(each(of_first).filter(|one| !is_ours(one)))
    }

    /// The bundle for a certificate that replaces `before`; `None` if the configuration needs no change.
    ///
    /// The leader removes the other authorities of operators, and those that only the certificate `before` needed.
    /// Another replica only adds its own authority, if that is missing: it does not know what the leader is doing.
    pub(super) fn with(&self, issued: &Issued, before: Option<&Issued>, leads: bool) -> Option<String> {
        let own: Vec<_> = each(&issued.authorities).collect();
        let is_complete = |bundle: &str| own.first().is_none_or(|own| each(bundle).any(|one| one == *own));
        if !leads && self.webhooks.iter().all(|(_, bundle)| is_complete(bundle)) {
            return None;
        }
        let was_needed =
            |one: &str| before.is_some_and(|before| each(&before.authorities).any(|old| old == one));
        let of_first = self.webhooks.first().map_or("", |(_, bundle)| bundle);
        let others = each(of_first)
            .filter(|one| !own.contains(one))
            .filter(|one| !leads || !(is_ours(one) || was_needed(one)));
        let wanted = listed(own.iter().copied().chain(others));
        let is_there = self.webhooks.iter().all(|(_, bundle)| *bundle == wanted);
        (!is_there).then_some(wanted)
    }
}

/// Authorities as a bundle, as many as there may be.
fn listed<'a>(authorities: impl Iterator<Item = &'a str>) -> String {
    let lines = authorities.take(AUTHORITIES_AT_MOST);
    lines.map(|one| format!("{one}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::certificates::authority::{issue, issue_beside};

    const NAME: &str = "lockkeeper-webhook.lockkeeper.svc";
    const NOW: u64 = 1_800_000_000;

    /// An authority that no replica has made.
    fn foreign() -> String {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        listed(each(&made.cert.pem()))
    }

    fn bundle(authorities: &str) -> Bundle {
        Bundle {
            version: None,
            webhooks: vec![
                ("pods".into(), authorities.into()),
                ("keys".into(), authorities.into()),
            ],
        }
    }

    #[test]
    fn authorities_of_others_stay_for_replicas_that_serve_by_them_and_those_that_nobody_needs_go() {
        let (given, newer) = (foreign(), foreign());
        // The first certificate, beside what was given; and two rotations.
        let first = issue_beside(&[NAME.to_owned()], &bundle(&given).foreign(), NOW).unwrap();
        let trusted = bundle(&given).with(&first, None, true).unwrap();
        assert!(trusted.contains(&given) && trusted.starts_with(&first.authorities));
        let second = issue(&[NAME.to_owned()], Some(&first.authorities), NOW).unwrap();
        let trusted = bundle(&trusted).with(&second, Some(&first), true).unwrap();
        assert_eq!(trusted, second.authorities, "what was given before ours is over");
        let third = issue(&[NAME.to_owned()], Some(&second.authorities), NOW).unwrap();
        let trusted = bundle(&trusted).with(&third, Some(&second), true).unwrap();
        assert_eq!(trusted, third.authorities);
        // Another one takes its place: an upgrade to a certificate that is given.
        let trusted = bundle(&newer).with(&third, None, true).unwrap();
        assert_eq!(trusted, format!("{}{newer}", third.authorities));
        assert_eq!(
            bundle(&trusted).with(&third, None, true),
            None,
            "it is as it should be"
        );
    }

    #[test]
    fn a_replica_that_does_not_lead_adds_its_authority_and_takes_none_away() {
        let issued = |before: Option<&str>| issue(&[NAME.to_owned()], before, NOW).unwrap();
        let (own, other) = (issued(None), issued(None));
        let given = foreign();
        let present = format!("{}{given}", other.authorities);
        let added = bundle(&present).with(&own, None, false).unwrap();
        assert_eq!(added, format!("{}{present}", own.authorities));
        assert_eq!(bundle(&added).with(&own, None, false), None);
        // In the middle of a rotation by the leader.
        let next = issued(Some(&own.authorities));
        assert_eq!(bundle(&next.authorities).with(&own, None, false), None);
    }
}
