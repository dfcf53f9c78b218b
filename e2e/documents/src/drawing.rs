//! A picture as it is seen: its forms in the order in which they are drawn, with their colours.
//!
//! It reads as much of SVG as the pictures of the documentation use, and refuses the rest.

mod form;
mod path;
mod style;
mod xml;

pub use form::{Form, Frame, Point};

use crate::contrast::Rgb;
use style::{Properties, Sheet, has_class};
use xml::Element;

/// What has this class need not be seen: guides behind the picture, and areas that others repeat.
const DECORATION: &str = "decoration";
/// Elements that draw nothing by themselves.
const SILENT: [&str; 4] = ["defs", "desc", "style", "title"];

/// A picture.
#[derive(Debug)]
pub struct Drawing {
    pub frame: Frame,
    pub items: Vec<Item>,
}

/// One form in it.
#[derive(Debug)]
pub struct Item {
    pub form: Form,
    pub fill: Option<Paint>,
    pub stroke: Option<Paint>,
    /// It need not be seen.
    pub is_decoration: bool,
}

/// A colour and its opacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paint {
    pub colour: Rgb,
    pub opacity: f64,
}

impl Drawing {
    /// Reads a picture.
    ///
    /// # Errors
    /// What is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let root = xml::parse(text)?;
        let numbers: Vec<f64> = root
            .attributes
            .get("viewBox")
            .into_iter()
            .flat_map(|numbers| numbers.split_whitespace())
            .filter_map(|number| number.parse().ok())
            .collect();
        let [left, top, width, height] = numbers[..] else {
            return Err("a picture has a viewBox of four numbers".to_owned());
        };
        let sheet = root.children.iter().find(|child| child.name == "style");
        let sheet = Sheet::parse(sheet.map_or("", |sheet| &sheet.words))?;
        let mut items = Vec::new();
        collect(&root, &Properties::new(), false, &sheet, &mut items)?;
        Ok(Self {
            frame: Frame {
                left,
                top,
                right: left + width,
                bottom: top + height,
            },
            items,
        })
    }

    /// The colour behind the item of that index at a point, on a page of the colour `page`.
    pub fn behind(&self, index: usize, at: Point, page: Rgb) -> Rgb {
        let below = self.items[..index].iter();
        below
            .filter(|item| item.form.covers(at))
            .filter_map(|item| item.fill)
            .fold(page, |behind, fill| fill.colour.over(behind, fill.opacity))
    }

    /// Whether a line of one item is seen within the frame of another one. What lies between them may hide it.
    pub fn crosses(&self, line: usize, other: usize) -> bool {
        let item = &self.items[line];
        let between = &self.items[(line + 1).min(other)..other];
        let is_seen = |at: Point| {
            !between
                .iter()
                .any(|item| item.is_opaque() && item.form.covers(at))
        };
        let frame = self.items[other].bounds();
        let mut lines = item.form.lines().into_iter();
        item.stroke.is_some() && lines.any(|line| frame.crossings(line).any(is_seen))
    }
}

impl Item {
    /// The points at which it has to differ from what lies behind it.
    pub fn samples(&self) -> Vec<Point> {
        self.form.samples()
    }

    fn is_opaque(&self) -> bool {
        self.fill.is_some_and(|fill| fill.opacity >= 1.0)
    }

    /// The least frame around it.
    pub fn bounds(&self) -> Frame {
        self.form.bounds()
    }

    /// For messages.
    pub fn name(&self) -> String {
        match &self.form {
            Form::Text { words, .. } => format!("\"{words}\""),
            form => format!("{form:?}"),
        }
    }
}

fn collect(
    element: &Element,
    around: &Properties,
    is_decoration: bool,
    sheet: &Sheet,
    items: &mut Vec<Item>,
) -> Result<(), String> {
    if SILENT.contains(&element.name.as_str()) {
        return Ok(());
    }
    let own = sheet.of(element, around);
    let is_decoration = is_decoration || has_class(element, DECORATION);
    if own.contains_key("transform") || own.contains_key("opacity") {
        return Err(format!(
            "<{}>: transform and opacity are not understood",
            element.name
        ));
    }
    if !matches!(element.name.as_str(), "svg" | "g") {
        let form = form(element, &own)?;
        let fill = match &form {
            Form::Lines(_) if own.get("fill").is_none_or(|fill| fill != "none") => {
                if element.name == "path" {
                    return Err(format!(
                        "{:?}: a path that is filled is not understood",
                        own.get("d")
                    ));
                }
                None
            }
            _ => paint(&own, "fill", Some("#000000"))?,
        };
        items.push(Item {
            form,
            fill,
            stroke: paint(&own, "stroke", None)?,
            is_decoration,
        });
        // A title in it is shown to pointers only.
        return Ok(());
    }
    for child in &element.children {
        collect(child, &own, is_decoration, sheet, items)?;
    }
    Ok(())
}

