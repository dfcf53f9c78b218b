//! The commands of a page, with the output that the page shows for each, and the comparison with what they print.

use std::path::Path;

use crate::content::blocks;
use crate::repository::read;
use crate::seen::{Names, matches};

/// A command of a page, and the output that the page shows for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// With all its lines.
    pub command: String,
    /// Line by line; `…` stands for any lines.
    pub output: Vec<String>,
}

/// All commands of a page that have an output: those of its blocks `console`.
///
/// # Panics
/// When the page cannot be read, or such a block begins with no command.
pub fn steps(page: &str) -> Vec<Step> {
    let text = read(Path::new(page));
    blocks(&text)
        .into_iter()
        .filter(|block| block.language == "console")
        .flat_map(|block| parse(&block.text))
        .collect()
}

/// Has each command of a page executed, and compares what it prints with the page.
///
/// # Panics
/// When the page shows something else for a command, at the end of all commands.
pub fn replay(page: &str, mut run: impl FnMut(&str) -> Vec<String>) {
    let (mut shown, mut seen) = (Names::default(), Names::default());
    let mut wrong = Vec::new();
    for Step { command, output } in steps(page) {
        println!("$ {command}");
        let answer = run(&command);
        println!("{}", answer.join("\n"));
        let expected: Vec<String> = output.iter().map(|line| shown.normal(line)).collect();
        let got: Vec<String> = answer.iter().map(|line| seen.normal(line)).collect();
        if !matches(&expected, &got) {
            wrong.push(format!(
                "`{command}` shows\n{}\nand the page has\n{}",
                got.join("\n"),
                expected.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{page}: {}", wrong.join("\n\n"));
}

/// What a command needs after one of its lines.
enum Rest {
    Nothing,
    /// The line ends with a backslash.
    Line,
    /// The text that the command reads, up to this line (`<<END`).
    Text(String),
}

fn parse(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut rest = Rest::Nothing;
    for line in block.lines() {
        match (&rest, line.strip_prefix("$ "), steps.last_mut()) {
            (Rest::Nothing, Some(command), _) => {
                steps.push(Step {
                    command: command.to_owned(),
                    output: Vec::new(),
                });
                rest = after(line);
            }
            (Rest::Nothing, None, Some(step)) => step.output.push(line.to_owned()),
            (_, _, Some(step)) => {
                step.command.push('\n');
                step.command.push_str(line);
                rest = match rest {
                    Rest::Text(end) if line != end => Rest::Text(end),
                    Rest::Text(_) => Rest::Nothing,
                    Rest::Nothing | Rest::Line => after(line),
                };
            }
            (_, _, None) => panic!("a block begins with no command: {line}"),
        }
    }
    steps
}

/// What a command needs after this line of it.
fn after(line: &str) -> Rest {
    let word = |text: &str| -> String {
        let is_part = |letter: &char| letter.is_ascii_alphanumeric();
        text.trim_start_matches('\'')
            .chars()
            .take_while(is_part)
            .collect()
    };
    match line.split_once("<<") {
        Some((_, text)) => Rest::Text(word(text)),
        None if line.ends_with('\\') => Rest::Line,
        None => Rest::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str, output: &[&str]) -> Step {
        Step {
            command: command.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn a_command_goes_on_after_a_backslash_and_what_follows_is_its_output() {
        assert_eq!(
            parse("$ A=1\n$ helm install \\\n    --wait\ndone\n\nat last\n"),
            [
                step("A=1", &[]),
                step("helm install \\\n    --wait", &["done", "", "at last"]),
            ]
        );
    }

    #[test]
    fn a_command_goes_on_up_to_the_end_of_the_text_that_it_reads() {
        assert_eq!(
            parse("$ cat <<'END'; true\n$ not a command \\\nEND\n$ not a command \\\n"),
            [
                step("cat <<'END'; true\n$ not a command \\\nEND", &[]),
                step("not a command \\", &[]),
            ]
        );
    }
}
