//! Typed reading of one table: every fault is noted and reading goes on.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{Fault, Place, Problem};
use super::keys::{Key, Shown};
use super::secret::Secret;
use super::tree::{Node, Table, Value, parse_inline};

/// Largest file a `…_file` key may name, in bytes.
const MAX_SECRET_FILE_BYTES: usize = 64 * 1024;

/// What all sections share: the problems found so far, and how files that keys name are read.
pub(super) struct Report<'a> {
    problems: RefCell<Vec<Problem>>,
    /// Folder of the configuration file: relative paths written in it start there.
    folder: PathBuf,
    read: &'a dyn Fn(&Path) -> std::io::Result<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        problems: Vec<Problem>,
        folder: PathBuf,
        read: &'a dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Self {
        Report { problems: RefCell::new(problems), folder, read }
    }

    pub(super) fn note(&self, place: &Place, key: impl Into<String>, fault: Fault) {
        let problem = Problem { place: place.clone(), key: key.into(), fault };
        let mut problems = self.problems.borrow_mut();
        // Some keys are read twice, once for what they say and once for whether they are there.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.problems.borrow().len()
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// A value with the place it came from.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) place: Place,
    pub(super) value: T,
}

/// One table of the configuration, its keys already checked against the table of known ones.
pub(super) struct Section<'a> {
    report: &'a Report<'a>,
    /// Dotted path, such as `app[0]`.
    path: String,
    place: Place,
    nodes: Table,
}

impl<'a> Section<'a> {
    /// Takes the section out of the root; an absent one reads as empty.
    pub(super) fn of_root(
        report: &'a Report<'a>,
        root: &mut Table,
        name: &str,
        keys: &[Key],
        whole: &Place,
    ) -> Self {
        match root.remove(name) {
            None => Section { report, path: name.to_owned(), place: whole.clone(), nodes: Table::new() },
            Some(node) => Self::open(report, name.to_owned(), node, keys),
        }
    }

    /// Takes a list of tables out of the root.
    pub(super) fn list_of_root(
        report: &'a Report<'a>,
        root: &mut Table,
        name: &str,
        keys: &[Key],
    ) -> Vec<Self> {
        root.remove(name).map(|node| Self::open_list(report, name, node, keys)).unwrap_or_default()
    }

    fn open_list(report: &'a Report<'a>, path: &str, node: Node, keys: &[Key]) -> Vec<Self> {
        let value = match node.value {
            Value::Untyped(text) => parse_inline(&node.place, &text).unwrap_or(Value::Untyped(text)),
            value => value,
        };
        let Value::List(items) = value else {
            let right = format!("a list of tables, as in [[{path}]],");
            report.note(&node.place, path, Fault::WrongType { found: value.type_name(), right });
            return Vec::new();
        };
        let numbered = items.into_iter().enumerate();
        numbered.map(|(n, item)| Self::open(report, format!("{path}[{n}]"), item, keys)).collect()
    }

