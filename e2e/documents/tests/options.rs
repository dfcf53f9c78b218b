//! Options in the documentation are those that the programs know, with their variables, values and defaults.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory, Subcommand};
use lockkeeper_documents::{Table, blocks, files, read, tables};
use lockkeeper_operator::args::OperatorArgs;
use lockkeeper_sidecar::args;

/// The page with all options of `lockkeeper run`.
const PAGE: &str = "docs/run.md";

fn sidecar() -> Command {
    let mut command = args::Command::augment_subcommands(Command::new("lockkeeper"));
    command.build();
    command
}

/// Options of a command with a long name, other than `--help`.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let named = command
        .get_arguments()
        .filter(|option| option.get_long().is_some());
    named.filter(|option| option.get_long() != Some("help"))
}

fn long(option: &Arg) -> &str {
    option.get_long().unwrap_or_default()
}

fn values(option: &Arg) -> Vec<String> {
    let values = option.get_possible_values().into_iter();
    values.map(|value| value.get_name().to_owned()).collect()
}

/// The value without the option; `None` if no value could be written.
fn default(option: &Arg) -> Option<String> {
    let values = option.get_default_values();
    (!values.is_empty() && !matches!(option.get_action(), ArgAction::SetTrue)).then(|| {
        values
            .iter()
            .map(|value| value.to_string_lossy())
            .collect::<Vec<_>>()
            .join(",")
    })
}

/// The first cell of an option's row.
fn written(option: &Arg) -> String {
    let long = long(option);
    let values = values(option);
    let names = option.get_value_names().unwrap_or_default();
    match (option.get_action(), &values[..], names) {
        (ArgAction::SetTrue, ..) => format!("--{long}"),
        (_, [], [name]) => format!("--{long} <{name}>"),
        (_, values, _) => format!("--{long} {}", values.join("|")),
    }
}

/// The entry of the table for the value without the option.
fn absent(option: &Arg) -> String {
    if let Some(default) = default(option) {
        return default;
    }
    if option.is_required_set() {
        return "required".to_owned();
    }
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return "off".to_owned();
    }
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let told = help.split_once("Default: ").map(|(_, told)| told.to_owned());
    told.unwrap_or_else(|| "none".to_owned())
}

fn table(page: &str, heads: &[&str]) -> Table {
    let found = tables(&read(Path::new(page)))
        .into_iter()
        .find(|table| table[0] == heads);
    found.unwrap_or_else(|| panic!("{page} has no table of {heads:?}"))
}

#[test]
fn the_table_of_options_is_that_of_the_parser() {
    let sidecar = sidecar();
    let run = sidecar.find_subcommand("run").expect("a command");
    let table = table(PAGE, &["option", "variable", "default", "meaning"]);
    let expected: Vec<[String; 3]> = options(run)
        .map(|option| {
            let variable = option
                .get_env()
                .expect("a variable")
                .to_string_lossy()
                .into_owned();
            [written(option), variable, absent(option)]
        })
        .collect();
    let told: Vec<_> = table[1..].iter().map(|row| row[..3].to_vec()).collect();
    let missing: Vec<_> = expected
        .iter()
        .filter(|row| !told.iter().any(|told| told[..] == row[..]))
        .collect();
    let unknown: Vec<_> = told
        .iter()
        .filter(|told| !expected.iter().any(|row| told[..] == row[..]))
        .collect();
    assert!(
        expected.len() > 20 && missing.is_empty() && unknown.is_empty(),
        "{PAGE} lacks {missing:#?}\nand `lockkeeper run --help` does not say {unknown:#?}"
    );
}

#[test]
fn where_values_are_explained_all_are_and_the_default_comes_first() {
    let sidecar = sidecar();
    let run = sidecar.find_subcommand("run").expect("a command");
    let page = "docs/architecture.md";
    let table = table(page, &["option", "values, default first", "meaning"]);
    for row in &table[1..] {
        let name = row[0].split_whitespace().next().unwrap_or_default();
        let option = options(run).find(|option| Some(long(option)) == name.strip_prefix("--"));
        let option = option.unwrap_or_else(|| panic!("{page}: there is no option {name}"));
        let told: Vec<_> = row[1].split(", ").map(str::to_owned).collect();
        assert_eq!(
            told.first(),
            default(option).as_ref(),
            "{page}: the default of {name}"
        );
        let known: BTreeSet<_> = values(option).into_iter().collect();
        let told: BTreeSet<_> = told.into_iter().collect();
        assert!(
            known.is_empty() || known == told,
            "{page}: {name} takes {known:?}"
        );
    }
}

/// Names of options in words: `--name` of `--name=value`.
fn named(words: &str) -> impl Iterator<Item = &str> {
    let words = words.split(|letter: char| letter.is_whitespace() || letter == '=');
    words
        .filter(|word| word.len() > 2)
        .filter_map(|word| word.strip_prefix("--"))
}

/// The words behind each call of `program` in a block of commands, without what follows ` -- `.
fn calls<'a>(block: &'a str, program: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = block
        .lines()
        .map(|line| line.trim_start_matches("$ ").trim_start());
    let calls = lines.filter_map(move |line| line.strip_prefix(program)?.strip_prefix(' '));
    calls.map(|call| call.split(" -- ").next().unwrap_or(call))
}

#[test]
fn every_command_of_a_page_has_options_that_the_program_knows() {
    let sidecar = sidecar();
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let (mut known, mut wrong) = (0, Vec::new());
    for file in files().into_iter().filter(is_page) {
        for block in blocks(&read(&file)) {
            let text = block.text.replace("\\\n", " ");
            for call in calls(&text, "lockkeeper") {
                let name = call.split_whitespace().next().unwrap_or_default();
                let Some(command) = sidecar.find_subcommand(name) else {
                    wrong.push(format!("{}: lockkeeper {name}", file.display()));
                    continue;
                };
                for option in named(call) {
                    known += 1;
                    if !options(command).any(|known| long(known) == option) {
                        wrong.push(format!("{}: lockkeeper {name} --{option}", file.display()));
                    }
                }
            }
        }
    }
    assert!(known > 10 && wrong.is_empty(), "{known} known, {wrong:#?}");
}

/// Options of other programs that pages name without the program.
const OF_OTHERS: [&str; 15] = [
    // kubectl
    "cascade",
    "delete-emptydir-data",
    "force",
    "force-conflicts",
    "grace-period",
    // helm
    "no-hooks",
    "reuse-values",
    "set",
    // the node exporter
    "collector.systemd.enable-restarts-metrics",
    "collector.systemd",
    // the API server and its neighbours
    "admission-control-config-file",
    "leader-elect",
    // systemctl
    "kill-whom",
    // cargo
    "features",
    // any
    "help",
];

#[test]
fn every_option_that_a_page_names_alone_is_one_of_a_program() {
    let (sidecar, operator) = (sidecar(), OperatorArgs::command());
    let commands = sidecar.get_subcommands().chain([&operator]);
    let known: BTreeSet<_> = commands.flat_map(options).map(long).chain(OF_OTHERS).collect();
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in files()
        .into_iter()
        .filter(|file| file.starts_with("docs") && file.extension().is_some_and(|kind| kind == "md"))
    {
        let text = read(&file);
        // Between backticks, from the first letter on.
        for words in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|words| words.starts_with("--"))
        {
            for option in named(words.split(" -- ").next().unwrap_or(words)) {
                checked += 1;
                if !known.contains(option) {
                    wrong.push(format!("{}: --{option}", file.display()));
                }
            }
        }
    }
    assert!(checked > 50 && wrong.is_empty(), "{checked} checked, {wrong:#?}");
}
