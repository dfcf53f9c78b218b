//! What a shell offers for the word at the cursor: kubectl asks the program `kubectl_complete-lockkeeper` on the path, which
//! is this one under another name.
//!
//! The answer is that of cobra's hidden command `__complete`: a candidate a line, with a tab before its description, and a
//! directive at the end.

use std::ffi::OsStr;
use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use lockkeeper_crds::{DistributedLock, keys};
use lockkeeper_daemon::table::plain;
use serde::de::DeserializeOwned;

use crate::output::Output;
use crate::plugin::{Plugin, Target};

/// By this name kubectl looks for what completes `kubectl lockkeeper`.
const NAME: &str = "kubectl_complete-lockkeeper";

/// Cobra's `ShellCompDirectiveNoFileComp`: these are all candidates, and files are none.
const NO_FILES: &str = ":4\n";

/// Cobra's `ShellCompDirectiveDefault`: the shell offers files.
const FILES: &str = ":0\n";

/// Who waits has pressed a key.
const PATIENCE: Duration = Duration::from_secs(2);

/// Names that are offered at most.
const MOST: u32 = 500;

/// Whether this program was started to complete words.
pub fn is_wanted(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()) == Some(OsStr::new(NAME))
}

/// The candidates for the last of these words. None where it is not known what could be there, or the API server does not
/// answer.
pub async fn complete(words: &[String]) -> String {
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let candidates = match wanted(last, before) {
        Wanted::These(candidates) => candidates,
        Wanted::Files => return FILES.to_owned(),
        Wanted::Locks => names::<DistributedLock>(before, "").await,
        Wanted::Pods => names::<Pod>(before, keys::LOCK).await,
    };
    let mut text = String::new();
    for (word, about) in candidates.iter().filter(|(word, _)| word.starts_with(last)) {
        // Writing to a string does not fail.
        let _ = match about.as_str() {
            "" => writeln!(text, "{}", plain(word)),
            about => writeln!(text, "{}\t{about}", plain(word)),
        };
    }
    text + NO_FILES
}

/// A word that can be there, and what it means.
type Candidate = (String, String);

/// What can be at the place of a word.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    These(Vec<Candidate>),
    Files,
    Locks,
    /// Those that stand behind locks.
    Pods,
}

/// What can follow these words, or complete `last` after them. Pure.
fn wanted(last: &str, before: &[String]) -> Wanted {
    let root = Plugin::command();
    let mut command = &root;
    let mut operands = 0;
    let mut option = None;
    for word in before {
        option = match option {
            // The value of the option before.
            Some(_) => None,
            None if word.starts_with('-') => takes_value(&root, command, word),
            None => {
                match command.find_subcommand(word) {
                    Some(found) => command = found,
                    None => operands += 1,
                }
                None
            }
        };
    }
    match (option.as_deref(), command.get_name()) {
        (Some("output"), _) => Wanted::These(
            Output::value_variants()
                .iter()
                .filter_map(|format| Some((format.to_possible_value()?.get_name().to_owned(), String::new())))
                .collect(),
        ),
        (Some("kubeconfig"), _) => Wanted::Files,
        (Some("to"), _) => Wanted::Pods,
        (Some(_), _) => Wanted::These(Vec::new()),
        (None, _) if last.starts_with('-') => Wanted::These(options(&root, command)),
        (None, _) if command.has_subcommands() => Wanted::These(
            command
                .get_subcommands()
                .map(|one| (one.get_name().to_owned(), about(one.get_about())))
                .collect(),
        ),
        (None, _) if operands > 0 => Wanted::These(Vec::new()),
        (None, "status" | "history" | "handoff") => Wanted::Locks,
        (None, "why" | "abandon-survivors") => Wanted::Pods,
        (None, _) => Wanted::These(Vec::new()),
    }
}

fn arguments<'a>(root: &'a clap::Command, command: &'a clap::Command) -> impl Iterator<Item = &'a clap::Arg> {
    let globals = root.get_arguments().filter(|one| one.is_global_set());
    command
        .get_arguments()
        .filter(|one| !one.is_global_set())
        .chain(globals)
}

