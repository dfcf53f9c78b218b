//! The parts of a page besides sentences: blocks of code, and tables.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A block of code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The word behind the first fence, such as `yaml`.
    pub language: String,
    /// The text between the fences.
    pub text: String,
}

/// A table: rows of cells, the heads first, as plain text.
pub type Table = Vec<Vec<String>>;

/// All fenced blocks of code in a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                open = Some(Block {
                    language: language.into_string(),
                    text: String::new(),
                });
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.text.push_str(&text);
                }
            }
            _ => {}
        }
    }
    blocks
}

pub fn tables(page: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut cell: Option<String> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
            Event::Start(Tag::TableHead | Tag::TableRow) => {
                tables.last_mut().expect("a row is in a table").push(Vec::new());
            }
            Event::Start(Tag::TableCell) => cell = Some(String::new()),
            Event::End(TagEnd::TableCell) => {
                let row = tables.last_mut().and_then(|table| table.last_mut());
                row.expect("a cell is in a row").extend(cell.take());
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(cell) = &mut cell {
                    cell.push_str(&text);
                }
            }
            _ => {}
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_tables_are_found() {
        let page = "| a | `b` |\n|---|---|\n| `c\\|d` | [e](f.md) |\n\n```yaml\nkind: Lock\n\nx: 1\n```\n";
        assert_eq!(tables(page), [[["a", "b"], ["c|d", "e"]]]);
        let block = Block {
            language: "yaml".to_owned(),
            text: "kind: Lock\n\nx: 1\n".to_owned(),
        };
        assert_eq!(blocks(page), [block]);
    }
}
