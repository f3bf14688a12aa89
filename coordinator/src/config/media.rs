//! `[[media]]` and `[turn]`: the media servers, and what gets clients through to them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use media_bridge::{AgoraConfig, Checks, MediaKind, TrtcConfig};

use super::error::Fault;
use super::keys;
use super::secret::Secret;
use super::section::{Located, Section};

/// One `[[media]]`: one media server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Its name.
    pub name: Arc<str>,
    /// What it is and how it is reached.
    pub server: MediaServerConfig,
    /// Its share of new rooms, beside the others of an app.
    pub weight: u32,
    /// How long a call may take, all its attempts together.
    pub deadline: Duration,
    /// How its health is checked.
    pub checks: Checks,
}

impl Media {
    /// What kind of server it is.
    pub const fn kind(&self) -> MediaKind {
        match self.server {
            MediaServerConfig::Embedded => MediaKind::Embedded,
            MediaServerConfig::Janus { .. } => MediaKind::Janus,
            MediaServerConfig::Livekit { .. } => MediaKind::Livekit,
            MediaServerConfig::Trtc { .. } => MediaKind::Trtc,
            MediaServerConfig::Agora { .. } => MediaKind::Agora,
            MediaServerConfig::Generic { .. } => MediaKind::Generic,
        }
    }
}

/// What a media server is, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaServerConfig {
    /// The SFU in this process.
    Embedded,
    /// Janus.
    Janus {
        /// Its WebSocket, as the coordinator reaches it.
        url: String,
        /// Its WebSocket, as clients reach it.
        public_url: String,
        /// Its admin API over HTTP.
        admin_url: Option<String>,
        /// `videoroom` rather than `audiobridge`.
        videoroom: bool,
        /// Whether participants of an AudioBridge may send plain RTP.
        plain_rtp: bool,
        /// What the Janus API asks for.
        api_secret: Option<Secret>,
        /// What the admin API asks for.
        admin_secret: Option<Secret>,
        /// What its plugins ask for when a room is made.
        admin_key: Option<Secret>,
        /// What tokens that let clients use the Janus API are made with.
        token_secret: Option<Secret>,
        /// How long such a token is good for.
        token_ttl: Duration,
        /// What secrets of rooms and tokens of participants are made from.
        room_secret: Secret,
    },
    /// LiveKit.
    Livekit {
        /// Its API, over HTTP.
        url: String,
        /// Its WebSocket, as clients reach it.
        public_url: String,
        /// Name of the key.
        api_key: String,
        /// The key.
        api_secret: Secret,
        /// How long a token lets somebody in.
        token_ttl: Duration,
    },
    /// Tencent TRTC.
    Trtc {
        /// Where its API begins.
        url: String,
        /// The region that takes commands.
        region: String,
        /// The application.
        sdk_app_id: u32,
        /// The application's key, with which users are signed in.
        secret_key: Secret,
        /// Name of the API key.
        secret_id: String,
        /// The API key.
        api_secret_key: Secret,
        /// Whether grants hold rights of their own.
        private_map_key: bool,
        /// How long a grant lets somebody in.
        token_ttl: Duration,
    },
    /// Agora.
    Agora {
        /// Where its API begins.
        url: String,
        /// The project.
        app_id: String,
        /// The project's certificate, with which tokens are signed.
        app_certificate: Secret,
        /// Name of the API's key.
        customer_id: String,
        /// The API's key.
        customer_secret: Secret,
        /// How long a token lets somebody in.
        token_ttl: Duration,
    },
    /// Signed HTTP.
    Generic {
        /// Where its API begins.
        url: String,
        /// What requests are signed with.
        secret: Secret,
    },
}

impl MediaServerConfig {
    /// What all coordinators that use it know, and nobody else; `None` for the embedded one.
    pub const fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Embedded => None,
            Self::Janus { room_secret, .. } => Some(room_secret),
            Self::Livekit { api_secret, .. } => Some(api_secret),
            Self::Trtc { secret_key, .. } => Some(secret_key),
            Self::Agora { app_certificate, .. } => Some(app_certificate),
            Self::Generic { secret, .. } => Some(secret),
        }
    }
}

/// `[turn]`: STUN and TURN servers that clients are told of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// `stun:`, `turn:` and `turns:` URLs.
    pub urls: Vec<String>,
    /// What time-limited credentials are made with; `None`: there are only STUN servers.
    pub secret: Option<Secret>,
    /// How long a credential is good for.
    pub ttl: Duration,
}

