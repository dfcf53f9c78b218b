//! The colours and sizes of an element: its own, those of the style sheet, and those of the elements around it.

use std::collections::BTreeMap;

use super::xml::Element;

/// Properties by name, such as `fill`.
pub(super) type Properties = BTreeMap<String, String>;

/// A rule of the style sheet. Its selector is a name, a class, or both.
#[derive(Debug)]
struct Rule {
    name: Option<String>,
    class: Option<String>,
    properties: Properties,
}

/// The style sheet of a drawing.
#[derive(Debug, Default)]
pub(super) struct Sheet(Vec<Rule>);

const INHERITED: [&str; 8] = [
    "fill",
    "stroke",
    "stroke-width",
    "fill-opacity",
    "stroke-opacity",
    "font-size",
    "font-weight",
    "text-anchor",
];

impl Sheet {
    /// Reads a style sheet.
    ///
    /// # Errors
    /// What is not understood, such as a media query.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for block in text.split('}').map(str::trim).filter(|block| !block.is_empty()) {
            let (selectors, body) = block
                .split_once('{')
                .filter(|(selectors, body)| !selectors.contains('@') && !body.contains('{'))
                .ok_or_else(|| format!("`{block}` is no plain rule"))?;
            let pairs = body.split(';').filter_map(|pair| pair.split_once(':'));
            let properties: Properties = pairs
                .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
                .collect();
            for selector in selectors.split(',').map(str::trim) {
                let (name, class) = match selector.split_once('.') {
                    Some((name, class)) => (name, Some(class.to_owned())),
                    None => (selector, None),
                };
                rules.push(Rule {
                    name: (!name.is_empty()).then(|| name.to_owned()),
                    class,
                    properties: properties.clone(),
                });
            }
        }
        // The more specific rule wins; of two that are alike, the later one.
        rules.sort_by_key(|rule| (rule.class.is_some(), rule.name.is_some()));
        Ok(Self(rules))
    }

    /// The properties of an element in an element with the properties `around`.
    pub(super) fn of(&self, element: &Element, around: &Properties) -> Properties {
        let inherited = around.iter().filter(|(key, _)| INHERITED.contains(&key.as_str()));
        let mut properties: Properties = inherited
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        properties.extend(
            element
                .attributes
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        for rule in &self.0 {
            let is_named = rule.name.as_ref().is_none_or(|name| *name == element.name);
            let has_class = rule.class.as_ref().is_none_or(|class| has_class(element, class));
            if is_named && has_class {
                properties.extend(rule.properties.clone());
            }
        }
        properties
    }
}

pub(super) fn has_class(element: &Element, class: &str) -> bool {
    let classes = element.attributes.get("class");
    classes.is_some_and(|classes| classes.split_whitespace().any(|own| own == class))
}
