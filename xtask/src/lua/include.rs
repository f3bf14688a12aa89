//! Includes: shared pieces that the build copies into the scripts that name them.

use std::collections::{BTreeMap, BTreeSet};

use crate::lua::body::{Body, Definition};
use crate::lua::header::Header;
use crate::lua::{binding, calls};
use crate::problem::Problem;

pub(crate) struct Include<'t> {
    pub(crate) path: &'t str,
    name: &'t str,
    header: Header,
    pub(crate) body: Body<'t>,
    pub(crate) definitions: Vec<Definition>,
}

impl<'t> Include<'t> {
    pub(crate) fn parse(path: &'t str, name: &'t str, text: &'t str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let header = Header::parse(path, text, &mut problems);
        match header {
            Some(header) if problems.is_empty() => {
                let body = Body::parse(text, header.end);
                let definitions = body.definitions();
                Ok(Self { path, name, header, body, definitions })
            }
            _ => Err(problems),
        }
    }

    /// The file by itself: name, what it defines, what it must not touch.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        let mut problem = |line, message: String| problems.push(Problem::new(self.path, line, message));
        match &self.header.include {
            None => problem(1, "the header has no `include`".to_owned()),
            Some((named, line)) if named != self.name => {
                problem(*line, format!("`{named}` is in a file named `{}`", self.name));
            }
            Some(_) => {}
        }
        for slot in self.header.keys.iter().chain(&self.header.arguments) {
            problem(slot.line, "an include has no keys and no arguments of its own".to_owned());
        }
        for (name, parameters, line) in &self.header.defines {
            match self.definitions.iter().find(|definition| definition.name == *name) {
                None => problem(*line, format!("`{name}` is not defined")),
                Some(found) if found.parameters != *parameters => {
                    problem(*line, format!("`{name}` has other parameters in line {}", found.line));
                }
                Some(_) => {}
            }
        }
        for definition in &self.definitions {
            let listed = self.header.defines.iter().any(|(name, ..)| *name == definition.name);
            if !listed && !self.uses_itself(definition) {
                problem(
                    definition.line,
                    format!("`{}` is not in the header, and nothing here uses it", definition.name),
                );
            }
        }
        binding::check_untouched(self.path, &self.body, problems);
        calls::check(self.path, &self.body, problems);
    }

    /// Is it a piece of the include's own, used outside its own lines?
    fn uses_itself(&self, definition: &Definition) -> bool {
        let outside = [0..definition.range.start, definition.range.end..self.body.tokens.len()];
        outside.iter().any(|range| self.body.names(range).contains(definition.name.as_str()))
    }

    /// What a script may use.
    pub(crate) fn offers(&self, name: &str) -> bool {
        self.header.defines.iter().any(|(offered, ..)| offered == name)
    }
}

/// Every include that `body` names, and those they name, in no order. Missing ones are left out.
pub(crate) fn closure<'i, 't>(
    body: &Body<'_>,
    includes: &'i BTreeMap<String, Include<'t>>,
) -> Vec<&'i Include<'t>> {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&str> = body.includes.iter().map(|(name, _)| name.as_str()).collect();
    let mut found = Vec::new();
    while let Some(name) = waiting.pop() {
        let Some((name, include)) = includes.get_key_value(name) else { continue };
        if seen.insert(name) {
            waiting.extend(include.body.includes.iter().map(|(name, _)| name.as_str()));
            found.push(include);
        }
    }
    found
}

/// Includes that are missing or unused where they are named, and circles among the includes themselves.
pub(crate) fn check_graph(includes: &BTreeMap<String, Include<'_>>, problems: &mut Vec<Problem>) {
    for (name, include) in includes {
        check_named(include.path, &include.body, includes, problems);
        if closure(&include.body, includes).iter().any(|reached| reached.name == name) {
            problems.push(Problem::new(include.path, 1, format!("include `{name}` includes itself")));
        }
    }
}

/// The `--%include` lines of one file.
pub(crate) fn check_named(
    path: &str,
    body: &Body<'_>,
    includes: &BTreeMap<String, Include<'_>>,
    problems: &mut Vec<Problem>,
) {
    let own = body.locals(&body.whole());
    let used: BTreeSet<_> =
        body.names(&body.whole()).into_iter().filter(|name| !own.contains(name)).collect();
    let mut named = BTreeSet::new();
    for (name, line) in &body.includes {
        let mut problem = |message: String| problems.push(Problem::new(path, *line, message));
        if !named.insert(name) {
            problem(format!("include `{name}` is named twice"));
        }
        match includes.get(name) {
            None => problem(format!("there is no sound include `{name}`")),
            Some(include) => {
                let hidden =
                    include.definitions.iter().filter(|definition| !include.offers(&definition.name));
                let taken: Vec<_> =
                    hidden.filter(|definition| used.contains(definition.name.as_str())).collect();
                for definition in &taken {
                    problem(format!("`{}` is used and not offered by include `{name}`", definition.name));
                }
                // One include may lean on another that the script names before it.
                let leaned_on = closure(body, includes).into_iter().any(|other| {
                    other.name != name
                        && other.body.names(&other.body.whole()).iter().any(|name| include.offers(name))
                });
                if taken.is_empty() && !leaned_on && !used.iter().any(|name| include.offers(name)) {
                    problem(format!("nothing of include `{name}` is used"));
                }
            }
        }
    }
}
