//! Pictures are legible on light and on dark pages, are those that their sources make, and are shown by pages.

use std::path::{Path, PathBuf};

use lockkeeper_documents::{
    Drawing, Form, PICTURES, Page, Rgb, SOURCES, contrast, files, normal, painted, read, root,
};
use lockkeeper_palette::Theme;

/// In pixels, when a picture is [`NARROW`] pixels wide.
const LEAST_TEXT: f64 = 11.0;
/// The width of a picture on a page in a small window.
const NARROW: f64 = 700.0;
/// The least contrast of text, and of what else has to be seen ([`contrast`]).
const LEAST_OF_TEXT: f64 = 4.5;
const LEAST_OF_FORMS: f64 = 3.0;
/// The pages' condition for the file with the dark theme.
const DARK: &str = "(prefers-color-scheme: dark)";

/// The pictures of all pages, with those that programs draw.
fn pictures() -> Vec<PathBuf> {
    let all = files().into_iter();
    all.filter(|file| file.starts_with("docs") && !file.starts_with(SOURCES))
        .filter(|file| file.extension().is_some_and(|kind| kind == "svg"))
        .collect()
}

fn theme_of(file: &Path) -> Option<Theme> {
    let stem = file.file_stem()?.to_str()?;
    Theme::ALL
        .into_iter()
        .find(|theme| stem.ends_with(&format!("-{}", theme.as_str())))
}

fn drawing(file: &Path) -> Drawing {
    Drawing::parse(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn drawn_by_hand() -> Vec<(PathBuf, Drawing)> {
    let painted = painted().expect("sources with colours of the palette");
    let files = painted.into_iter().map(|painted| painted.file);
    files.map(|file| (file.clone(), drawing(&file))).collect()
}

fn pages() -> Vec<(PathBuf, Page)> {
    let pages = files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|kind| kind == "md") && !file.ends_with("page.md"));
    pages
        .map(|file| (file.clone(), Page::parse(&read(&file))))
        .collect()
}

/// The file of the repository that a page names.
fn target(page: &Path, link: &str) -> PathBuf {
    normal(&page.parent().expect("a page is in a folder").join(link))
}

#[test]
fn the_pictures_are_those_that_their_sources_make() {
    let painted = painted().expect("sources with colours of the palette");
    assert!(painted.len() >= 12, "{} pictures", painted.len());
    for picture in painted {
        let is_current = root().join(&picture.file).is_file() && read(&picture.file) == picture.text;
        assert!(is_current, "{}: run `make pictures`", picture.file.display());
    }
}

#[test]
fn every_picture_has_a_file_for_each_theme() {
    let pictures = pictures();
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in &pictures {
        checked += 1;
        let name = file.to_str().expect("names in UTF-8");
        let other = match theme_of(file) {
            Some(Theme::Light) => name.replace("-light.svg", "-dark.svg"),
            Some(Theme::Dark) => name.replace("-dark.svg", "-light.svg"),
            None => String::new(),
        };
        if !pictures.contains(&PathBuf::from(other)) {
            wrong.push(name);
        }
    }
    assert!(checked >= 24 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_text_differs_enough_from_what_lies_behind_it() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in pictures() {
        let drawing = drawing(&file);
        let page = page_of(&file);
        for (index, item) in drawing.items.iter().enumerate() {
            if !matches!(&item.form, Form::Text { words, .. } if !words.is_empty()) {
                continue;
            }
            checked += 1;
            let fill = item.fill.expect("a text has a colour");
            let differs = |at: &(f64, f64)| {
                let behind = drawing.behind(index, *at, page);
                contrast(fill.colour.over(behind, fill.opacity), behind)
            };
            let least = item.samples().iter().map(differs).fold(f64::INFINITY, f64::min);
            if least < LEAST_OF_TEXT {
                wrong.push(format!("{}: {}: {least:.2}", file.display(), item.name()));
            }
        }
    }
    assert!(checked > 300 && wrong.is_empty(), "{checked} checked, {wrong:#?}");
}

#[test]
fn every_form_that_is_no_decoration_differs_enough_from_what_lies_behind_it() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in pictures() {
        let drawing = drawing(&file);
        let page = page_of(&file);
        for (index, item) in drawing.items.iter().enumerate() {
            if item.is_decoration || matches!(item.form, Form::Text { .. }) {
                continue;
            }
            checked += 1;
            // The line around a form, or else its area.
            let paints = [item.stroke, item.fill].into_iter().flatten();
            let best = paints.map(|paint| {
                let differs = |at: &(f64, f64)| {
                    let behind = drawing.behind(index, *at, page);
                    contrast(paint.colour.over(behind, paint.opacity), behind)
                };
                let mut contrasts: Vec<_> = item.samples().iter().map(differs).collect();
                contrasts.sort_by(f64::total_cmp);
                // Other forms may touch two of the four sides of an area.
                let may_miss = match item.form {
                    Form::Lines(_) => 0,
                    _ => contrasts.len() / 2,
                };
                contrasts.get(may_miss).copied().unwrap_or_default()
            });
            let best = best.fold(0.0, f64::max);
            if best < LEAST_OF_FORMS {
                wrong.push(format!("{}: {}: {best:.2}", file.display(), item.name()));
            }
        }
    }
    assert!(checked > 300 && wrong.is_empty(), "{checked} checked, {wrong:#?}");
}

