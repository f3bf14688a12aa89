//! `[[app]]`: the tenants.

use std::sync::Arc;
use std::time::Duration;

use key_prefix::AppCode;
use media_bridge::MediaKind;
pub use room_cell::Devices;
use room_cell::Rules;

use super::callbacks::{self, Callbacks};
use super::error::{Fault, Place};
use super::keys;
use super::media::{self, Media};
use super::secret::{ApiKeys, Secret};
use super::section::{Located, Section};
use super::sinks::{self, SinkConfig};
use crate::auth::{KeyAlgorithm, TokenKey};

/// Secret of the app that `--dev` assumes. Everyone knows it, so no other configuration may use it.
pub const DEV_SECRET: &str = "dais-development-only-not-a-secret";

/// Code of the app that `--dev` assumes.
pub const DEV_APP: &str = "demo";

/// Most keys an app may list.
const MAX_KEYS: usize = 16;

/// Creating and closing a room may take so long.
const TRANSITION_MS: u64 = 15_000;
/// A media server's clock may be off by so much.
const CLOCK_TOLERANCE_MS: u64 = 1_000;

/// One `[[app]]`.
#[derive(Debug, Clone)]
pub struct App {
    /// The tenant.
    pub code: AppCode,
    /// Keys that verify its tokens; at least one.
    pub keys: Vec<TokenKey>,
    /// Keys of its back ends.
    pub api_keys: ApiKeys,
    /// Whether joining a room that does not exist makes it.
    pub auto_create: bool,
    /// Seats of a new room.
    pub seats: u32,
    /// Most people in a room; `None` is no bound.
    pub capacity: Option<u32>,
    /// How long a lost connection keeps presence and seat.
    pub grace: Duration,
    /// How long a seat waits for its audio.
    pub publish_deadline: Duration,
    /// How long a call rings.
    pub ring: Duration,
    /// Second devices.
    pub devices: Devices,
    /// Names of its media servers, all of one kind, each one of [`Config::media`](super::Config::media).
    pub media: Vec<Arc<str>>,
    /// Their kind; `None`: there are none.
    pub media_kind: Option<MediaKind>,
    /// How often a room is compared with the media server's own list.
    pub reconcile: Duration,
    /// A room without people is unloaded after so long.
    pub idle: Duration,
    /// Joins and leaves within it are told as one.
    pub presence_window: Duration,
    /// How often presence is renewed for a client.
    pub heartbeat: Duration,
    /// How callbacks are proved.
    pub callbacks: Callbacks,
    /// Who is told of what happens in its rooms.
    pub sinks: Vec<SinkConfig>,
}

impl App {
    /// What its rooms' cells are decided by.
    pub fn rules(&self) -> Rules {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Rules {
            devices: self.devices,
            publish_deadline_ms: ms(self.publish_deadline),
            ring_ms: ms(self.ring),
            transition_ms: TRANSITION_MS,
            clock_tolerance_ms: CLOCK_TOLERANCE_MS,
            external_media: self.has_external_media(),
            live_list: self.media_kind.is_some_and(MediaKind::tells_who_is_heard),
        }
    }

    /// Whether its media servers are other processes.
    pub fn has_external_media(&self) -> bool {
        self.media_kind.is_some_and(|kind| kind != MediaKind::Embedded)
    }

    /// People who are not seen for so long have no living owner who sees them.
    pub fn people_horizon(&self) -> Duration {
        3 * self.heartbeat
    }
}

/// Reads the apps; `names` are the media servers configured.
pub(super) fn read(sections: Vec<Section<'_>>, dev: bool, media: &[Media]) -> Vec<App> {
    let mut apps: Vec<App> = Vec::new();
    for mut section in sections {
        let place = section.place_of("code");
        let Some(app) = read_one(&mut section, dev, media) else { continue };
        if apps.iter().any(|other| other.code == app.code) {
            section.note(&place, "code", Fault::Conflict(format!("{:?} is given twice", app.code)));
        }
        apps.push(app);
    }
    apps
}

