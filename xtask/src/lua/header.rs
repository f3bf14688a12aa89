//! The comment a script opens with.

use crate::problem::Problem;

const KEY_TYPES: [&str; 8] = ["string", "integer", "hash", "set", "zset", "list", "stream", "any"];
const ARGUMENT_KINDS: [&str; 7] = ["text", "u64", "i64", "ms", "json", "flag", "count"];
const INVARIANTS: std::ops::RangeInclusive<u32> = 1..=25;

/// One numbered line: a key or an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    /// Written `3..`: this one and all after it.
    pub(crate) variadic: bool,
    pub(crate) line: usize,
}

/// What a header says. Lines are numbers in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) include: Option<(String, usize)>,
    pub(crate) purpose: Option<usize>,
    pub(crate) keys: Vec<Slot>,
    pub(crate) arguments: Vec<Slot>,
    /// Reply codes in order, with the line of each.
    pub(crate) codes: Vec<(String, usize)>,
    pub(crate) returns: Option<usize>,
    /// Line of the first `derives`.
    pub(crate) derives: Option<usize>,
    /// Name, parameters (none for a value) and line of each thing an include defines.
    pub(crate) defines: Vec<(String, Option<Vec<String>>, usize)>,
    /// Line of the closing bracket.
    pub(crate) end: usize,
}

impl Header {
    /// Reads the header of `text`; pushes what is wrong with its form.
    pub(crate) fn parse(file: &str, text: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let Some(content) = text.strip_prefix("--[[") else {
            problems.push(Problem::new(file, 1, "the file opens with no `--[[` header"));
            return None;
        };
        let Some((content, _)) = content.split_once("]]") else {
            problems.push(Problem::new(file, 1, "the header is never closed with `]]`"));
            return None;
        };
        let mut parser = Parser { file, header: Self::default(), names: Vec::new(), field: "", problems };
        for (index, line) in content.split('\n').enumerate() {
            parser.header.end = index + 1;
            let line = if index == 0 { line.trim_start() } else { line };
            parser.line(line.trim_end(), index + 1);
        }
        let header = parser.header;
        if header.purpose.is_none() {
            problems.push(Problem::new(file, 1, "the header has no `purpose`"));
        }
        check_numbers(file, "key", &header.keys, problems);
        check_numbers(file, "arg", &header.arguments, problems);
        Some(header)
    }
}

struct Parser<'p> {
    file: &'p str,
    header: Header,
    /// Kind and name of each slot so far.
    names: Vec<(&'p str, String)>,
    /// The field a line that begins with a space goes on with.
    field: &'p str,
    problems: &'p mut Vec<Problem>,
}

impl<'p> Parser<'p> {
    fn line(&mut self, line: &'p str, number: usize) {
        if line.is_empty() {
            self.field = "";
            return;
        }
        if line.starts_with([' ', '\t']) {
            return self.continuation(line.trim_start(), number);
        }
        let (field, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim_start();
        self.field = field;
        if value.is_empty() {
            self.problem(number, format!("`{field}` says nothing"));
        }
        match field {
            "include" => self.header.include = Some((value.to_owned(), number)),
            "purpose" if self.header.purpose.is_some() => self.problem(number, "a second `purpose`"),
            "purpose" => self.header.purpose = Some(number),
            "key" => self.slot("key", &KEY_TYPES, value, number),
            "arg" => self.slot("arg", &ARGUMENT_KINDS, value, number),
            "returns" => self.returns(value, number),
            "keeps" => self.keeps(value, number),
            "derives" => self.derives(value, number),
            "defines" => self.defines(value, number),
            unknown => self.problem(number, format!("a header has no field `{unknown}`")),
        }
    }

    fn continuation(&mut self, line: &str, number: usize) {
        match self.field {
            "purpose" => self.problem(number, "`purpose` is one line"),
            "returns" => self.returns(line, number),
            "keeps" => self.keeps(line, number),
            "defines" => self.defines(line, number),
            "" => self.problem(number, "a line that belongs to no field"),
            _ => {}
        }
    }

    fn slot(&mut self, kind: &'p str, types: &[&str], value: &str, line: usize) {
        let mut words = value.split_whitespace();
        let (Some(number), Some(of), Some(name)) = (words.next(), words.next(), words.next()) else {
            return self.problem(line, format!("`{kind}` is followed by a number, a type and a name"));
        };
        let (digits, variadic) = number.strip_suffix("..").map_or((number, false), |digits| (digits, true));
        let Ok(number) = digits.parse() else {
            return self.problem(line, format!("`{number}` is no number, nor one with `..`"));
        };
        if !types.contains(&of) {
            self.problem(line, format!("`{of}` is none of {}", types.join(", ")));
        }
        let named = (kind, name.to_owned());
        if self.names.contains(&named) {
            self.problem(line, format!("a second {kind} named `{name}`"));
        }
        self.names.push(named);
        let slots = if kind == "key" { &mut self.header.keys } else { &mut self.header.arguments };
        slots.push(Slot { number, variadic, line });
    }

    fn returns(&mut self, value: &str, line: usize) {
        self.header.returns.get_or_insert(line);
        for (at, _) in value.match_indices('{') {
            let Some(text) = value[at + 1..].trim_start().strip_prefix('"') else { continue };
            let Some((code, _)) = text.split_once('"') else { continue };
            if self.header.codes.iter().any(|(known, _)| known == code) {
                self.problem(line, format!("reply \"{code}\" is listed twice"));
            } else {
                self.header.codes.push((code.to_owned(), line));
            }
        }
    }

    fn keeps(&mut self, value: &str, line: usize) {
        for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let number = name.strip_prefix("I-").and_then(|number| number.parse().ok());
            if !number.is_some_and(|number| INVARIANTS.contains(&number)) {
                self.problem(line, format!("`{name}` is no invariant: I-1 to I-{}", INVARIANTS.end()));
            }
        }
    }