/// The option that this word is, if its value is the next word.
fn takes_value(root: &clap::Command, command: &clap::Command, word: &str) -> Option<String> {
    let mut all = arguments(root, command);
    let found = all.find(|one| {
        let long = one
            .get_long()
            .is_some_and(|long| word.strip_prefix("--") == Some(long));
        long || one
            .get_short()
            .is_some_and(|short| word.strip_prefix('-') == Some(short.to_string().as_str()))
    })?;
    found
        .get_action()
        .takes_values()
        .then(|| found.get_id().to_string())
}

fn options(root: &clap::Command, command: &clap::Command) -> Vec<Candidate> {
    arguments(root, command)
        .filter_map(|one| Some((format!("--{}", one.get_long()?), about(one.get_help()))))
        .collect()
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The names of all objects of a kind with this label, in the namespace that the words before name.
async fn names<K>(before: &[String], label: &str) -> Vec<Candidate>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let asked = async {
        let (client, namespace) = target(before).connect().await.ok()?;
        let parameters = ListParams::default().labels(label).limit(MOST);
        let objects = Api::<K>::namespaced(client, &namespace)
            .list_metadata(&parameters)
            .await
            .ok()?;
        let names = objects.iter().map(|one| (one.name_any(), String::new()));
        Some(names.collect())
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// Where to ask, by the options among these words.
fn target(before: &[String]) -> Target {
    let value = |names: &[&str]| {
        let mut words = before.iter();
        words
            .find_map(|word| match word.split_once('=') {
                Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
                _ => None,
            })
            .or_else(|| {
                let at = before.iter().position(|word| names.contains(&word.as_str()))?;
                before.get(at + 1).cloned()
            })
    };
    Target {
        namespace: value(&["-n", "--namespace"]),
        context: value(&["--context"]),
        kubeconfig: value(&["--kubeconfig"]).map(PathBuf::from),
        output: Output::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Wanted {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        wanted(last, before)
    }

    fn these(text: &str) -> Vec<String> {
        match of(text) {
            Wanted::These(candidates) => candidates.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_comes_first_and_then_what_it_is_about() {
        assert!(these("").contains(&"history".to_owned()));
        assert!(these("-n shop hi").contains(&"history".to_owned()));
        assert_eq!(of("status "), Wanted::Locks);
        assert_eq!(of("handoff rep"), Wanted::Locks);
        assert_eq!(of("why -n shop "), Wanted::Pods);
        assert_eq!(of("handoff report --to "), Wanted::Pods);
        assert!(these("status report ").is_empty());
        assert!(these("list ").is_empty());
    }

    #[test]
    fn options_and_formats_are_those_of_the_command() {
        let of_list = these("list --");
        assert!(of_list.contains(&"--watch".to_owned()) && of_list.contains(&"--namespace".to_owned()));
        assert!(!these("status --").contains(&"--watch".to_owned()));
        assert_eq!(these("list -o "), ["table", "wide", "json", "yaml", "name"]);
        assert!(these("list --namespace ").is_empty());
        assert_eq!(of("list --kubeconfig ~/"), Wanted::Files);
    }

    #[test]
    fn the_words_before_say_where_to_ask() {
        let words = ["status", "--namespace=shop", "--context", "other"].map(str::to_owned);
        let target = target(&words);
        assert_eq!(target.namespace.as_deref(), Some("shop"));
        assert_eq!(target.context.as_deref(), Some("other"));
    }

    #[test]
    fn the_program_completes_words_under_the_name_that_kubectl_looks_for() {
        assert!(is_wanted(Some(OsStr::new(
            "/usr/local/bin/kubectl_complete-lockkeeper"
        ))));
        assert!(!is_wanted(Some(OsStr::new("kubectl-lockkeeper"))));
        assert!(!is_wanted(None));
    }
}
