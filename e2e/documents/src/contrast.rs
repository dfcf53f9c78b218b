//! The contrast of two colours.

/// A colour: red, green and blue, each from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rgb(pub [f64; 3]);

impl Rgb {
    /// Reads `#rrggbb` or `#rgb`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#')?;
        let wide: String = match digits.len() {
            3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
            6 => digits.to_owned(),
            _ => return None,
        };
        let part = |at: usize| {
            let byte = u8::from_str_radix(wide.get(at..at + 2)?, 16).ok()?;
            Some(f64::from(byte) / 255.0)
        };
        Some(Self([part(0)?, part(2)?, part(4)?]))
    }

    /// What is seen where this colour lies over another one.
    pub fn over(self, behind: Self, opacity: f64) -> Self {
        let mut seen = [0.0; 3];
        for (seen, (front, back)) in seen.iter_mut().zip(self.0.into_iter().zip(behind.0)) {
            *seen = front * opacity + back * (1.0 - opacity);
        }
        Self(seen)
    }

    /// The relative luminance of [WCAG 2.2](https://www.w3.org/TR/WCAG22/#dfn-relative-luminance).
    fn luminance(self) -> f64 {
        let linear = |part: f64| {
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

/// The contrast ratio of [WCAG 2.2](https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio), from 1 to 21. Its level AA takes at
/// least [4.5 for text](https://www.w3.org/TR/WCAG22/#contrast-minimum), and at least
/// [3 for what else has to be seen](https://www.w3.org/TR/WCAG22/#non-text-contrast).
pub fn contrast(one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (one.luminance(), other.luminance());
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn black_and_white_are_21_apart_and_grey_767676_is_the_lightest_text_on_white() {
        let rgb = |text: &str| Rgb::parse(text).unwrap();
        assert!((contrast(rgb("#000"), rgb("#fff")) - 21.0).abs() < 1e-9);
        assert!(contrast(rgb("#767676"), rgb("#ffffff")) >= 4.5);
        assert!(contrast(rgb("#777777"), rgb("#ffffff")) < 4.5);
        assert_eq!(Rgb::parse("red"), None);
    }

    #[test]
    fn half_of_black_over_white_is_grey() {
        let [black, white] = ["#000", "#fff"].map(|text| Rgb::parse(text).unwrap());
        assert_eq!(black.over(white, 0.5), Rgb([0.5; 3]));
    }
}
