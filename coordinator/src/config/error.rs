//! What can be wrong with a configuration, and where.

use std::fmt;
use std::sync::Arc;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line (from 1) of the configuration file.
    Line {
        /// Name of the file as it was given.
        file: Arc<str>,
        /// Line number, from 1.
        line: usize,
    },
    /// The configuration file as a whole: something is missing from it.
    File(Arc<str>),
    /// An environment variable, by its name.
    Environment(String),
    /// A command line flag, such as `--listen`.
    Flag(&'static str),
    /// No file was read, and neither environment nor flags say it.
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::File(file) => f.write_str(file),
            Place::Environment(name) => write!(f, "environment variable {name}"),
            Place::Flag(name) => write!(f, "flag {name}"),
            Place::Nowhere => f.write_str("configuration"),
        }
    }
}

/// One thing that is wrong: place, key, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value stands.
    pub place: Place,
    /// The key in dotted form, such as `lease.heartbeat_ms`; empty for a file that cannot be read at all.
    pub key: String,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.place, self.fault)
        } else {
            write!(f, "{}: {}: {}", self.place, self.key, self.fault)
        }
    }
}

/// Kinds of faults. Values of secret keys never appear in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file, or a file that a `…_file` key names, could not be read.
    #[error("{what} cannot be read: {reason}")]
    Unreadable {
        /// The path.
        what: String,
        /// The operating system's words.
        reason: String,
    },
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A key that no version of this program knows.
    #[error("unknown key{}", hint(.near.as_deref(), .known))]
    UnknownKey {
        /// The known key that looks most like it.
        near: Option<String>,
        /// All keys that may stand here.
        known: Vec<&'static str>,
    },
    /// A key or value of the documented set that this version does not serve.
    #[error("known, not built yet: {0}")]
    NotBuilt(String),
    /// A value of another type.
    #[error("{found} where {right} should be")]
    WrongType {
        /// The type that stands there.
        found: &'static str,
        /// What should stand there.
        right: String,
    },
    /// A value of the right type that cannot be used.
    #[error("{}should be {right}", named(.found.as_deref()))]
    BadValue {
        /// The value; absent for secrets.
        found: Option<String>,
        /// What should stand there.
        right: String,
    },
    /// Nothing is given and nothing can be assumed.
    #[error("missing: {0}")]
    Missing(String),
    /// Two values that cannot both stand.
    #[error("{0}")]
    Conflict(String),
}

fn hint(near: Option<&str>, known: &[&'static str]) -> String {
    match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; known here: {}", known.join(", ")),
    }
}

fn named(value: Option<&str>) -> String {
    value.map(|value| format!("{value} is not usable; it ")).unwrap_or_default()
}

/// Every problem that was found, in the order of reading; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        ConfigError { problems }
    }

    /// The problems; there is at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