/// Reads `[turn]`.
pub(super) fn read_turn(section: &Section<'_>) -> Turn {
    let right = "URLs of stun:, turn: or turns:";
    let urls = section.parsed_list("urls", right, |url| {
        let known = ["stun:", "stuns:", "turn:", "turns:"];
        (known.iter().any(|scheme| url.starts_with(scheme)) && url.len() <= 512).then(|| url.to_owned())
    });
    let urls = urls.unwrap_or_default();
    let secret = section.secret("secret").map(|secret| secret.value);
    if secret.is_none() && urls.iter().any(|url| url.starts_with("turn")) && !section.has("secret_file") {
        section.missing("secret", "the TURN server's shared secret (coturn: static-auth-secret)");
    }
    let ttl = section.millis("ttl_ms", 60_000..=86_400_000).unwrap_or(Duration::from_secs(3_600));
    Turn { urls, secret, ttl }
}

/// Reads the media servers; `--dev` assumes an embedded one where none is given.
pub(super) fn read(sections: Vec<Section<'_>>, dev: bool) -> Vec<Media> {
    if sections.is_empty() && dev {
        return vec![Media {
            name: "local".into(),
            server: MediaServerConfig::Embedded,
            weight: 1,
            deadline: DEADLINE,
            checks: Checks::default(),
        }];
    }
    let mut media: Vec<Media> = Vec::new();
    for mut section in sections {
        let place = section.place_of("name");
        let Some(one) = read_one(&mut section) else { continue };
        if media.iter().any(|other| other.name == one.name) {
            section.note(&place, "name", Fault::Conflict(format!("{:?} is given twice", one.name)));
        } else {
            media.push(one);
        }
    }
    media
}

const DEADLINE: Duration = Duration::from_secs(3);
/// Agora advises against less than five seconds.
const AGORA_DEADLINE: Duration = Duration::from_secs(10);
/// A vendor's cloud counts what it is asked.
const CLOUD_CHECK: Duration = Duration::from_secs(10);
const REGIONS: [&str; 3] = ["ap-guangzhou", "ap-beijing", "ap-singapore"];
/// Digits of Agora's ids and certificates.
const HEX_DIGITS: usize = 32;
const KINDS: [(&str, MediaKind); 6] = [
    ("embedded", MediaKind::Embedded),
    ("janus", MediaKind::Janus),
    ("livekit", MediaKind::Livekit),
    ("trtc", MediaKind::Trtc),
    ("agora", MediaKind::Agora),
    ("generic", MediaKind::Generic),
];

fn read_one(section: &mut Section<'_>) -> Option<Media> {
    let right = "1 to 64 bytes without control characters";
    let name = section.parsed("name", right, |name| {
        let fits = !name.is_empty() && name.len() <= 64 && !name.contains(char::is_control);
        fits.then(|| Arc::from(name))
    });
    if section.text("name").is_none() {
        section.missing("name", "apps refer to a media server by its name");
    }
    if section.text("kind").is_none() {
        section.missing("kind", "say what it is, for example \"embedded\"");
    }
    let kind = section.word("kind", &KINDS);
    let weight = section.integer("weight", 1..=1_000, "").unwrap_or(1);
    let deadline = section.millis("deadline_ms", 100..=30_000);
    let deadline = deadline.unwrap_or(if kind == Some(MediaKind::Agora) { AGORA_DEADLINE } else { DEADLINE });
    let assumed = Checks::default();
    let is_cloud = matches!(kind, Some(MediaKind::Trtc | MediaKind::Agora));
    let every = section.millis("check_ms", 100..=60_000);
    let checks = Checks {
        every: every.unwrap_or(if is_cloud { CLOUD_CHECK } else { assumed.every }),
        stable: section.millis("stable_ms", 0..=600_000).unwrap_or(assumed.stable),
        give_up: section.millis("give_up_ms", 1_000..=600_000).unwrap_or(assumed.give_up),
    };
    let server = kind.and_then(|kind| Asked::of(section, kind).read(kind));
    Some(Media { name: name?, server: server?, weight, deadline, checks })
}

/// A section and its credentials, what they must and may hold depending on the kind of server.
struct Asked<'s, 'a> {
    section: &'s Section<'a>,
    credentials: Option<Section<'a>>,
    /// What the kind has a use for.
    known: HashSet<&'static str>,
    is_whole: bool,
}

impl<'s, 'a> Asked<'s, 'a> {
    fn of(section: &'s mut Section<'a>, kind: MediaKind) -> Self {
        let place = section.place_of("credentials");
        let credentials = section.table("credentials", keys::MEDIA_CREDENTIALS);
        if kind == MediaKind::Embedded && credentials.is_some() {
            let fault = Fault::Conflict("an embedded media server has none".to_owned());
            section.note(&place, "credentials", fault);
        }
        Self { section, credentials, known: HashSet::new(), is_whole: true }
    }

