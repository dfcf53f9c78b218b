//! The list of rules fits the code, the tests and the pages. `make rules` shows that the tests fail without
//! the rules.

use std::collections::HashSet;
use std::path::Path;

use lockkeeper_rules::list;
use lockkeeper_rules::page::page;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

#[test]
fn each_rule_is_promised_on_a_page_kept_by_one_text_in_the_code_and_missed_by_a_test_that_is_there() {
    let mut problems = Vec::new();
    for rule in list::read(root()).unwrap().iter().flat_map(|area| &area.rules) {
        if let Err(error) = rule.check(root()) {
            problems.push(format!("{}: {error:#}", rule.rule));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn no_rule_is_in_the_list_twice() {
    let areas = list::read(root()).unwrap();
    let rules = areas.iter().flat_map(|area| &area.rules);
    let mut seen = HashSet::new();
    for rule in rules {
        assert!(seen.insert(&rule.rule), "{}", rule.rule);
    }
}

#[test]
fn the_page_is_that_of_the_list() {
    let written = std::fs::read_to_string(root().join("docs/rules.md")).unwrap();
    assert!(
        written == page(&list::read(root()).unwrap()),
        "docs/rules.md is not that of e2e/rules/list: make rules ARGS=--markdown > docs/rules.md"
    );
}
