//! The merged, still untyped configuration: every node knows its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, Place, Problem};

pub(super) type Table = BTreeMap<String, Node>;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Boolean(bool),
    Integer(i128),
    /// A date or a fraction: no key takes one, so only the name of the type is kept.
    Other(&'static str),
    Text(String),
    /// Text of an environment variable or flag, whose type the key decides.
    Untyped(String),
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Boolean(_) => "a boolean",
            Value::Integer(_) => "an integer",
            Value::Other(name) => name,
            Value::Text(_) | Value::Untyped(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// Parses the text of a file; reports every syntax error it can tell apart.
pub(super) fn parse_file(file: &Arc<str>, text: &str) -> Result<Table, Vec<Problem>> {
    let lines = Lines::of(text);
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let place = |offset| Place::Line { file: Arc::clone(file), line: lines.at(offset) };
        return Ok(table(root.into_inner(), &place));
    }
    Err(errors
        .into_iter()
        .map(|error| Problem {
            place: match error.span() {
                Some(span) => Place::Line { file: Arc::clone(file), line: lines.at(span.start) },
                None => Place::File(Arc::clone(file)),
            },
            key: String::new(),
            // Not the error's own Display: that one prints the line, which may hold a secret.
            fault: Fault::Syntax(error.message().to_owned()),
        })
        .collect())
}

/// Parses a list or table written in one environment variable.
pub(super) fn parse_inline(place: &Place, text: &str) -> Option<Value> {
    let parsed = DeValue::parse(text).ok()?;
    let node = node(place.clone(), parsed, &|_| place.clone());
    matches!(node.value, Value::List(_) | Value::Table(_)).then_some(node.value)
}

fn table(parsed: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Table {
    parsed
        .into_iter()
        .map(|(key, value)| {
            let at = place(key.span().start);
            (key.into_inner().into_owned(), node(at, value, place))
        })
        .collect()
}

fn node(at: Place, parsed: Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Place) -> Node {
    let value = match parsed.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Other("an integer of absurd size"),
        },
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Float(_) => Value::Other("a fraction"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(items) => Value::List(
            items
                .into_iter()
                .map(|item| {
                    let at = place(item.span().start);
                    node(at, item, place)
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(inner, place)),
    };
    Node { place: at, value }
}

struct Lines {
    ends: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        Lines {
            ends: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect(),
        }
    }

    fn at(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
}