fn form(element: &Element, own: &Properties) -> Result<Form, String> {
    let number = |key: &str| match own.get(key) {
        Some(value) => value
            .trim_end_matches("px")
            .parse::<f64>()
            .map_err(|_| format!("<{} {key}=\"{value}\">: a number is expected", element.name)),
        None => Ok(0.0),
    };
    Ok(match element.name.as_str() {
        "rect" => Form::Rect(Frame {
            left: number("x")?,
            top: number("y")?,
            right: number("x")? + number("width")?,
            bottom: number("y")? + number("height")?,
        }),
        "circle" => Form::Circle {
            centre: (number("cx")?, number("cy")?),
            radius: number("r")?,
        },
        "line" => Form::Lines(vec![(
            (number("x1")?, number("y1")?),
            (number("x2")?, number("y2")?),
        )]),
        "path" => Form::Lines(path::lines(own.get("d").map_or("", |path| path))?),
        "text" if element.children.is_empty() => {
            let weight = own.get("font-weight").map_or("400", |weight| weight);
            let anchor = own.get("text-anchor").map_or("start", |anchor| anchor);
            Form::text(
                element.words.clone(),
                (number("x")?, number("y")?),
                anchor,
                number("font-size")?,
                matches!(weight, "600" | "700" | "bold"),
            )
        }
        name => return Err(format!("<{name}> is not understood")),
    })
}

fn paint(own: &Properties, key: &str, default: Option<&str>) -> Result<Option<Paint>, String> {
    let value = match own.get(key).map(String::as_str).or(default) {
        None | Some("none") => return Ok(None),
        Some(value) => value,
    };
    let colour = Rgb::parse(value).ok_or_else(|| format!("{key}: `{value}` is not of the form #rrggbb"))?;
    let opacity = own.get(&format!("{key}-opacity"));
    let opacity = opacity.map_or(Ok(1.0), |opacity| opacity.parse());
    let opacity = opacity.map_err(|_| format!("{key}-opacity is no number"))?;
    Ok(Some(Paint { colour, opacity }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_from_the_element_the_style_sheet_and_the_elements_around() {
        let drawing = Drawing::parse(
            "<svg viewBox=\"0 0 9 9\" fill=\"#111111\"><style>.a{fill:#222222}rect.a{fill:#333333}</style>\
             <g stroke=\"#444444\"><rect class=\"a\" width=\"9\" height=\"9\"/><circle r=\"1\"/></g></svg>",
        );
        let items = drawing.unwrap().items;
        let fill = |index: usize| items[index].fill.map(|fill| fill.colour);
        assert_eq!(fill(0), Rgb::parse("#333333"));
        assert_eq!(fill(1), Rgb::parse("#111111"));
        assert_eq!(items[1].stroke.map(|stroke| stroke.colour), Rgb::parse("#444444"));
    }

    #[test]
    fn behind_a_form_is_what_was_drawn_before() {
        let drawing = Drawing::parse(
            "<svg viewBox=\"0 0 9 9\"><rect width=\"4\" height=\"9\" fill=\"#000000\" fill-opacity=\"0.5\"/>\
             <text x=\"1\" y=\"5\" font-size=\"1\">a</text></svg>",
        )
        .unwrap();
        let white = Rgb([1.0; 3]);
        assert_eq!(drawing.behind(1, (1.0, 5.0), white), Rgb([0.5; 3]));
        assert_eq!(drawing.behind(1, (5.0, 5.0), white), white);
    }

    #[test]
    fn a_media_query_is_refused() {
        let text = "<svg viewBox=\"0 0 9 9\"><style>@media(prefers-color-scheme:dark){text{fill:#fff}}</style></svg>";
        assert!(Drawing::parse(text).is_err());
    }
}