fn page_of(file: &Path) -> Rgb {
    let theme = theme_of(file).unwrap_or_else(|| panic!("{} is of no theme", file.display()));
    let page = theme.colour("page").expect("a page has a colour");
    Rgb::parse(page).expect("colours are of the form #rrggbb")
}

#[test]
fn every_text_can_be_read_when_its_picture_is_700_pixels_wide() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in pictures() {
        let drawing = drawing(&file);
        let scale = NARROW / (drawing.frame.right - drawing.frame.left);
        for item in &drawing.items {
            if let Form::Text { words, size, .. } = &item.form {
                checked += 1;
                if size * scale < LEAST_TEXT {
                    wrong.push(format!("{}: {words}: {:.1} px", file.display(), size * scale));
                }
            }
        }
    }
    assert!(checked > 300 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nothing_is_drawn_outside_of_its_picture() {
    let mut wrong = Vec::new();
    for file in pictures() {
        let drawing = drawing(&file);
        for item in drawing
            .items
            .iter()
            .filter(|item| !drawing.frame.contains(&item.bounds()))
        {
            wrong.push(format!(
                "{}: {}: {:?}",
                file.display(),
                item.name(),
                item.bounds()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_text_that_is_drawn_by_hand_touches_another_one_or_a_line() {
    let mut wrong = Vec::new();
    for (file, drawing) in drawn_by_hand() {
        for (index, item) in drawing.items.iter().enumerate() {
            let Form::Text { frame, .. } = &item.form else {
                continue;
            };
            for (at, other) in drawing.items.iter().enumerate().filter(|(at, _)| *at != index) {
                let is_text = matches!(other.form, Form::Text { .. });
                let touches =
                    (is_text && at > index && frame.overlaps(&other.bounds())) || drawing.crosses(at, index);
                if touches {
                    wrong.push(format!(
                        "{}: {} and {}",
                        file.display(),
                        item.name(),
                        other.name()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pages_show_pictures_for_both_themes_with_an_alternative_in_words() {
    let (mut shown, mut wrong) = (0, Vec::new());
    for (file, page) in pages() {
        wrong.extend(
            page.images
                .iter()
                .filter(|image| image.ends_with(".svg") && !image.contains("://"))
                .map(|image| format!("{}: show {image} by <picture>", file.display())),
        );
        for picture in &page.pictures {
            shown += 1;
            let is_pair = picture.light.strip_suffix("-light.svg") == picture.dark.strip_suffix("-dark.svg")
                && picture.light.ends_with("-light.svg");
            if !is_pair || picture.media != DARK || picture.alternative.trim().is_empty() {
                wrong.push(format!("{}: {picture:?}", file.display()));
            }
        }
    }
    assert!(shown >= 13 && wrong.is_empty(), "{shown} shown, {wrong:#?}");
}

#[test]
fn every_picture_is_shown_by_a_page() {
    let pages = pages();
    let shown: Vec<_> = pages
        .iter()
        .flat_map(|(file, page)| page.links.iter().map(|link| target(file, link)))
        .collect();
    let of_no_page: Vec<_> = files()
        .into_iter()
        .filter(|file| file.starts_with(PICTURES) && !file.starts_with(SOURCES))
        .chain(pictures())
        .filter(|file| !shown.contains(file))
        .collect();
    assert!(of_no_page.is_empty(), "{of_no_page:#?}");
}
