//! A file's text, and where in it each key stands.

use super::finding::{Finding, KeyPath, Origin, Segment};

use std::ops::Range;
use toml_edit::{Document, Item, TableLike, Value};

/// One TOML file.
#[derive(Clone, Debug)]
pub(super) struct Text {
    name: String,
    document: Document<String>,
}

/// A place that a path leads to.
#[derive(Clone, Copy)]
enum Node<'a> {
    Table(&'a dyn TableLike),
    Item(&'a Item),
    Value(&'a Value),
}

impl Text {
    /// Parses, or tells line and column of the syntax error.
    pub(super) fn parse(name: &str, toml: &str) -> Result<Self, Finding> {
        let document = Document::parse(toml.to_owned()).map_err(|error| Finding {
            origin: line(name, toml, error.span().map_or(0, |span| span.start)),
            key: String::new(),
            value: None,
            message: format!("not TOML: {}", error.message().trim_end().replace('\n', "; ")),
        })?;
        Ok(Self { name: name.to_owned(), document })
    }

    /// The file's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The text as it was read.
    pub(super) fn raw(&self) -> &str {
        self.document.raw()
    }

    /// How many steps of `path` exist here.
    pub(super) fn depth(&self, path: &KeyPath) -> usize {
        self.walk(path).count()
    }

    /// The line of the deepest existing step of `path`, and the value when all of it exists.
    pub(super) fn locate(&self, path: &KeyPath) -> (Origin, Option<String>) {
        let Some((depth, (node, span))) = self.walk(path).enumerate().last() else {
            return (Origin::File(self.name.clone()), None);
        };
        let whole = depth + 1 == path.0.len();
        let value = if whole { self.shown(node) } else { None };
        (line(&self.name, self.raw(), span.map_or(0, |span| span.start)), value)
    }

    fn walk<'a>(
        &'a self,
        path: &'a KeyPath,
    ) -> impl Iterator<Item = (Node<'a>, Option<Range<usize>>)> + 'a {
        let mut node = Some(Node::Table(self.document.as_table()));
        path.0.iter().map_while(move |segment| {
            let (next, span) = step(node?, segment)?;
            node = Some(next);
            Some((next, span))
        })
    }

    fn shown(&self, node: Node<'_>) -> Option<String> {
        let span = match node {
            Node::Item(item) => item.as_value()?.span()?,
            Node::Value(value) => value.span()?,
            Node::Table(_) => return None,
        };
        Some(self.raw().get(span)?.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// One step, and where its key (in a table) or its element (in an array) stands.
fn step<'a>(node: Node<'a>, segment: &Segment) -> Option<(Node<'a>, Option<Range<usize>>)> {
    match segment {
        Segment::Key(key) => {
            let table = as_table(node)?;
            let span = table.key(key).and_then(toml_edit::Key::span);
            Some((Node::Item(table.get(key)?), span))
        }
        Segment::Index(index) => element(node, *index),
    }
}

fn as_table(node: Node<'_>) -> Option<&dyn TableLike> {
    match node {
        Node::Table(table) => Some(table),
        Node::Item(item) => item.as_table_like(),
        Node::Value(value) => Some(value.as_inline_table()?),
    }
}

fn element(node: Node<'_>, index: usize) -> Option<(Node<'_>, Option<Range<usize>>)> {
    if let Node::Item(Item::ArrayOfTables(tables)) = node {
        let table = tables.get(index)?;
        return Some((Node::Table(table), table.span()));
    }
    let array = match node {
        Node::Item(item) => item.as_array()?,
        Node::Value(value) => value.as_array()?,
        Node::Table(_) => return None,
    };
    let value = array.get(index)?;
    Some((Node::Value(value), value.span()))
}

fn line(name: &str, text: &str, at: usize) -> Origin {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Origin::Line {
        file: name.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[start..].chars().count() + 1,
    }
}