/// The app that `--dev` assumes where none is given.
pub(super) fn dev_app(media: &[Media]) -> Option<App> {
    Some(App {
        keys: vec![TokenKey::hs256(None, &Secret::new(DEV_SECRET)).ok()?],
        ..defaults(AppCode::new(DEV_APP).ok()?, media)
    })
}

fn defaults(code: AppCode, media: &[Media]) -> App {
    App {
        code,
        keys: Vec::new(),
        api_keys: ApiKeys::default(),
        auto_create: true,
        seats: 8,
        capacity: None,
        grace: Duration::from_secs(30),
        publish_deadline: Duration::from_secs(15),
        ring: Duration::from_secs(45),
        devices: Devices::Replace,
        media: match media {
            [only] => vec![Arc::clone(&only.name)],
            _ => Vec::new(),
        },
        media_kind: match media {
            [only] => Some(only.kind()),
            _ => None,
        },
        reconcile: Duration::from_secs(30),
        idle: Duration::from_secs(30),
        presence_window: Duration::from_millis(100),
        heartbeat: Duration::from_secs(10),
        callbacks: Callbacks::default(),
        sinks: Vec::new(),
    }
}

fn read_one(section: &mut Section<'_>, dev: bool, media: &[Media]) -> Option<App> {
    let right = "1 to 128 bytes without control characters";
    let code = section.parsed("code", right, |text| AppCode::new(text).ok());
    if section.text("code").is_none() {
        section.missing("code", "the code that the app's tokens carry as `app`");
    }
    let keys = read_keys(section, dev);
    let api_keys = section.secrets("api_keys");
    for short in api_keys.iter().filter(|key| key.value.expose().len() < ApiKeys::MIN_BYTES) {
        let right = format!("random texts of at least {} bytes each", ApiKeys::MIN_BYTES);
        section.note(&short.place, "api_keys", Fault::BadValue { found: None, right });
    }
    let callbacks = callbacks::read(section);
    let sinks = sinks::read(section);
    let devices = [("replace", Devices::Replace), ("reject", Devices::Reject), ("allow", Devices::Allow)];
    let assumed = defaults(code.clone().or_else(|| AppCode::new(DEV_APP).ok())?, media);
    let (media, media_kind) = match section.one_or_more("media") {
        Some(names) => media::of_app(section, &names, media),
        None => (assumed.media.clone(), assumed.media_kind),
    };
    let app = App {
        keys,
        api_keys: ApiKeys::from_plain(api_keys.iter().map(|key| &key.value)),
        auto_create: section.boolean("auto_create").unwrap_or(assumed.auto_create),
        seats: section.integer("seats", 0..=1_000, "").unwrap_or(assumed.seats),
        capacity: section.integer("capacity", 0..=1_000_000, "").filter(|capacity| *capacity > 0),
        grace: section.millis("grace_ms", 0..=3_600_000).unwrap_or(assumed.grace),
        publish_deadline: section
            .millis("publish_deadline_ms", 100..=600_000)
            .unwrap_or(assumed.publish_deadline),
        ring: section.millis("ring_ms", 1_000..=600_000).unwrap_or(assumed.ring),
        devices: section.word("devices", &devices).unwrap_or(assumed.devices),
        media,
        media_kind,
        reconcile: section.millis("reconcile_ms", 500..=3_600_000).unwrap_or(assumed.reconcile),
        idle: section.millis("idle_ms", 0..=86_400_000).unwrap_or(assumed.idle),
        presence_window: section.millis("presence_window_ms", 0..=10_000).unwrap_or(assumed.presence_window),
        heartbeat: section.millis("heartbeat_ms", 1_000..=300_000).unwrap_or(assumed.heartbeat),
        callbacks,
        sinks,
        ..assumed
    };
    (!app.keys.is_empty()).then_some(app)
}

