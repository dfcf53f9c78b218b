//! The forms of a drawing, and the points at which they are looked at.

/// A place in a drawing, in the units of its view box.
pub type Point = (f64, f64);

/// What is drawn.
#[derive(Debug, PartialEq)]
pub enum Form {
    Rect(Frame),
    Circle {
        centre: Point,
        radius: f64,
    },
    /// Straight lines, each from one point to another.
    Lines(Vec<(Point, Point)>),
    Text {
        words: String,
        size: f64,
        frame: Frame,
    },
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// Of the size of a font: an upper estimate of the mean width of a letter in the fonts of systems.
const LETTER: f64 = 0.56;
const BOLD_LETTER: f64 = 0.61;

impl Form {
    /// A text, whose frame is estimated from the number of its letters.
    pub(super) fn text(words: String, at: Point, anchor: &str, size: f64, is_bold: bool) -> Self {
        let letter = if is_bold { BOLD_LETTER } else { LETTER };
        let width = words.chars().count() as f64 * letter * size;
        let left = match anchor {
            "middle" => at.0 - width / 2.0,
            "end" => at.0 - width,
            _ => at.0,
        };
        let frame = Frame {
            left,
            top: at.1 - 0.75 * size,
            right: left + width,
            bottom: at.1 + 0.2 * size,
        };
        Self::Text { words, size, frame }
    }

    /// Whether what fills this form covers a point. What begins at its edge lies beside it.
    pub(super) fn covers(&self, (x, y): Point) -> bool {
        match self {
            Self::Rect(frame) => frame.left < x && x < frame.right && frame.top < y && y < frame.bottom,
            Self::Circle { centre, radius } => (x - centre.0).hypot(y - centre.1) < *radius,
            Self::Lines(_) | Self::Text { .. } => false,
        }
    }

    /// The points at which it has to differ from what lies behind it.
    pub(super) fn samples(&self) -> Vec<Point> {
        match self {
            Self::Text { frame, .. } => frame.inside(),
            Self::Rect(frame) => frame.edges().map(|(from, to)| between(from, to, 0.5)).to_vec(),
            Self::Circle { centre, radius } => {
                [(*radius, 0.0), (-radius, 0.0), (0.0, *radius), (0.0, -radius)]
                    .map(|(x, y)| (centre.0 + x, centre.1 + y))
                    .to_vec()
            }
            Self::Lines(lines) => lines
                .iter()
                .flat_map(|&(from, to)| [0.2, 0.5, 0.8].map(|share| between(from, to, share)))
                .collect(),
        }
    }

    /// The lines that can cross a text.
    pub(super) fn lines(&self) -> Vec<(Point, Point)> {
        match self {
            Self::Lines(lines) => lines.clone(),
            Self::Rect(frame) => frame.edges().to_vec(),
            Self::Circle { .. } | Self::Text { .. } => Vec::new(),
        }
    }

    /// The least frame around it.
    pub(super) fn bounds(&self) -> Frame {
        match self {
            Self::Rect(frame) | Self::Text { frame, .. } => *frame,
            Self::Circle { centre, radius } => Frame {
                left: centre.0 - radius,
                top: centre.1 - radius,
                right: centre.0 + radius,
                bottom: centre.1 + radius,
            },
            Self::Lines(lines) => {
                let points = || lines.iter().flat_map(|&(from, to)| [from, to]);
                let least = |part: fn(Point) -> f64| points().map(part).fold(f64::INFINITY, f64::min);
                let most = |part: fn(Point) -> f64| points().map(part).fold(f64::NEG_INFINITY, f64::max);
                Frame {
                    left: least(|(x, _)| x),
                    top: least(|(_, y)| y),
                    right: most(|(x, _)| x),
                    bottom: most(|(_, y)| y),
                }
            }
        }
    }
}

impl Frame {
    /// Whether another frame lies within this one.
    pub fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && self.top <= other.top
            && self.right >= other.right
            && self.bottom >= other.bottom
    }

    /// Whether two frames have more than an edge in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Points of a straight line that lie in this frame.
    pub(super) fn crossings(&self, (from, to): (Point, Point)) -> impl Iterator<Item = Point> {
        const STEPS: u32 = 200;
        let points = (0..=STEPS).map(move |step| between(from, to, f64::from(step) / f64::from(STEPS)));
        points.filter(|&(x, y)| self.left < x && x < self.right && self.top < y && y < self.bottom)
    }

    fn edges(&self) -> [(Point, Point); 4] {
        let corners = [
            (self.left, self.top),
            (self.right, self.top),
            (self.right, self.bottom),
            (self.left, self.bottom),
        ];
        [0, 1, 2, 3].map(|at| (corners[at], corners[(at + 1) % 4]))
    }

    fn inside(&self) -> Vec<Point> {
        let shares = [0.02, 0.25, 0.5, 0.75, 0.98];
        let xs = shares.map(|share| self.left + share * (self.right - self.left));
        let ys = [0.3, 0.7].map(|share| self.top + share * (self.bottom - self.top));
        ys.into_iter().flat_map(|y| xs.map(|x| (x, y))).collect()
    }
}

fn between(from: Point, to: Point, share: f64) -> Point {
    (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
}
