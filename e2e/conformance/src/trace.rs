//! A trace: a record in the words of the specification `lock/spec/TraceTakeover.tla`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::record::{Entry, Micros, What};

/// A contender: its place in the order of the queue, from 1 on.
pub(crate) type Contender = usize;

/// What an event is, as the specification names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A renewal was sent, or the creation.
    Sent,
    /// A takeover was sent.
    Taking,
    /// A write was acknowledged.
    Acked,
    /// A write failed, since a node is gone or has another version.
    Refused,
    /// An answer showed a version of a contender that may be taken over.
    Read,
    /// An answer showed a version of a contender that states no lease duration: it is left alone.
    Shown,
    /// A contender was found to be gone.
    Gone,
    /// The application may run until a moment.
    Granted,
    Stopped,
    /// The deletion of the own node was sent.
    Releasing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since the first event.
    pub at: Micros,
    pub kind: Kind,
    /// Who did it, or was told.
    pub who: Contender,
    /// Whom it is about: of [`Kind::Taking`], [`Kind::Refused`], [`Kind::Read`], [`Kind::Shown`] and [`Kind::Gone`];
    /// else 0.
    pub whom: Contender,
    /// The version, of [`Kind::Taking`], [`Kind::Read`] and [`Kind::Shown`]. When the write was sent, of
    /// [`Kind::Acked`] and [`Kind::Refused`]. Until when, of [`Kind::Granted`]. Else 0.
    pub number: i64,
}

/// What happened to one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In their order.
    pub events: Vec<Event>,
    pub contenders: usize,
    pub losses: usize,
}

impl Kind {
    /// Its name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Taking => "taking",
            Self::Acked => "acked",
            Self::Refused => "refused",
            Self::Read => "read",
            Self::Shown => "shown",
            Self::Gone => "gone",
            Self::Granted => "granted",
            Self::Stopped => "stopped",
            Self::Releasing => "releasing",
        }
    }
}

impl Trace {
    /// Translates a record whose contenders state the lease duration `lease`, or none.
    ///
    /// # Errors
    /// When the record has a contender that none of its processes created, or that states another lease duration.
    pub fn of(record: &[Entry], lease: Duration) -> anyhow::Result<Self> {
        let mut translation = Translation::new(record)?;
        for entry in record {
            translation.take(entry, lease)?;
        }
        Ok(Self {
            contenders: translation.order.len(),
            losses: record.iter().filter(|entry| entry.what == What::Lost).count(),
            events: translation.events,
        })
    }

    /// How many takeovers were acknowledged.
    pub fn takeovers(&self) -> usize {
        let is_takeover = |event: &&Event| self.takeover_of(event).is_some();
        self.events.iter().filter(is_takeover).count()
    }

    /// The index of the takeover that this event acknowledges.
    pub(crate) fn takeover_of(&self, acknowledged: &Event) -> Option<usize> {
        let is_it = |event: &Event| {
            event.kind == Kind::Taking
                && event.who == acknowledged.who
                && i64::try_from(event.at) == Ok(acknowledged.number)
        };
        match acknowledged.kind {
            Kind::Acked => self.events.iter().position(is_it),
            _ => None,
        }
    }

    pub fn holders(&self) -> usize {
        let granted = self.events.iter().filter(|event| event.kind == Kind::Granted);
        granted.map(|event| event.who).collect::<BTreeSet<_>>().len()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, event) in self.events.iter().enumerate() {
            let Event {
                at,
                kind,
                who,
                whom,
                number,
            } = event;
            writeln!(
                f,
                "{:>5} {at:>9} {:<9} {who} {whom} {number}",
                index + 1,
                kind.name()
            )?;
        }
        Ok(())
    }
}

/// A record on its way to a trace.
struct Translation<'a> {
    start: Micros,
    /// Names in the order of their numbers: the order of the queue.
    order: Vec<&'a str>,
    /// The moment of the sending that may have created a contender.
    created: HashMap<Micros, Contender>,
    /// The contender that each process sent the creation of last. It may wait behind its own last one.
    newest: HashMap<usize, Contender>,
    /// The same, once its process knows that it exists.
    current: HashMap<usize, Contender>,
    /// Whom each takeover was to replace, by the moment of its sending.
    fronts: HashMap<Micros, Contender>,
    told: BTreeSet<(Contender, Contender)>,
    events: Vec<Event>,
}

/// The number of a contender's name, which the lock root gave to it.
fn number(name: &str) -> anyhow::Result<u32> {
    let digits = name.len().checked_sub(10).and_then(|start| name.get(start..));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.with_context(|| format!("the contender {name} has no number of ten digits"))
}

