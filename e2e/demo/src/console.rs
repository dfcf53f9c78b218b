//! The output for the user: sentences, and below them, in a terminal, the growing timeline.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use lockkeeper_judge::timeline::Timeline;
use lockkeeper_judge::timeline::terminal::Screen;
use lockkeeper_lock::BootInstant;

/// Longer lines are hard to read.
const WIDEST: usize = 110;
/// A narrower terminal has no room for a timeline.
const NARROWEST: usize = 64;
/// How much of the past a live frame shows.
const WINDOW: Duration = Duration::from_secs(20);
/// Time between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// Standard output.
#[derive(Debug)]
pub(crate) struct Console {
    terminal: bool,
    colour: bool,
    /// The frame below the sentences; empty when there is none.
    frame: String,
    drawn: BootInstant,
}

impl Console {
    /// Frames and colours only for a terminal; no colours when the user has set `NO_COLOR`.
    pub(crate) fn new() -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            terminal,
            colour: terminal && std::env::var_os("NO_COLOR").is_none(),
            frame: String::new(),
            drawn: BootInstant::from_nanos(0),
        }
    }

    /// The title of the demonstration, or of a part.
    pub(crate) fn title(&mut self, text: &str) -> io::Result<()> {
        let lines = wrap(text, self.width(), "");
        let lines = self.paint(&lines, "1");
        self.print(&format!("\n{lines}\n"))
    }

    /// A sentence.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        let lines = wrap(text, self.width(), "");
        self.print(&format!("{lines}\n"))
    }

    /// An event, `at` this long after the start.
    pub(crate) fn fact(&mut self, at: Duration, text: &str) -> io::Result<()> {
        let time = format!("{:6.1} s  ", at.as_secs_f64());
        let indent = " ".repeat(time.len());
        let lines = wrap(text, self.width() - time.len(), &indent);
        let time = self.paint(&time, "2");
        self.print(&format!("{time}{lines}\n"))
    }

    /// Text that is already formatted.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        let rewind = if frame.is_empty() {
            String::new()
        } else {
            Screen::rewind(&frame)
        };
        write(&format!("{rewind}{text}{frame}"))?;
        self.frame = frame;
        Ok(())
    }

    /// Runs a step that may take long, and prints how long it took.
    pub(crate) fn step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        write(&format!("{what} ... "))?;
        let began = BootInstant::now();
        let result = work();
        let outcome = match result {
            Ok(_) => format!("{:.1} s", (BootInstant::now() - began).as_secs_f64()),
            Err(_) => "failed".to_owned(),
        };
        write(&format!("{outcome}\n"))?;
        result
    }

    /// Draws the timeline below the sentences, if the next frame is due.
    pub(crate) fn show(&mut self, timeline: &Timeline) -> io::Result<()> {
        let now = BootInstant::now();
        if !self.terminal || terminal_width() < NARROWEST || now - self.drawn < FRAME {
            return Ok(());
        }
        self.drawn = now;
        let since = now - timeline.start();
        let screen = self.screen(since.clamp(Duration::from_secs(5), WINDOW));
        let frame = format!("\n{}", screen.frame(timeline, now));
        let rewind = if self.frame.is_empty() {
            String::new()
        } else {
            Screen::rewind(&self.frame)
        };
        write(&format!("{rewind}{frame}"))?;
        self.frame = frame;
        Ok(())
    }

    /// Removes the timeline.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        if frame.is_empty() {
            Ok(())
        } else {
            write(&Screen::rewind(&frame))
        }
    }

    /// A screen as wide as this console.
    pub(crate) fn screen(&self, window: Duration) -> Screen {
        Screen {
            width: self.width(),
            window,
            colour: self.colour,
        }
    }

    fn width(&self) -> usize {
        if self.terminal {
            terminal_width().clamp(40, WIDEST)
        } else {
            100
        }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// One write, so that a terminal never shows half of it.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col))
}

/// Breaks lines at spaces; all but the first begin with `indent`, which does not count.
fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            wrapped.push('\n');
            wrapped.push_str(indent);
            used = 0;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_broken_at_spaces_and_indented() {
        assert_eq!(wrap("one two three", 7, "  "), "one two\n  three");
        assert_eq!(wrap("one two three", 8, ""), "one two\nthree");
        assert_eq!(wrap("unbreakable x", 3, ""), "unbreakable\nx");
    }
}
