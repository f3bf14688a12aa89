//! Environment and flags, laid over what the file says.

use std::ffi::OsString;

use super::error::{Fault, Place, Problem};
use super::keys;
use super::secret::Secret;
use super::tree::{Node, Table, Value};

const PREFIX: &str = "DAIS_";

/// Values of command line flags; they win over environment and file. Texts are validated like file values,
/// and errors name the flag.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--dev`: what a machine of one's own needs is assumed, see [`Config::dev`](super::Config::dev).
    pub dev: bool,
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin-listen`
    pub admin_listen: Option<String>,
    /// `--instance-id`
    pub instance_id: Option<String>,
    /// `--public-url`
    pub public_url: Option<String>,
    /// `--redis-url`
    pub redis_url: Option<Secret>,
    /// `--key-prefix`
    pub key_prefix: Option<String>,
    /// `--ledger-url`
    pub ledger_url: Option<Secret>,
}

/// Lays the flags over `root`.
pub(super) fn flags(root: &mut Table, overrides: &Overrides, problems: &mut Vec<Problem>) {
    let secret = |value: &Option<Secret>| value.as_ref().map(|secret| secret.expose().to_owned());
    let given = [
        ("--listen", ["instance", "listen"], overrides.listen.clone()),
        ("--admin-listen", ["instance", "admin_listen"], overrides.admin_listen.clone()),
        ("--instance-id", ["instance", "id"], overrides.instance_id.clone()),
        ("--public-url", ["instance", "public_url"], overrides.public_url.clone()),
        ("--redis-url", ["redis", "url"], secret(&overrides.redis_url)),
        ("--key-prefix", ["redis", "key_prefix"], overrides.key_prefix.clone()),
        ("--ledger-url", ["ledger", "url"], secret(&overrides.ledger_url)),
    ];
    for (flag, path, text) in given {
        if let Some(text) = text {
            let path = path.map(str::to_owned);
            lay(root, &path, text, &Place::Flag(flag), problems);
        }
    }
}

/// Lays the `DAIS_…` variables over `root`. Empty ones count as unset.
pub(super) fn environment(
    root: &mut Table,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    problems: &mut Vec<Problem>,
) {
    let mut given: Vec<(Vec<String>, String, Place)> = Vec::new();
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let place = Place::Environment(name.to_owned());
        let rest = name[PREFIX.len()..].to_ascii_lowercase();
        if !rest.contains("__") {
            problems.extend(single_underscore(&rest, place));
            continue;
        }
        let Some(value) = value.to_str() else {
            let right = "UTF-8 text".to_owned();
            problems.push(Problem {
                place,
                key: rest.replace("__", "."),
                fault: Fault::BadValue { found: None, right },
            });
            continue;
        };
        if !value.is_empty() {
            given.push((rest.split("__").map(str::to_owned).collect(), value.to_owned(), place));
        }
    }
    // Items of lists are made in the order of their numbers, whatever order the process got them in.
    given.sort_by_key(|(path, _, _)| {
        path.iter().map(|step| (step.parse::<usize>().ok(), step.clone())).collect::<Vec<_>>()
    });
    for (path, text, place) in given {
        lay(root, &path, text, &place, problems);
    }
}

/// `DAIS_REDIS_URL` is a slip worth telling; `DAIS_SERVICE_HOST` is what an orchestrator sets for a service
/// of that name, and none of our business.
fn single_underscore(rest: &str, place: Place) -> Option<Problem> {
    let (section, key) = rest.split_once('_')?;
    let near = keys::section(section)?
        .iter()
        .find(|known| known.name == key || known.file_name().as_deref() == Some(key))?;
    let right = format!("{PREFIX}{}__{}", section.to_ascii_uppercase(), key.to_ascii_uppercase());
    let known = vec![near.name];
    Some(Problem {
        place,
        key: format!("{section}.{key}"),
        fault: Fault::UnknownKey { near: Some(right), known },
    })
}

fn lay(root: &mut Table, path: &[String], text: String, place: &Place, problems: &mut Vec<Problem>) {
    let mut path = path.to_vec();
    // `DAIS_APP__SECRET` speaks of the only app there is.
    if path.len() > 1 && keys::is_list(&path[0]) && path[1].parse::<usize>().is_err() {
        let several =
            matches!(root.get(&path[0]).map(|node| &node.value), Some(Value::List(items)) if items.len() > 1);
        if several {
            let fault = Fault::Conflict(format!(
                "there are several [[{}]]; say which by its number from 0, as in {PREFIX}{}__0__{}",
                path[0],
                path[0].to_ascii_uppercase(),
                path[1..].join("__").to_ascii_uppercase()
            ));
            problems.push(Problem { place: place.clone(), key: path.join("."), fault });
            return;
        }
        path.insert(1, "0".to_owned());
    }
    if let Err(fault) = lay_in_table(root, &path, text, place) {
        problems.push(Problem { place: place.clone(), key: path.join("."), fault });
    }
}

fn lay_in_table(table: &mut Table, path: &[String], text: String, place: &Place) -> Result<(), Fault> {
    let Some((step, rest)) = path.split_first() else { return Ok(()) };
    if step.is_empty() {
        return Err(Fault::BadValue { found: None, right: "DAIS_SECTION__KEY".to_owned() });
    }
    if rest.is_empty() {
        // A secret and its file are one setting: the later word replaces either.
        match step.strip_suffix("_file") {
            Some(plain) => table.remove(plain),
            None => table.remove(&format!("{step}_file")),
        };
        table.insert(step.clone(), Node { place: place.clone(), value: Value::Untyped(text) });
        return Ok(());
    }
    let numbered = rest[0].parse::<usize>().is_ok();
    let node = table.entry(step.clone()).or_insert_with(|| Node {
        place: place.clone(),
        value: if numbered { Value::List(Vec::new()) } else { Value::Table(Table::new()) },
    });
    match &mut node.value {
        Value::Table(inner) => lay_in_table(inner, rest, text, place),
        Value::List(items) if numbered => lay_in_list(items, rest, text, place),
        other => Err(Fault::WrongType { found: other.type_name(), right: "a table".to_owned() }),
    }
}

fn lay_in_list(items: &mut Vec<Node>, path: &[String], text: String, place: &Place) -> Result<(), Fault> {
    let index = path[0].parse::<usize>().unwrap_or(usize::MAX);
    if index > items.len() {
        let right = format!("a number up to {} (there are {})", items.len(), items.len());
        return Err(Fault::BadValue { found: Some(path[0].clone()), right });
    }
    let rest = &path[1..];
    if index == items.len() {
        let value = if rest.is_empty() { Value::Untyped(String::new()) } else { Value::Table(Table::new()) };
        items.push(Node { place: place.clone(), value });
    }
    if rest.is_empty() {
        items[index] = Node { place: place.clone(), value: Value::Untyped(text) };
        return Ok(());
    }
    match &mut items[index].value {
        Value::Table(inner) => lay_in_table(inner, rest, text, place),
        other => Err(Fault::WrongType { found: other.type_name(), right: "a table".to_owned() }),
    }
}