fn names(what: &What) -> Vec<&str> {
    match what {
        What::Created { name, .. }
        | What::Renewing(name)
        | What::Shown { name, .. }
        | What::Missing(name)
        | What::Releasing(name) => vec![name],
        What::Taking { name, of, .. } => vec![name, of],
        What::Listed(names) => names.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

impl<'a> Translation<'a> {
    fn new(record: &'a [Entry]) -> anyhow::Result<Self> {
        let mut numbered = record
            .iter()
            .flat_map(|entry| names(&entry.what))
            .map(|name| Ok((number(name)?, name)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        numbered.sort_unstable();
        numbered.dedup();
        let order: Vec<_> = numbered.into_iter().map(|(_, name)| name).collect();
        let mut created = HashMap::new();
        for (index, name) in order.iter().enumerate() {
            let mut sent = None;
            for entry in record {
                match &entry.what {
                    // If it was answered, that one; else the last one: those before it were refused.
                    What::Creating(begin) if name.starts_with(begin.as_str()) => sent = Some(entry.at),
                    What::Created {
                        sent: answered,
                        name: it,
                    } if it == name => {
                        sent = Some(*answered);
                        break;
                    }
                    _ => {}
                }
            }
            let sent = sent.with_context(|| format!("nobody in the record created {name}"))?;
            created.insert(sent, index + 1);
        }
        Ok(Self {
            start: record.first().map_or(0, |entry| entry.at),
            order,
            created,
            newest: HashMap::new(),
            current: HashMap::new(),
            fronts: HashMap::new(),
            told: BTreeSet::new(),
            events: Vec::new(),
        })
    }

    fn contender(&self, name: &str) -> anyhow::Result<Contender> {
        let place = self.order.iter().position(|it| *it == name);
        Ok(place.with_context(|| format!("the contender {name} is unknown"))? + 1)
    }

    fn add(&mut self, at: Micros, kind: Kind, who: Contender, whom: Contender, number: i64) {
        let at = at - self.start;
        self.events.push(Event {
            at,
            kind,
            who,
            whom,
            number,
        });
    }

    fn since_start(&self, moment: Micros) -> i64 {
        moment.cast_signed() - self.start.cast_signed()
    }

    fn gone(&mut self, at: Micros, who: Contender, whom: Contender) {
        if self.told.insert((who, whom)) {
            self.add(at, Kind::Gone, who, whom, 0);
        }
    }

    fn take(&mut self, entry: &Entry, lease: Duration) -> anyhow::Result<()> {
        let Entry { at, process, what } = entry;
        let (at, process) = (*at, *process);
        match what {
            What::Creating(_) => {
                self.current.remove(&process);
                if let Some(&who) = self.created.get(&at) {
                    self.newest.insert(process, who);
                    self.add(at, Kind::Sent, who, 0, 0);
                }
            }
            What::Created { sent, name } => {
                let who = self.contender(name)?;
                self.current.insert(process, who);
                self.add(at, Kind::Acked, who, 0, self.since_start(*sent));
            }
            What::Renewing(name) => {
                let who = self.contender(name)?;
                self.add(at, Kind::Sent, who, 0, 0);
            }
            What::Taking { name, of, version } => {
                let (who, whom) = (self.contender(name)?, self.contender(of)?);
                self.fronts.insert(at, whom);
                self.add(at, Kind::Taking, who, whom, (*version).into());
            }
            What::Acknowledged(name, sent) => {
                let who = self.contender(name)?;
                self.add(at, Kind::Acked, who, 0, self.since_start(*sent));
            }
            What::Refused(name, sent) => {
                let who = self.contender(name)?;
                let whom = self.fronts.get(sent).copied().unwrap_or(0);
                self.add(at, Kind::Refused, who, whom, self.since_start(*sent));
            }
            What::Shown {
                name,
                version,
                lease: stated,
            } => {
                let whom = self.contender(name)?;
                if self.newest.get(&process) == Some(&whom) {
                    self.current.insert(process, whom);
                } else if let Some(&who) = self.current.get(&process) {
                    ensure!(
                        stated.is_none_or(|stated| stated == lease),
                        "{name} states a lease duration of {stated:?}, and not {lease:?}"
                    );
                    let kind = stated.map_or(Kind::Shown, |_| Kind::Read);
                    self.add(at, kind, who, whom, (*version).into());
                }
            }
            What::Missing(name) => {
                let whom = self.contender(name)?;
                let who = self.current.get(&process).copied().unwrap_or(whom);
                self.gone(at, who, whom);
            }
            What::Listed(names) => {
                let Some(&who) = self.current.get(&process) else {
                    return Ok(());
                };
                for whom in 1..=who {
                    if !names.iter().any(|name| name == self.order[whom - 1]) {
                        self.gone(at, who, whom);
                    }
                }
            }
            What::Releasing(name) => {
                let who = self.contender(name)?;
                self.add(at, Kind::Releasing, who, 0, 0);
            }
            What::Granted(name, until) => {
                let who = self.contender(name)?;
                self.add(at, Kind::Granted, who, 0, self.since_start(*until));
            }
            What::Stopped(name) => {
                let who = self.contender(name)?;
                self.add(at, Kind::Stopped, who, 0, 0);
            }
            What::Lost => {}
        }
        Ok(())
    }
}