    /// A URL of one of these schemes, without a final slash.
    fn url(&mut self, key: &'static str, schemes: &[&str], default: Option<String>) -> Option<String> {
        self.known.insert(key);
        let right = format!("a URL of {}", schemes.join(" or "));
        let read = self.section.parsed(key, &right, |text| {
            let url = url::Url::parse(text).ok()?;
            let fits = schemes.contains(&url.scheme())
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none();
            fits.then(|| text.trim_end_matches('/').to_owned())
        });
        if read.is_none() && !self.section.has(key) && default.is_none() {
            self.section.missing(key, &right);
        }
        let found = read.or(default);
        self.is_whole &= found.is_some();
        found
    }

    fn optional(&mut self, key: &'static str) -> Option<Secret> {
        self.known.insert(key);
        Some(self.credentials.as_ref()?.secret(key)?.value)
    }

    fn secret(&mut self, key: &'static str) -> Secret {
        let found = self.optional(key);
        let is_given = self
            .credentials
            .as_ref()
            .is_some_and(|credentials| credentials.has(key) || credentials.has(&format!("{key}_file")));
        if found.is_none() && !is_given {
            let nowhere = || self.section.place_of("credentials");
            let place = self.credentials.as_ref().map_or_else(nowhere, |it| it.place().clone());
            let right = "the media server cannot be used without".to_owned();
            self.section.note(&place, &format!("credentials.{key}"), Fault::Missing(right));
        }
        if found.as_ref().is_some_and(|secret| secret.expose().is_empty()) {
            self.bad(key, "not empty");
        }
        self.is_whole &= found.is_some();
        found.unwrap_or_else(|| Secret::new(""))
    }

    fn name(&mut self, key: &'static str) -> String {
        self.secret(key).expose().to_owned()
    }

    fn ttl(&mut self) -> Duration {
        self.known.insert("token_ttl_ms");
        let given = self.section.millis("token_ttl_ms", 60_000..=86_400_000);
        given.unwrap_or(Duration::from_secs(3_600))
    }

    fn read(mut self, kind: MediaKind) -> Option<MediaServerConfig> {
        let server = match kind {
            MediaKind::Embedded => MediaServerConfig::Embedded,
            MediaKind::Janus => self.janus(),
            MediaKind::Livekit => self.livekit(),
            MediaKind::Trtc => self.trtc(),
            MediaKind::Agora => self.agora(),
            MediaKind::Generic => MediaServerConfig::Generic {
                url: self.url("url", &["https", "http"], None).unwrap_or_default(),
                secret: self.long("secret"),
            },
        };
        self.refuse_others(kind);
        self.is_whole.then_some(server)
    }

    fn janus(&mut self) -> MediaServerConfig {
        let url = self.url("url", &["ws", "wss"], None).unwrap_or_default();
        self.known.extend(["plugin", "plain_rtp"]);
        let plugins = [("audiobridge", false), ("videoroom", true)];
        self.known.insert("admin_url");
        let admin_url =
            self.section.has("admin_url").then(|| self.url("admin_url", &["http", "https"], None));
        MediaServerConfig::Janus {
            public_url: self.url("public_url", &["ws", "wss"], Some(url.clone())).unwrap_or_default(),
            url,
            admin_url: admin_url.flatten(),
            videoroom: self.section.word("plugin", &plugins).unwrap_or(false),
            plain_rtp: self.section.boolean("plain_rtp").unwrap_or(false),
            api_secret: self.optional("api_secret"),
            admin_secret: self.optional("admin_secret"),
            admin_key: self.optional("admin_key"),
            token_secret: self.optional("token_secret"),
            token_ttl: self.ttl(),
            room_secret: self.long("room_secret"),
        }
    }

    fn livekit(&mut self) -> MediaServerConfig {
        let url = self.url("url", &["http", "https"], None).unwrap_or_default();
        let public = url.strip_prefix("http").map(|rest| format!("ws{rest}"));
        MediaServerConfig::Livekit {
            public_url: self.url("public_url", &["ws", "wss"], public).unwrap_or_default(),
            url,
            api_key: self.name("api_key"),
            api_secret: self.secret("api_secret"),
            token_ttl: self.ttl(),
        }
    }

    fn trtc(&mut self) -> MediaServerConfig {
        self.known.extend(["region", "private_map_key"]);
        let regions = REGIONS.map(|region| (region, region));
        let region = self.section.word("region", &regions).unwrap_or(REGIONS[0]);
        MediaServerConfig::Trtc {
            url: self.vendor_url(TrtcConfig::URL),
            region: region.to_owned(),
            sdk_app_id: self.sdk_app_id(),
            secret_key: self.secret("secret_key"),
            secret_id: self.name("secret_id"),
            api_secret_key: self.secret("api_secret_key"),
            private_map_key: self.section.boolean("private_map_key").unwrap_or(true),
            token_ttl: self.ttl(),
        }
    }