    fn derives(&mut self, value: &str, line: usize) {
        self.header.derives.get_or_insert(line);
        let made = value.split_once(" from ").is_some_and(|(what, of)| !what.is_empty() && !of.is_empty());
        if !made {
            self.problem(line, "`derives` says what is made, `from` and what it is made of");
        }
    }

    /// `f(a, b), LIMIT   and what they are for`.
    fn defines(&mut self, value: &str, line: usize) {
        let mut rest = value;
        loop {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() {
                return self.problem(line, "`defines` names nothing");
            }
            let called = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
            let parameters = called.map(|(inside, _)| {
                inside.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
            });
            self.header.defines.push((name.to_owned(), parameters, line));
            match called.map_or(after, |(_, after)| after).strip_prefix(',') {
                Some(next) if !next.trim().is_empty() => rest = next.trim_start(),
                _ => return,
            }
        }
    }

    fn problem(&mut self, line: usize, message: impl Into<String>) {
        self.problems.push(Problem::new(self.file, line, message));
    }
}

fn check_numbers(file: &str, kind: &str, slots: &[Slot], problems: &mut Vec<Problem>) {
    for (index, slot) in slots.iter().enumerate() {
        if slot.number != index + 1 {
            let message = format!("{kind} {} stands where {kind} {} belongs", slot.number, index + 1);
            problems.push(Problem::new(file, slot.line, message));
        }
        if slot.variadic && index + 1 != slots.len() {
            problems.push(Problem::new(file, slot.line, format!("only the last {kind} may be a tail")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<Header>, Vec<String>) {
        let mut problems = Vec::new();
        let header = Header::parse("a.lua", text, &mut problems);
        (header, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_whole_header_is_read() {
        let (header, problems) = parse(
            "--[[\npurpose   Renew.\nkey  1    string   owner   lease\narg  1    text     me      name\n\
             arg  2..  u64      tokens\nderives   channel  from prefix\n\
             returns   {\"ok\", deadline_ms} | {\"missing\"}\n          | { \"stolen\", owner }\nkeeps     I-1, I-2\n]]\n",
        );
        let header = header.unwrap();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(
            header.codes.iter().map(|(code, _)| code.as_str()).collect::<Vec<_>>(),
            ["ok", "missing", "stolen"]
        );
        assert_eq!((header.keys.len(), header.arguments.len(), header.derives), (1, 2, Some(6)));
        assert!(header.arguments[1].variadic);
        assert_eq!(header.end, 10);
    }

    #[test]
    fn an_include_says_what_it_defines() {
        let (header, problems) = parse(
            "--[[ include  lease\npurpose   Who holds it.\ndefines   holds(key, owner), free()   true or false\ndefines   TTL ]]\n",
        );
        let header = header.unwrap();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(header.include, Some(("lease".to_owned(), 1)));
        let parameters = Some(vec!["key".to_owned(), "owner".to_owned()]);
        assert_eq!(
            header.defines,
            [
                ("holds".to_owned(), parameters, 3),
                ("free".to_owned(), Some(Vec::new()), 3),
                ("TTL".to_owned(), None, 4),
            ]
        );
    }

    #[test]
    fn every_malformed_line_is_named() {
        let (_, problems) = parse(
            "--[[\npurpose  One\n  and two.\nkey 1 text a\nkey 3 string b\narg 1.. text c\narg 2 text c\narg x text d\n\
             keeps I-26, J\nderives a of b\nwhat  is this\nreturns {\"a\"} | {\"a\"}\n]]",
        );
        assert_eq!(
            problems,
            [
                "a.lua:3: `purpose` is one line",
                "a.lua:4: `text` is none of string, integer, hash, set, zset, list, stream, any",
                "a.lua:7: a second arg named `c`",
                "a.lua:8: `x` is no number, nor one with `..`",
                "a.lua:9: `I-26` is no invariant: I-1 to I-25",
                "a.lua:9: `J` is no invariant: I-1 to I-25",
                "a.lua:10: `derives` says what is made, `from` and what it is made of",
                "a.lua:11: a header has no field `what`",
                "a.lua:12: reply \"a\" is listed twice",
                "a.lua:5: key 3 stands where key 2 belongs",
                "a.lua:6: only the last arg may be a tail",
            ]
        );
    }

    #[test]
    fn no_header_or_an_open_one_is_no_header() {
        assert_eq!(parse("local a").1, ["a.lua:1: the file opens with no `--[[` header"]);
        assert_eq!(parse("--[[ purpose a").1, ["a.lua:1: the header is never closed with `]]`"]);
    }
}
