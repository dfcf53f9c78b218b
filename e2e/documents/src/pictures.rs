//! The pictures that are drawn by hand, `docs/pictures/source/`: from each, one file for each theme.

use std::path::{Path, PathBuf};

use lockkeeper_palette::Theme;

use crate::repository::{files, read};

/// Where the pictures are that pages show.
pub const PICTURES: &str = "docs/pictures";
/// Where their sources are, which name their colours ([`lockkeeper_palette::PALETTE`]).
pub const SOURCES: &str = "docs/pictures/source";

/// A picture as a page shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Painted {
    pub file: PathBuf,
    pub theme: Theme,
    pub text: String,
}

/// The pictures that the sources make.
///
/// # Errors
/// When a source names a colour that the palette does not have.
pub fn painted() -> Result<Vec<Painted>, String> {
    let mut painted = Vec::new();
    for source in files().iter().filter(|file| file.starts_with(SOURCES)) {
        let text = read(source);
        let name = Path::new(source.file_name().unwrap_or_default());
        for theme in Theme::ALL {
            let text = theme
                .paint(&text)
                .map_err(|unknown| format!("{}: {unknown}", source.display()))?;
            let file = theme.file(&Path::new(PICTURES).join(name));
            painted.push(Painted { file, theme, text });
        }
    }
    Ok(painted)
}
