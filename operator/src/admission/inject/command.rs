//! The command of a wrapped container.

use serde_json::{Map, Value, json};

use super::context::{ImageConfig, ImageUnknown};
use super::names;

/// What stands before the application's own command.
pub(crate) const GUARD: [&str; 3] = [names::BINARY, "guard", "--"];

/// Puts the guard before the command of `container`, which comes from `image` where the container has
/// none.
///
/// A guard that another injector has moved away from the first place is brought back there: only the
/// first process of a container can be sure to end all others.
///
/// # Errors
/// When there is no command: why not.
pub(crate) fn wrap(
    container: &mut Map<String, Value>,
    image: Result<&ImageConfig, &ImageUnknown>,
) -> Result<(), String> {
    let mut command = words(container, "command");
    let mut args = words(container, "args");
    if command.is_empty() {
        let image = image.map_err(ToString::to_string)?;
        // As Kubernetes does it: arguments in the pod replace CMD and leave ENTRYPOINT.
        command = image.entrypoint.iter().map(|word| escape(word)).collect();
        if args.is_empty() {
            args = image.cmd.iter().map(|word| escape(word)).collect();
        }
        if command.is_empty() && args.is_empty() {
            return Err("its image has neither ENTRYPOINT nor CMD".to_owned());
        }
    }
    without_guard(&mut command);
    without_guard(&mut args);
    command.splice(0..0, GUARD.map(str::to_owned));
    container.insert("command".to_owned(), json!(command));
    if !args.is_empty() {
        container.insert("args".to_owned(), json!(args));
    }
    Ok(())
}

fn words(container: &Map<String, Value>, field: &str) -> Vec<String> {
    let words = container
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    words
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

/// Also a guard that is left when another one is taken out of it. One pass: a client decides how many words there are.
fn without_guard(words: &mut Vec<String>) {
    let mut rest: Vec<String> = Vec::with_capacity(words.len());
    for word in words.drain(..) {
        rest.push(word);
        let is_guard = |last: &[String; GUARD.len()]| last.each_ref().map(String::as_str) == GUARD;
        if rest.last_chunk().is_some_and(is_guard) {
            rest.truncate(rest.len() - GUARD.len());
        }
    }
    *words = rest;
}

/// The kubelet expands `$(NAME)` in a pod's command and never in an image's.
pub(crate) fn escape(word: &str) -> String {
    word.replace("$(", "$$(")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_guard_is_left_in_a_command_also_none_that_stood_around_another_one() {
        let [binary, guard, end] = GUARD;
        for (given, rest) in [
            (vec![binary, guard, end, "/app"], vec!["/app"]),
            (vec!["/vault", binary, guard, end, "/app"], vec!["/vault", "/app"]),
            (vec![binary, binary, guard, end, guard, end, "/app"], vec!["/app"]),
            (vec![binary, guard, "/app"], vec![binary, guard, "/app"]),
        ] {
            let mut words: Vec<_> = given.iter().copied().map(str::to_owned).collect();
            without_guard(&mut words);
            assert_eq!(words, rest, "{given:?}");
        }
    }
}
