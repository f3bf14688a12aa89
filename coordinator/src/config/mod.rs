//! Configuration: `dais.toml`, the environment and flags, checked before anything starts.
//!
//! Precedence: flag, environment, file, default. Every key may also be given as `DAIS_SECTION__KEY`; items of
//! lists by their number (`DAIS_APP__0__CODE`, or `DAIS_APP__CODE` where there is one app), lists of texts
//! separated by commas. Secrets may be given as the path of a file, under the name `…_file`
//! (`DAIS_APP__SECRET_FILE`). An empty variable counts as unset, and variables without `__` are left alone
//! unless they look like a slip for one of ours.
//!
//! An error names the key, the place (file and line, variable or flag) and what would be right; all that can
//! be found in one reading are reported together. Values of secrets never appear in errors, logs or debug
//! output.

mod app;
mod callbacks;
mod error;
mod instance;
mod keys;
mod lease;
mod ledger;
mod limits;
mod media;
mod overlay;
mod redis;
mod reference;
mod secret;
mod section;
mod sinks;
mod tree;
mod web;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use app::{App, DEV_APP, DEV_SECRET, Devices};
pub use callbacks::{Callbacks, Login};
pub use error::{ConfigError, Fault, Place, Problem};
pub use instance::{Instance, Role};
pub use lease::{Lease, Placement};
pub use ledger::{Ledger, LedgerUrl};
pub use limits::{AllowedOrigins, Http, Limits, LogFormat, Telemetry};
pub use media::{Media, MediaServerConfig, Turn};
pub use overlay::Overrides;
pub use redis::{Redis, RedisUrl, RedisUrlError};
pub use secret::{ApiKeys, Secret};
pub use sinks::{SinkConfig, SinkKind};
pub use web::{AddressBlock, PublicUrl, WebError, WebOrigin};

use section::{Report, Section};
use tree::Table;

/// File read where none is named and it is there.
pub const DEFAULT_FILE: &str = "dais.toml";

/// Largest configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A whole, checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// `--dev`: key prefix `dev`, loopback listener, pretty log, an app [`DEV_APP`] with [`DEV_SECRET`] and an embedded
    /// media server are assumed where nothing is given. The demands on Redis are relaxed elsewhere.
    pub dev: bool,
    /// `[instance]`
    pub instance: Instance,
    /// `[redis]`
    pub redis: Redis,
    /// `[lease]`
    pub lease: Lease,
    /// `[ledger]`
    pub ledger: Ledger,
    /// `[[app]]`, at least one, codes unique
    pub apps: Vec<App>,
    /// `[[media]]`, names unique
    pub media: Vec<Media>,
    /// `[turn]`
    pub turn: Turn,
    /// `[http]`
    pub http: Http,
    /// `[limits]`
    pub limits: Limits,
    /// `[telemetry]`
    pub telemetry: Telemetry,
}

impl Config {
    /// Reads `file` (or [`DEFAULT_FILE`], if it is there), lays `variables` and `overrides` over it and
    /// checks it all.
    ///
    /// `variables` is `std::env::vars_os()`, but in tests.
    ///
    /// # Errors
    /// Everything that is wrong, in one error.
    pub fn load(
        file: Option<&Path>,
        overrides: &Overrides,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let name: Arc<str> = path.display().to_string().into();
        let text = match read_bounded(path) {
            Ok(text) => Some(text),
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                let fault = Fault::Unreadable { what: "the file".to_owned(), reason: error.to_string() };
                return Err(ConfigError::new(vec![Problem {
                    place: Place::File(name),
                    key: String::new(),
                    fault,
                }]));
            }
        };
        let source = Source {
            file: text.as_deref().map(|text| (name, text)),
            folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
            host_name: host_name(),
            read: &read_bounded,
        };
        source.check(overrides, variables)
    }

    /// Checks a text as if it were the file `name`; nothing is read from disk but what `…_file` keys name,
    /// relative to the working directory.
    ///
    /// # Errors
    /// Everything that is wrong, in one error.
    pub fn from_text(
        name: &str,
        text: &str,
        overrides: &Overrides,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let source = Source {
            file: Some((name.into(), text)),
            folder: PathBuf::new(),
            host_name: host_name(),
            read: &read_bounded,
        };
        source.check(overrides, variables)
    }

    /// A documented `dais.toml` with every key and its default, for the manual.
    pub fn reference() -> String {
        reference::render()
    }

    /// The app with this code.
    pub fn app(&self, code: &str) -> Option<&App> {
        self.apps.iter().find(|app| app.code.as_str() == code)
    }

    /// The media servers of an app.
    pub fn media_of<'a>(&'a self, app: &'a App) -> impl Iterator<Item = &'a Media> {
        self.media.iter().filter(|media| app.media.contains(&media.name))
    }
}

/// Everything a configuration is made of but flags and environment.
struct Source<'a> {
    file: Option<(Arc<str>, &'a str)>,
    folder: PathBuf,
    host_name: Option<String>,
    read: &'a dyn Fn(&Path) -> std::io::Result<String>,
}

impl Source<'_> {
    fn check(
        self,
        overrides: &Overrides,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let (mut root, whole) = match self.file {
            None => (Table::new(), Place::Nowhere),
            Some((name, text)) => {
                (tree::parse_file(&name, text).map_err(ConfigError::new)?, Place::File(name))
            }
        };
        let mut problems = Vec::new();
        overlay::environment(&mut root, variables, &mut problems);
        overlay::flags(&mut root, overrides, &mut problems);
        let report = Report::new(problems, self.folder, self.read);
        let config = read_sections(&report, root, &whole, overrides.dev, self.host_name.as_deref());
        match config {
            Some(config) if report.count() == 0 => Ok(config),
            _ => Err(ConfigError::new(report.into_problems())),
        }
    }
}

/// Reads everything; `None` only where a problem has been noted.
fn read_sections(
    report: &Report<'_>,
    mut root: Table,
    whole: &Place,
    dev: bool,
    host_name: Option<&str>,
) -> Option<Config> {
    let root = &mut root;
    let mut section = |name, keys| Section::of_root(report, root, name, keys, whole);
    let instance = instance::read(&section("instance", keys::INSTANCE), dev, host_name);
    let lease = lease::read(&section("lease", keys::LEASE));
    let redis = redis::read(&section("redis", keys::REDIS), dev, &lease);
    let ledger = ledger::read(&section("ledger", keys::LEDGER));
    section("im", keys::IM);
    let http = limits::read_http(&section("http", keys::HTTP));
    let limits = limits::read(&section("limits", keys::LIMITS));
    let telemetry = limits::read_telemetry(&section("telemetry", keys::TELEMETRY), dev);
    let turn = media::read_turn(&section("turn", keys::TURN));
    let media = media::read(Section::list_of_root(report, root, "media", keys::MEDIA), dev);
    let sections = Section::list_of_root(report, root, "app", keys::APP);
    let given = !sections.is_empty();
    let mut apps = app::read(sections, dev, &media);
    if !given && dev {
        apps.extend(app::dev_app(&media));
    } else if !given {
        report.note(
            whole,
            "app",
            Fault::Missing("give at least one [[app]] with `code` and `secret`".to_owned()),
        );
    }
    for (name, node) in root.iter() {
        let known = keys::SECTIONS.iter().map(|(name, _, _)| *name);
        report.note(&node.place, name, section::unknown(name, known));
    }
    Some(Config {
        dev,
        instance: instance?,
        redis: redis?,
        lease,
        ledger: ledger?,
        apps,
        media,
        turn,
        http,
        limits,
        telemetry,
    })
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.ok().map(|name| name.trim().to_owned())
}
