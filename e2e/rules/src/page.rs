//! The page of the documentation with the list.

use std::fmt::Write;

use crate::list::Area;

/// The text before the tables.
const INTRODUCTION: &str = include_str!("page.md");

/// The whole page, `docs/rules.md`.
pub fn page(areas: &[Area]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for area in areas {
        let _ = write!(
            page,
            "\n## {}\n\n| rule | the test that misses it |\n|---|---|\n",
            area.heading
        );
        for rule in &area.rules {
            let link = rule.promised.trim_start_matches("docs/");
            let sentence = rule.rule.trim_end_matches('.').replace('|', "\\|");
            let test = &rule.test;
            let target = if test.target == "lib" { "" } else { &test.target };
            let place = format!("{} {target}", test.package.trim_start_matches("lockkeeper-"));
            let _ = writeln!(
                page,
                "| [{sentence}]({link}) | {}: `{}` |",
                place.trim(),
                test.name
            );
        }
    }
    page
}
