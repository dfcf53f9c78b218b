//! The colours of all pictures, by name, for light and for dark pages.
//!
//! A picture names its colours, as in `fill="{{ink}}"`. Each picture is written twice, with the colours of each [`Theme`].
//! A page then shows the file that suits it, by `<picture>`. A media query inside of the SVG would follow the reader's
//! system instead, whose theme may be another one than the page's.

#![warn(unreachable_pub)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What a page looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    Light,
    Dark,
}

/// A colour, named after what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    pub name: &'static str,
    pub light: &'static str,
    pub dark: &'static str,
}

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

/// All colours. Each role has one for areas with text of the colour `on-solid`, one for text and lines (`-ink`), and one
/// for the area of a box (`-soft`).
pub const PALETTE: [Colour; 24] = [
    // The pages of GitHub.
    colour("page", "#ffffff", "#0d1117"),
    colour("ink", "#1f2328", "#f0f6fc"),
    colour("quiet", "#59636e", "#9198a1"),
    colour("line", "#6e7781", "#8b949e"),
    colour("panel", "#f6f8fa", "#151b23"),
    // Decoration only: it need not be seen.
    colour("faint", "#d1d9e0", "#3d444d"),
    colour("on-solid", "#ffffff", "#ffffff"),
    colour("holder", "#1a7f37", "#238636"),
    colour("holder-ink", "#1a7f37", "#3fb950"),
    colour("holder-soft", "#dafbe1", "#12261e"),
    colour("waiter-ink", "#0969da", "#4493f8"),
    colour("waiter-soft", "#ddf4ff", "#121d2f"),
    colour("guard", "#8250df", "#8957e5"),
    colour("guard-ink", "#8250df", "#ab7df8"),
    colour("guard-soft", "#fbefff", "#1e1733"),
    colour("ensemble-ink", "#14707a", "#39c5cf"),
    colour("ensemble-soft", "#e1f6f7", "#0d2529"),
    colour("danger", "#cf222e", "#da3633"),
    colour("danger-ink", "#cf222e", "#f85149"),
    colour("danger-soft", "#ffebe9", "#25171c"),
    colour("fault", "#9a6700", "#9e6a03"),
    colour("fault-ink", "#9a6700", "#d29922"),
    colour("fault-soft", "#fff8c5", "#272115"),
    // What is not ours, or not known.
    colour("other", "#6e7781", "#656c76"),
];

impl Theme {
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// The name that files have.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The value of a colour of the palette.
    pub fn colour(self, name: &str) -> Option<&'static str> {
        let colour = PALETTE.iter().find(|colour| colour.name == name)?;
        Some(match self {
            Self::Light => colour.light,
            Self::Dark => colour.dark,
        })
    }

    /// Replaces each `{{name}}` by the colour of that name.
    ///
    /// # Errors
    /// When the palette has no such colour.
    pub fn paint(self, text: &str) -> Result<String, Unknown> {
        let mut parts = text.split("{{");
        let mut painted = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
            painted += self.colour(name).ok_or_else(|| Unknown(name.to_owned()))?;
            painted += rest;
        }
        Ok(painted)
    }

    /// The file of this theme for a picture: `a/b-light.svg` for `a/b.svg`.
    pub fn file(self, picture: &Path) -> PathBuf {
        let stem = picture.file_stem().unwrap_or_default().to_string_lossy();
        let kind = picture.extension().unwrap_or_default().to_string_lossy();
        picture.with_file_name(format!("{stem}-{}.{kind}", self.as_str()))
    }
}

/// A name that is not in the palette.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the palette has no colour `{}`", self.0)
    }
}

impl std::error::Error for Unknown {}

/// Writes a picture once for each theme, and returns the two files ([`Theme::file`]).
///
/// # Errors
/// When a file cannot be written.
pub fn write(picture: &Path, mut draw: impl FnMut(Theme) -> String) -> io::Result<[PathBuf; 2]> {
    let files = Theme::ALL.map(|theme| theme.file(picture));
    for (theme, file) in Theme::ALL.into_iter().zip(&files) {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        std::fs::write(file, draw(theme)).map_err(named)?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_the_colours_of_the_theme_and_unknown_names_are_refused() {
        let text = r#"<a fill="{{page}}" stroke="{{ink}}"/>"#;
        assert_eq!(
            Theme::Dark.paint(text),
            Ok(r##"<a fill="#0d1117" stroke="#f0f6fc"/>"##.to_owned())
        );
        assert_eq!(Theme::Light.paint("{{pink}}"), Err(Unknown("pink".to_owned())));
    }

    #[test]
    fn each_theme_has_a_file_beside_the_picture() {
        assert_eq!(
            Theme::Light.file(Path::new("docs/a.svg")),
            Path::new("docs/a-light.svg")
        );
    }

    #[test]
    fn every_name_stands_for_one_colour() {
        for (index, colour) in PALETTE.iter().enumerate() {
            let twice = PALETTE[..index].iter().any(|other| other.name == colour.name);
            assert!(!twice, "{}", colour.name);
        }
    }
}
