//! A proxy to the API server and one to the ensemble, which count an operator's writes about one namespace. A
//! test says after which write they stop, which answer gets lost, or which write is delayed.

use std::collections::HashMap;
use std::sync::Arc;

use lockkeeper_product::beside::Environment;
use tokio::sync::watch;
use tokio::task::AbortHandle;

mod api;
mod ensemble;

/// The fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    /// It goes through, and its answer and the connection get lost.
    LosesItsAnswer,
    /// It waits until the rule changes.
    Waits,
}

/// One write about a namespace: how often it came before, and its description without the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub nth: usize,
    pub what: String,
}

impl Write {
    fn of(namespace: &str, before: &[String], what: &str) -> Self {
        Self {
            nth: before.iter().filter(|write| *write == what).count(),
            what: what.replace(namespace, "NAMESPACE"),
        }
    }

    /// Whether each life of a lock has it. How often the operator writes a role, a status or an event, and
    /// how often it tries a deletion, depends on timing; and events have random names.
    pub fn always_comes(&self) -> bool {
        self.nth == 0 && !self.what.contains("/events/")
    }
}

/// The rule for writes.
#[derive(Clone, Debug, Default)]
enum Rule {
    /// Everything goes through.
    #[default]
    Open,
    /// Only this many go through.
    Stop { after: usize },
    /// The answer of this one gets lost.
    Lose { which: Write },
    /// The writes whose description contains `what` wait.
    Hold { what: &'static str },
}

/// The writes about one namespace.
#[derive(Debug, Default)]
struct Line {
    rule: Rule,
    writes: Vec<String>,
    /// The requests to the API server with its answers.
    answers: Vec<String>,
    /// Whether the rule has applied to a write.
    is_met: bool,
}

/// By namespace; writes about other namespaces go through.
type State = HashMap<String, Line>;

/// The API server's watches that are late, by a part of their paths: what they tell waits.
type Late = watch::Sender<Option<&'static str>>;

/// The proxies of one operator.
pub struct Gate {
    state: Arc<watch::Sender<State>>,
    late: Arc<Late>,
    tasks: [AbortHandle; 2],
    /// The address of the API server for the operator.
    pub server: String,
    /// The connect string of the ensemble for it.
    pub connect: String,
}

impl Gate {
    /// Open to everything.
    pub async fn new(environment: &Environment) -> Self {
        let state = Arc::<watch::Sender<State>>::default();
        let late = Arc::<Late>::default();
        let (api, server) = api::serve(environment, Arc::clone(&state), Arc::clone(&late)).await;
        let (ensemble, connect) = ensemble::serve(environment, Arc::clone(&state)).await;
        Self {
            state,
            late,
            tasks: [api, ensemble],
            server,
            connect,
        }
    }

    /// Lets `after` more writes about a namespace through.
    pub fn stop(&self, namespace: &str, after: usize) {
        self.set(namespace, Rule::Stop { after });
    }

    /// Loses the answer of a write about a namespace.
    pub fn lose(&self, namespace: &str, which: Write) {
        self.set(namespace, Rule::Lose { which });
    }

    /// Lets the writes wait whose description, as in [`Gate::writes`], contains this.
    pub fn hold(&self, namespace: &str, what: &'static str) {
        self.set(namespace, Rule::Hold { what });
    }

    /// From now on the operator does not hear of these objects of all namespaces that are made or changed: `secrets?`.
    pub fn hold_watch(&self, what: &'static str) {
        self.late.send_replace(Some(what));
    }

    /// Lets it hear of all that it did not.
    pub fn open_watches(&self) {
        self.late.send_replace(None);
    }

    /// Lets everything through, also waiting writes.
    pub fn open(&self, namespace: &str) {
        self.set(namespace, Rule::Open);
    }

    /// Completes when the rule has applied to a write.
    pub async fn met(&self, namespace: &str) {
        let mut state = self.state.subscribe();
        let is_met = |state: &State| state.get(namespace).is_some_and(|line| line.is_met);
        state.wait_for(is_met).await.expect("we have the sender");
    }

    pub fn is_met(&self, namespace: &str) -> bool {
        self.state.borrow().get(namespace).is_some_and(|line| line.is_met)
    }

    /// The writes that went through since the last rule, such as `PATCH /apis/…`.
    pub fn writes(&self, namespace: &str) -> Vec<String> {
        let state = self.state.borrow();
        state
            .get(namespace)
            .map(|line| line.writes.clone())
            .unwrap_or_default()
    }

    /// [`Gate::writes`], as arguments for [`Gate::lose`].
    pub fn each_write(&self, namespace: &str) -> Vec<Write> {
        let writes = self.writes(namespace);
        (0..writes.len())
            .map(|at| Write::of(namespace, &writes[..at], &writes[at]))
            .collect()
    }

    /// The answers of the API server since the last rule, such as `200 PATCH /apis/…`.
    pub fn answers(&self, namespace: &str) -> Vec<String> {
        let state = self.state.borrow();
        state
            .get(namespace)
            .map(|line| line.answers.clone())
            .unwrap_or_default()
    }

    fn set(&self, namespace: &str, rule: Rule) {
        let line = Line {
            rule,
            ..Line::default()
        };
        self.state
            .send_modify(|state| drop(state.insert(namespace.to_owned(), line)));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Waits until a write may go through.
async fn admit(state: &watch::Sender<State>, path: &str, what: &str) -> Fate {
    loop {
        let mut seen = state.subscribe();
        let mut fate = Fate::Passes;
        state.send_if_modified(|state| {
            let Some((namespace, line)) = line_of(state, path) else {
                return false;
            };
            let (what, number) = (format!("{what} {path}"), line.writes.len());
            fate = match &line.rule {
                Rule::Stop { after } if number >= *after => Fate::Waits,
                Rule::Lose { which } if Write::of(namespace, &line.writes, &what) == *which => {
                    Fate::LosesItsAnswer
                }
                Rule::Hold { what: held } if what.contains(*held) => Fate::Waits,
                _ => Fate::Passes,
            };
            if fate != Fate::Waits {
                line.writes.push(what);
            }
            let is_news = fate != Fate::Passes && !line.is_met;
            line.is_met |= is_news;
            is_news
        });
        if fate != Fate::Waits {
            return fate;
        }
        if seen.changed().await.is_err() {
            // The gate is gone, and so is the operator.
            std::future::pending::<()>().await;
        }
    }
}

fn line_of<'a, 'b>(state: &'a mut State, path: &'b str) -> Option<(&'b str, &'a mut Line)> {
    let namespace = path.split(['/', '?']).find(|part| state.contains_key(*part))?;
    Some((namespace, state.get_mut(namespace)?))
}