/// The app's keys; where it has none, that is noted and the list is empty.
fn read_keys(section: &mut Section<'_>, dev: bool) -> Vec<TokenKey> {
    let listed = section.tables("keys", keys::APP_KEY);
    let single = (section.secret("secret"), section.secret("public_key"));
    let ways =
        usize::from(single.0.is_some()) + usize::from(single.1.is_some()) + usize::from(!listed.is_empty());
    if ways == 0 {
        // A file that could not be read has been noted already.
        let tried = ["secret", "secret_file", "public_key", "public_key_file", "keys"];
        if tried.iter().all(|key| section.place_of(key) == *section.place()) {
            section.missing(
                "secret",
                "give `secret`, `public_key` or `keys`: without one no token can be verified",
            );
        }
        return Vec::new();
    }
    if ways > 1 {
        let fault = "more than one of `secret`, `public_key` and `keys`; give one, or list all under `keys` with a `kid` each";
        section.note(&section.place_of("secret"), "secret", Fault::Conflict(fault.to_owned()));
        return Vec::new();
    }
    if let Some(key) = single_key(section, None, single, dev) {
        return vec![key];
    }
    let mut keys: Vec<TokenKey> = Vec::new();
    if listed.len() > MAX_KEYS {
        section.note(
            section.place(),
            "keys",
            Fault::Conflict(format!("{} keys, at most {MAX_KEYS}", listed.len())),
        );
    }
    for entry in &listed {
        let Some(key) = listed_key(entry, dev) else { continue };
        if keys.iter().any(|other| other.kid() == key.kid()) {
            let fault = Fault::Conflict(format!("{:?} is given twice", key.kid().unwrap_or_default()));
            entry.note(&entry.place_of("kid"), "kid", fault);
        }
        keys.push(key);
    }
    keys
}

fn listed_key(entry: &Section<'_>, dev: bool) -> Option<TokenKey> {
    let right = "1 to 128 bytes without control characters";
    let kid = entry.parsed("kid", right, |text| {
        (!text.is_empty() && text.len() <= 128 && !text.contains(char::is_control)).then(|| text.to_owned())
    });
    if entry.text("kid").is_none() {
        entry.missing("kid", "listed keys are told apart by the tokens' `kid`");
    }
    let given = (entry.secret("secret"), entry.secret("public_key"));
    if given.0.is_some() == given.1.is_some() {
        entry.note(
            entry.place(),
            "secret",
            Fault::Conflict("give either `secret` or `public_key`".to_owned()),
        );
        return None;
    }
    let key = single_key(entry, kid, given, dev)?;
    let algorithm = entry.word("alg", &KeyAlgorithm::ALL.map(|algorithm| (algorithm.name(), algorithm)));
    if let Some(algorithm) = algorithm.filter(|algorithm| *algorithm != key.algorithm()) {
        let fault =
            format!("{} is not for this key, which is for {}", algorithm.name(), key.algorithm().name());
        entry.note(&entry.place_of("alg"), "alg", Fault::Conflict(fault));
    }
    Some(key)
}

type Given = (Option<Located<Secret>>, Option<Located<Secret>>);

fn single_key(section: &Section<'_>, kid: Option<String>, given: Given, dev: bool) -> Option<TokenKey> {
    let (place, name, made): (Place, _, _) = match given {
        (Some(secret), _) => {
            if !dev && secret.value.expose() == DEV_SECRET {
                let fault =
                    Fault::Conflict("that is the development secret, which everyone knows".to_owned());
                section.note(&secret.place, "secret", fault);
            }
            (secret.place, "secret", TokenKey::hs256(kid, &secret.value))
        }
        (None, Some(pem)) => (pem.place, "public_key", TokenKey::public(kid, pem.value.expose())),
        (None, None) => return None,
    };
    match made {
        Ok(key) => Some(key),
        Err(error) => {
            section.note(&place, name, Fault::BadValue { found: None, right: error.to_string() });
            None
        }
    }
}