    fn open(report: &'a Report<'a>, path: String, node: Node, keys: &[Key]) -> Self {
        let Value::Table(mut nodes) = node.value else {
            report.note(
                &node.place,
                &path,
                Fault::WrongType { found: node.value.type_name(), right: "a table".into() },
            );
            return Section { report, path, place: node.place, nodes: Table::new() };
        };
        nodes.retain(|name, node| {
            let known = keys.iter().find(|key| key.name == name || key.file_name().as_deref() == Some(name));
            let fault = match known.map(|key| key.shown) {
                Some(Shown::Later(feature)) => Fault::NotBuilt(feature.to_owned()),
                Some(_) => return true,
                None => unknown(name, keys.iter().map(|key| key.name)),
            };
            report.note(&node.place, format!("{path}.{name}"), fault);
            false
        });
        Section { report, path, place: node.place, nodes }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Place of a key that is given, else of the section.
    pub(super) fn place_of(&self, key: &str) -> Place {
        self.nodes.get(key).map_or_else(|| self.place.clone(), |node| node.place.clone())
    }

    /// Whether a key is given, be it well or badly.
    pub(super) fn has(&self, key: &str) -> bool {
        self.nodes.contains_key(key)
    }

    pub(super) fn note(&self, place: &Place, key: &str, fault: Fault) {
        self.report.note(place, format!("{}.{key}", self.path), fault);
    }

    pub(super) fn missing(&self, key: &str, right: &str) {
        self.note(&self.place, key, Fault::Missing(right.to_owned()));
    }

    fn wrong_type(&self, node: &Node, key: &str, right: &str) {
        self.note(
            &node.place,
            key,
            Fault::WrongType { found: node.value.type_name(), right: right.to_owned() },
        );
    }

    fn bad(&self, place: &Place, key: &str, found: &str, right: &str) {
        let shown: String = found.chars().take(80).collect();
        self.note(place, key, Fault::BadValue { found: Some(format!("{shown:?}")), right: right.to_owned() });
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Option<Located<String>> {
        let node = self.nodes.get(key)?;
        match &node.value {
            Value::Text(text) | Value::Untyped(text) => {
                Some(Located { place: node.place.clone(), value: text.clone() })
            }
            _ => {
                self.wrong_type(node, key, "a text");
                None
            }
        }
    }

    /// A text that `parse` understands; `right` describes what it takes.
    pub(super) fn parsed<T>(&self, key: &str, right: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(key)?;
        let parsed = parse(&text.value);
        if parsed.is_none() {
            self.bad(&text.place, key, &text.value, right);
        }
        parsed
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let right = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        self.parsed(key, &format!("one of {right}"), |text| {
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
        })
    }

    /// An integer in a range.
    pub(super) fn integer<T: TryFrom<u64>>(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        unit: &str,
    ) -> Option<T> {
        let node = self.nodes.get(key)?;
        let right = format!("{} to {} {unit}", range.start(), range.end());
        let right = right.trim_end();
        let integer = match &node.value {
            Value::Integer(integer) => Some(*integer),
            Value::Untyped(text) => text.trim().parse().ok(),
            _ => {
                self.wrong_type(node, key, &format!("an integer, {right},"));
                return None;
            }
        };
        let fits =
            integer.and_then(|integer| u64::try_from(integer).ok()).filter(|integer| range.contains(integer));
        let value = fits.and_then(|integer| T::try_from(integer).ok());
        if value.is_none() {
            let found = match &node.value {
                Value::Integer(integer) => integer.to_string(),
                Value::Untyped(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
                other => other.type_name().to_owned(),
            };
            self.note(&node.place, key, Fault::BadValue { found: Some(found), right: right.to_owned() });
        }
        value
    }

    /// Milliseconds.
    pub(super) fn millis(&self, key: &str, range: RangeInclusive<u64>) -> Option<Duration> {
        self.integer(key, range, "ms").map(Duration::from_millis)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let node = self.nodes.get(key)?;
        match &node.value {
            Value::Boolean(boolean) => Some(*boolean),
            Value::Untyped(text) if text == "true" => Some(true),
            Value::Untyped(text) if text == "false" => Some(false),
            Value::Untyped(text) => {
                self.bad(&node.place, key, text, "true or false");
                None
            }
            _ => {
                self.wrong_type(node, key, "true or false");
                None
            }
        }
    }

    /// A list of texts; in a variable, separated by commas or written as in TOML.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<Located<String>>> {
        let node = self.nodes.get(key)?;
        let inline;
        let items = match &node.value {
            Value::List(items) => items,
            Value::Untyped(text) if text.trim_start().starts_with('[') => {
                match parse_inline(&node.place, text) {
                    Some(Value::List(items)) => {
                        inline = items;
                        &inline
                    }
                    _ => {
                        let right = "a list as in TOML, or texts separated by commas".to_owned();
                        self.note(&node.place, key, Fault::BadValue { found: None, right });
                        return None;
                    }
                }
            }
            Value::Untyped(text) => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                let place = &node.place;
                return Some(
                    items.map(|item| Located { place: place.clone(), value: item.to_owned() }).collect(),
                );
            }
            _ => {
                self.wrong_type(node, key, "a list of texts");
                return None;
            }
        };
        let mut texts = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) | Value::Untyped(text) => {
                    texts.push(Located { place: item.place.clone(), value: text.clone() });
                }
                _ => self.wrong_type(item, key, "a text in a list"),
            }
        }
        Some(texts)
    }

    /// A text or a list of texts.
    pub(super) fn one_or_more(&self, key: &str) -> Option<Vec<Located<String>>> {
        match &self.nodes.get(key)?.value {
            Value::Text(_) => self.text(key).map(|text| vec![text]),
            _ => self.texts(key),
        }
    }

    /// A list of texts each of which `parse` understands.
    pub(super) fn parsed_list<T>(
        &self,
        key: &str,
        right: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let texts = self.texts(key)?;
        let parsed = texts.into_iter().filter_map(|text| {
            let value = parse(&text.value);
            if value.is_none() {
                self.bad(&text.place, key, &text.value, right);
            }
            value
        });
        Some(parsed.collect())
    }

    /// A secret, given as `key` or, as the path of a file, as `key_file`; one line break at its end is
    /// dropped.
    pub(super) fn secret(&self, key: &str) -> Option<Located<Secret>> {
        let file_key = format!("{key}_file");
        match (self.text(key), self.text(&file_key)) {
            (None, None) => None,
            (Some(text), None) => Some(Located { place: text.place, value: Secret::new(text.value) }),
            (None, Some(path)) => {
                let text = self.read_file(&file_key, &path)?;
                let text =
                    text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text));
                Some(Located { place: path.place, value: Secret::new(text) })
            }
            (Some(_), Some(path)) => {
                let fault = Fault::Conflict(format!("`{key}` and `{file_key}` are both given; keep one"));
                self.note(&path.place, &file_key, fault);
                None
            }
        }
    }

    /// Several secrets: a list, or a file with one a line.
    pub(super) fn secrets(&self, key: &str) -> Vec<Located<Secret>> {
        let file_key = format!("{key}_file");
        let given = self.texts(key).unwrap_or_default().into_iter();
        let mut secrets: Vec<_> =
            given.map(|text| Located { place: text.place, value: Secret::new(text.value) }).collect();
        if let Some(path) = self.text(&file_key)
            && let Some(text) = self.read_file(&file_key, &path)
        {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            secrets.extend(lines.map(|line| Located { place: path.place.clone(), value: Secret::new(line) }));
        }
        secrets
    }

    fn read_file(&self, key: &str, path: &Located<String>) -> Option<String> {
        let full = match path.place {
            Place::Line { .. } => self.report.folder.join(&path.value),
            _ => PathBuf::from(&path.value),
        };
        let reason = match (self.report.read)(&full) {
            Ok(text) if text.len() <= MAX_SECRET_FILE_BYTES => return Some(text),
            Ok(text) => format!("{} bytes are more than {MAX_SECRET_FILE_BYTES}", text.len()),
            Err(error) => error.to_string(),
        };
        self.note(&path.place, key, Fault::Unreadable { what: full.display().to_string(), reason });
        None
    }

    /// A table within this one.
    pub(super) fn table(&mut self, key: &str, keys: &[Key]) -> Option<Section<'a>> {
        let mut node = self.nodes.remove(key)?;
        if let Value::Untyped(text) = &node.value
            && let Some(value) = parse_inline(&node.place, text)
        {
            node.value = value;
        }
        let is_table = matches!(node.value, Value::Table(_));
        let section = Section::open(self.report, format!("{}.{key}", self.path), node, keys);
        is_table.then_some(section)
    }

    /// A list of tables within this one.
    pub(super) fn tables(&mut self, key: &str, keys: &[Key]) -> Vec<Section<'a>> {
        let Some(node) = self.nodes.remove(key) else { return Vec::new() };
        Section::open_list(self.report, &format!("{}.{key}", self.path), node, keys)
    }
}

/// The fault of a name that is not among the known ones.
pub(super) fn unknown(name: &str, known: impl Iterator<Item = &'static str>) -> Fault {
    let known: Vec<_> = known.collect();
    let best = known.iter().map(|known| (distance(name, known), *known)).min();
    let near = best
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 4))
        .map(|(_, known)| known.to_owned());
    Fault::UnknownKey { near, known }
}

/// Edit distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
