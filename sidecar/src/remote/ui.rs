//! `lockkeeper ui`: a page on this machine with locks, live, as the ensemble has them.

use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::page::{Page, Words};
use lockkeeper_daemon::table::cut;
use tokio::signal::unix::{SignalKind, signal};

use super::ensemble::Ensemble;
use super::find::{self, Found};
use super::queue::{self, Depth};
use super::show::time_of_day;
use crate::args::{Pattern, UiArgs};
use crate::process::cannot_start;
use renewals::Renewals;
use site::Site;

mod follow;
mod lock;
mod past;
mod renewals;
mod search;
mod site;
mod status;

/// Most characters of the pattern, and of the servers, in the title.
const LONGEST_TITLE: usize = 200;

/// See [`super::ui()`].
pub(super) async fn ui(
    args: UiArgs,
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut interrupted, mut terminated) = (
        signal(SignalKind::interrupt()).map_err(cannot_start)?,
        signal(SignalKind::terminate()).map_err(cannot_start)?,
    );
    let shown = |text: &dyn std::fmt::Display| cut(&text.to_string(), LONGEST_TITLE);
    let (pattern, connect) = (args.locks.pattern, args.ensemble.connect.clone());
    let title = format!("Locks {} of {}", shown(&pattern), shown(&connect));
    let served = async {
        let ensemble = Ensemble::connect(args.ensemble.clone()).await?;
        check(&ensemble, &pattern).await?;
        let renewals = Renewals::default();
        let told = renewals.clone();
        let page = Page::bind(
            args.port,
            title,
            words(),
            Some(std::sync::Arc::new(move |number| told.told(number))),
        )
        .await?;
        print(&page.greeting())?;
        let site = Site::new(page.board(), renewals, connect.to_string());
        tokio::select! {
            followed = follow::follow(&site, &pattern, &args.ensemble, ensemble) => followed,
            () = page.serve() => Ok(()),
        }
    };
    tokio::select! {
        served = served => served,
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

/// A pattern that is too wide, and a user without the right to anything that matches, are told at once, and not on a page that
/// stays empty.
async fn check(ensemble: &Ensemble, pattern: &Pattern) -> Result<(), Failure> {
    let Found { paths, mut left_out } = find::find(ensemble, pattern).await?;
    for path in paths {
        match queue::read(ensemble, &path, Depth::Holders).await {
            Ok(_) => return Ok(()),
            Err(failure) => left_out.add(ensemble, failure)?,
        }
    }
    left_out.refusal().map_or(Ok(()), Err)
}

fn words() -> Words {
    Words {
        program: "lockkeeper ui",
        who: "Who",
        place: "Node",
        filter: "lock, holder or node",
        past: format!(
            "Former holders, as this page has seen them since {}",
            time_of_day()
        ),
        note: "It has the holds that this page has seen since it was started, and those that lasted then."
            .to_owned(),
    }
}