    fn agora(&mut self) -> MediaServerConfig {
        MediaServerConfig::Agora {
            url: self.vendor_url(AgoraConfig::URL),
            app_id: self.hex("app_id").expose().to_owned(),
            app_certificate: self.hex("app_certificate"),
            customer_id: self.name("customer_id"),
            customer_secret: self.secret("customer_secret"),
            token_ttl: self.ttl(),
        }
    }

    fn vendor_url(&mut self, default: &str) -> String {
        self.url("url", &["https", "http"], Some(default.to_owned())).unwrap_or_default()
    }

    /// The number of an application: an integer here, a text in a file.
    fn sdk_app_id(&mut self) -> u32 {
        let key = "sdk_app_id";
        let plain = self.credentials.as_ref().filter(|it| it.has(key) && !it.has("sdk_app_id_file"));
        if let Some(credentials) = plain {
            self.known.insert(key);
            let number = credentials.integer(key, 1..=u64::from(u32::MAX), "");
            self.is_whole &= number.is_some();
            return number.unwrap_or_default();
        }
        let text = self.secret(key);
        let number = text.expose().trim().parse().ok().filter(|number| *number > 0);
        if number.is_none() && !text.expose().is_empty() {
            self.bad(key, "1 to 4294967295");
        }
        number.unwrap_or_default()
    }

    /// An id or a certificate of Agora.
    fn hex(&mut self, key: &'static str) -> Secret {
        let secret = self.secret(key);
        let is_hex = secret.expose().len() == HEX_DIGITS
            && secret.expose().bytes().all(|byte| byte.is_ascii_hexdigit());
        if !secret.expose().is_empty() && !is_hex {
            self.bad(key, "32 hexadecimal digits");
        }
        secret
    }

    /// A secret of at least 32 bytes.
    fn long(&mut self, key: &'static str) -> Secret {
        let secret = self.secret(key);
        if !secret.expose().is_empty() && secret.expose().len() < 32 {
            self.bad(key, "at least 32 random bytes");
        }
        secret
    }

    fn bad(&mut self, key: &'static str, right: &str) {
        let credentials = self.credentials.as_ref().unwrap_or(self.section);
        let fault = Fault::BadValue { found: None, right: right.to_owned() };
        credentials.note(&credentials.place_of(key), key, fault);
        self.is_whole = false;
    }

    /// What a server of another kind would have a use for is a mistake here.
    fn refuse_others(&self, kind: MediaKind) {
        let fault = || Fault::Conflict(format!("a media server of kind {:?} has no use for it", kind.word()));
        for key in keys::MEDIA_BY_KIND.iter().filter(|key| !self.known.contains(**key)) {
            if self.section.has(key) {
                self.section.note(&self.section.place_of(key), key, fault());
            }
        }
        let Some(credentials) = &self.credentials else { return };
        for key in keys::MEDIA_CREDENTIALS.iter().filter(|key| !self.known.contains(key.name)) {
            if credentials.has(key.name) {
                credentials.note(&credentials.place_of(key.name), key.name, fault());
            }
        }
    }
}

/// The media servers of an app; `names` as it gives them, all of one kind.
pub(super) fn of_app(
    section: &Section<'_>,
    names: &[Located<String>],
    media: &[Media],
) -> (Vec<Arc<str>>, Option<MediaKind>) {
    let mut found: Vec<&Media> = Vec::new();
    for name in names {
        let Some(one) = media.iter().find(|media| *media.name == *name.value) else {
            let known = media.iter().map(|media| &*media.name).collect::<Vec<_>>().join(", ");
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there is {known}") };
            let right = format!("the name of a [[media]]; {known}");
            let shown = Some(format!("{:?}", name.value));
            section.note(&name.place, "media", Fault::BadValue { found: shown, right });
            continue;
        };
        if let Some(first) = found.first().filter(|first| first.kind() != one.kind()) {
            let fault = format!(
                "{:?} is of kind {}, {:?} of kind {}: those of one app must be of one kind",
                first.name,
                first.kind().word(),
                one.name,
                one.kind().word()
            );
            section.note(&name.place, "media", Fault::Conflict(fault));
            continue;
        }
        if !found.contains(&one) {
            found.push(one);
        }
    }
    let kind = found.first().map(|first| first.kind());
    (found.into_iter().map(|one| Arc::clone(&one.name)).collect(), kind)
}
