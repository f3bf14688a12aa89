//! Every key there is: one table a section. Readers refuse what is not in it, the reference is printed from
//! it.

/// One key of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shown: Shown,
    /// A secret never appears in an error and may also be given as a path, under the name `…_file`.
    pub(super) secret: bool,
    /// Meaning, unit and bounds, in sentences.
    pub(super) doc: &'static str,
}

impl Key {
    /// Name of the key that gives the path of a file with the value.
    pub(super) fn file_name(&self) -> Option<String> {
        self.secret.then(|| format!("{}_file", self.name))
    }
}

/// How the reference shows a key; texts are TOML values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown {
    /// What holds if nothing is said.
    Default(&'static str),
    /// An example for a key that has to be given.
    Required(&'static str),
    /// An example for a key that may be left out.
    Optional(&'static str),
    /// A documented key this version refuses; the text names the feature it belongs to.
    Later(&'static str),
}

const fn key(name: &'static str, shown: Shown, doc: &'static str) -> Key {
    Key { name, shown, secret: false, doc }
}

const fn secret(name: &'static str, shown: Shown, doc: &'static str) -> Key {
    Key { name, shown, secret: true, doc }
}

use Shown::{Default, Later, Optional, Required};

pub(super) const INSTANCE: &[Key] = &[
    key(
        "id",
        Optional("\"dais-0\""),
        "Name of the instance, stable over restarts: 1 to 63 of a-z A-Z 0-9 . _ -. Default: the host's name (`dev` with --dev).",
    ),
    key(
        "listen",
        Default("\"0.0.0.0:7800\""),
        "Public listener, address:port; port 0 takes a free one. With --dev the default is 127.0.0.1:7800.",
    ),
    key(
        "admin_listen",
        Default("\"127.0.0.1:7801\""),
        "Operations listener, address:port; port 0 takes a free one.",
    ),
    key(
        "public_url",
        Optional("\"https://{instance}.dais.example\""),
        "Where clients reach this instance; `{instance}` stands for its id. Default: made from the listener.",
    ),
    key("region", Later("placement by region"), "Region label."),
    key(
        "roles",
        Default("[\"signaling\", \"callbacks\", \"reaper\", \"archiver\", \"outbox\"]"),
        "What this process does: `archiver` moves what was committed into the ledger, `outbox` delivers events.",
    ),
    key("drain_ms", Default("30000"), "Longest graceful stop, 0 to 3600000 ms."),
];

pub(super) const REDIS: &[Key] = &[
    secret(
        "url",
        Default("\"redis://127.0.0.1:6379\""),
        "redis://, rediss:// (TLS), redis-sentinel:// or rediss-sentinel://. A Redis Cluster is refused.",
    ),
    key(
        "key_prefix",
        Required("\"prod\""),
        "Stage and branch that name every key and channel. Required, but with --dev the default is `dev`.",
    ),
    key(
        "sentinels",
        Optional("[\"10.0.0.1:26379\", \"10.0.0.2:26379\"]"),
        "Sentinels as host:port. Then `url` gives only user, password, database and TLS.",
    ),
    key(
        "sentinel_service",
        Optional("\"mymaster\""),
        "Name the Sentinels know the master by; goes with `sentinels`. Default `mymaster`.",
    ),
    key(
        "command_timeout_ms",
        Default("1000"),
        "Longest wait for one command, 10 to 60000 ms, at most (self_fence - heartbeat) / 2. Default: 1000 or that bound, the smaller.",
    ),
    key(
        "wait_replicas",
        Default("0"),
        "Nothing is acknowledged before so many replicas have it, 0 to 16. Who waits longer than command_timeout_ms is told to come again.",
    ),
    key(
        "unready_after_ms",
        Default("3000"),
        "Readiness turns red when Redis has been out of reach for so long, 100 to 600000 ms.",
    ),
];

pub(super) const LEASE: &[Key] = &[
    key(
        "heartbeat_ms",
        Default("5000"),
        "How often an instance renews what it holds, 50 to 60000 ms. Owner keys live three times that. One value for all instances.",
    ),
    key(
        "self_fence_ms",
        Default("12000"),
        "An instance that could not renew for so long stops serving the room. Default: 2.4 heartbeats. Between heartbeat and owner key life.",
    ),
    key(
        "failover_wait_ms",
        Default("25000"),
        "How long the reaper must have seen a silent instance before it acts. Default: 5 heartbeats. Above the owner key life.",
    ),
    key(
        "placement",
        Default("\"first_join\""),
        "Who owns a new room: `first_join`, the instance it was first joined at. `least_loaded` and `rendezvous` are not built yet.",
    ),
];

pub(super) const LEDGER: &[Key] = &[
    secret(
        "url",
        Default("\"sqlite://dais.db\""),
        "sqlite:// and the path of a local file, made if it is missing, for one host; postgres:// or mysql:// for several.",
    ),
    key(
        "lanes",
        Default("64"),
        "Lanes that committed changes go through. Fixed for ever: an instance that is told another number than the ledger knows does not start.",
    ),
    key(
        "lane_limit",
        Default("10000"),
        "Entries that may wait in one lane, 1 to 10000000. Beyond it what begins something is refused with LEDGER_UNAVAILABLE.",
    ),
    key(
        "lane_last_limit",
        Default("20000"),
        "Beyond so many nothing is committed at all, above lane_limit to 20000000. Default: twice lane_limit.",
    ),
    key("timeout_ms", Default("5000"), "Longest wait for one call of the ledger, 100 to 60000 ms."),
    key(
        "load_timeout_ms",
        Default("1000"),
        "Longest wait for it while somebody waits for a room, 10 to 60000 ms.",
    ),
    key("poll_ms", Default("50"), "Pause between two looks at empty lanes, 1 to 10000 ms."),
    key("batch", Default("2000"), "Most changes in one transaction, 1 to 20000."),
    key(
        "keep_ms",
        Default("600000"),
        "What the ledger took is kept in Redis for so long, 0 to 86400000 ms: a ledger restored from a backup is fed again with it.",
    ),
    key("keep_entries", Default("10000"), "And at most so many entries of each lane, 0 to 1000000."),
    key(
        "log_days",
        Default("0"),
        "Days that the command log is kept, 0 to 36500; 0: for ever. What rooms are recovered from stays.",
    ),
    key("outbox_days", Default("30"), "Days that events are kept after they were delivered, 1 to 36500."),
];

pub(super) const APP: &[Key] = &[
    key(
        "code",
        Required("\"school\""),
        "Code of the app, as in the tokens' `app`: 1 to 128 bytes without control characters.",
    ),
    secret(
        "secret",
        Required("\"change-me-change-me-change-me-32\""),
        "HS256 secret of its tokens, at least 32 bytes. Or `public_key`, or `keys`.",
    ),
    secret(
        "public_key",
        Optional("\"-----BEGIN PUBLIC KEY-----…\""),
        "Public key in PEM: Ed25519 (EdDSA), P-256 (ES256) or RSA of 2048 bits and more (RS256).",
    ),
    key("jwks_url", Later("keys fetched from a JWKS URL"), "Where the app publishes its keys."),
    key(
        "keys",
        Optional("[{ kid = \"2026-11\", secret = \"change-me-change-me-change-me-33\" }]"),
        "Several keys, told apart by the tokens' `kid`: `kid`, and `secret` or `public_key` (or `…_file`), and `alg` to insist on one.",
    ),
    secret(
        "api_keys",
        Optional("[\"0123456789abcdef01234567\"]"),
        "Keys of the app's back ends, at least 24 bytes each; kept only as digests. The file has one a line.",
    ),
    key("auto_create", Default("true"), "Whether joining a room that does not exist makes it."),
    key("seats", Default("8"), "Seats of a new room, 0 to 1000."),
    key("capacity", Default("0"), "Most people in a room, up to 1000000; 0 is no bound."),
    key("grace_ms", Default("30000"), "How long a lost connection keeps presence and seat, 0 to 3600000 ms."),
    key("publish_deadline_ms", Default("15000"), "How long a seat waits for its audio, 100 to 600000 ms."),
    key("ring_ms", Default("45000"), "How long a call rings, 1000 to 600000 ms."),
    key(
        "devices",
        Default("\"replace\""),
        "A second device of a user: `replace`s the first, is `reject`ed, or `allow`ed.",
    ),
    key(
        "media",
        Optional("\"local\""),
        "Name of a [[media]], or a list of several of one kind, which then share the rooms. Default: the only one, if there is one.",
    ),
    key(
        "reconcile_ms",
        Default("30000"),
        "How often a room is compared with the list of its external media server, 500 to 3600000 ms, spread by a fifth.",
    ),
    key("idle_ms", Default("30000"), "A room without people is unloaded after so long, 0 to 86400000 ms."),
    key("presence_window_ms", Default("100"), "Joins and leaves within it are told as one, 0 to 10000 ms."),
    key(
        "heartbeat_ms",
        Default("10000"),
        "How often presence is renewed for a client, 1000 to 300000 ms; told in the join's answer.",
    ),
    key("hooks", Later("hooks"), "Calls to the app's back end."),
    key(
        "sinks",
        Optional(
            "[{ name = \"back-end\", url = \"https://school.example/dais\", secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"] }]",
        ),
        "Who is told of what happens in the app's rooms, as [[app.sinks]]: see docs/events.md. `name`; `kind`, `webhook` or `stream`; of a webhook `url` and `secrets`, or `url_file` and `secrets_file`, of which several are for changing from one to the next; of a stream in Redis `stream_cap`, about how many events are kept (100000); `events`, patterns such as `room.*` (all); `ordered`, whether the events of a room come one after the other (true); `timeout_ms`, 100 to 60000, of one delivery (10000); `concurrency`, 1 to 1000 deliveries at a time (32); `give_up_hours`, 1 to 720, after which an event is a dead letter (24).",
    ),
    key(
        "callbacks",
        Optional("{ generic = { secret = \"change-me-change-me-change-me-34\" } }"),
        "How callbacks of media servers are proved at POST /rtc/{vendor}/{app}, as [app.callbacks]: `generic = { secret }`, at least 32 bytes; `janus = { username, password }`, `backend_user` and `backend_pwd` of its event handler, the password at least 16 bytes; `livekit = { api_key, api_secret }`, the key of its webhooks; `trtc = { key }` and `agora = { secret }`, as in their consoles. Each secret also as the path of a file, under the name key_file.",
    ),
];

pub(super) const SINK: &[Key] = &[
    key("name", Required("\"back-end\""), "What it is called in lists and metrics."),
    key("kind", Default("\"webhook\""), "`webhook`, or `stream`."),
    secret("url", Required("\"https://school.example/dais\""), "Where a webhook posts to."),
    secret("secrets", Required("[]"), "What it is signed with."),
    key("stream_cap", Default("100000"), "About so many events are kept in the stream."),
    key("events", Default("[\"*\"]"), "Which events."),
    key("ordered", Default("true"), "Whether the events of a room come one after the other."),
    key("timeout_ms", Default("10000"), "Longest wait for one delivery."),
    key("concurrency", Default("32"), "Most deliveries at a time."),
    key("give_up_hours", Default("24"), "After so long an event is a dead letter."),
];

pub(super) const CALLBACKS: &[Key] = &[
    key("generic", Optional("{ secret = \"\" }"), "Callbacks in our own form."),
    key("janus", Optional("{ username = \"\", password = \"\" }"), "Callbacks of Janus's event handlers."),
    key("livekit", Optional("{ api_key = \"\", api_secret = \"\" }"), "Webhooks of LiveKit."),
    key("trtc", Optional("{ key = \"\" }"), "Callbacks of TRTC."),
    key("agora", Optional("{ secret = \"\" }"), "Notifications of Agora."),
];

pub(super) const GENERIC_CALLBACKS: &[Key] =
    &[secret("secret", Required("\"\""), "What the media server signs with: HMAC-SHA256.")];

pub(super) const JANUS_CALLBACKS: &[Key] = &[
    key("username", Required("\"\""), "`backend_user` of the event handler."),
    secret("password", Required("\"\""), "`backend_pwd` of the event handler."),
];

pub(super) const LIVEKIT_CALLBACKS: &[Key] = &[
    key("api_key", Required("\"\""), "`webhook.api_key` of the server."),
    secret("api_secret", Required("\"\""), "The secret of that key."),
];

pub(super) const TRTC_CALLBACKS: &[Key] =
    &[secret("key", Required("\"\""), "The callbacks' key, as in the console.")];

pub(super) const AGORA_CALLBACKS: &[Key] =
    &[secret("secret", Required("\"\""), "The notifications' secret, as in the console.")];

pub(super) const APP_KEY: &[Key] = &[
    key("kid", Required("\"2026-11\""), "Name of the key."),
    secret("secret", Optional("\"\""), "HS256 secret."),
    secret("public_key", Optional("\"\""), "Public key in PEM."),
    key("alg", Optional("\"HS256\""), "HS256, EdDSA, ES256 or RS256; must be the key's own."),
];

pub(super) const MEDIA: &[Key] = &[
    key("name", Required("\"local\""), "Name of the media server, for [[app]] media."),
    key(
        "kind",
        Required("\"embedded\""),
        "`embedded`: an SFU in this process, for development and tests; `janus`, `livekit`, `trtc`, `agora`, or `generic`: signed HTTP. What each needs is in docs/media.",
    ),
    key(
        "url",
        Optional("\"http://10.0.0.5:7880\""),
        "Where the coordinator reaches it: janus ws(s)://, the others http(s)://. trtc, agora: default the vendor's own.",
    ),
    key(
        "public_url",
        Optional("\"wss://media.example\""),
        "janus, livekit: the WebSocket that clients connect to. Default: made from `url`.",
    ),
    key("admin_url", Optional("\"http://10.0.0.5:7088/admin\""), "janus: its admin API, for its health."),
    key("plugin", Optional("\"audiobridge\""), "janus: `audiobridge` (default) or `videoroom`."),
    key(
        "plain_rtp",
        Optional("true"),
        "janus: whether participants of an AudioBridge may send plain RTP, such as gateways. Default false.",
    ),
    key(
        "region",
        Optional("\"ap-guangzhou\""),
        "trtc: what takes its commands, `ap-guangzhou` (default), `ap-beijing` or `ap-singapore`.",
    ),
    key(
        "private_map_key",
        Optional("true"),
        "trtc: whether grants hold rights of their own, for applications with advanced permission control. Default true.",
    ),
    key(
        "credentials",
        Optional("{ api_key = \"key\", api_secret = \"change-me-change-me-change-me-35\" }"),
        "How to sign in to it, each also as the path of a file under the name key_file. janus: `room_secret` (of our own, at least 32 bytes), and what the server asks for: `api_secret`, `admin_secret`, `admin_key`, `token_secret` (its `token_auth_secret`). livekit: `api_key`, `api_secret`. trtc: `sdk_app_id`, a number, and `secret_key` of the application; `secret_id` and `api_secret_key`, an API key. agora: `app_id` and `app_certificate`, 32 hexadecimal digits each; `customer_id`, `customer_secret`. generic: `secret`, at least 32 bytes.",
    ),
    key(
        "token_ttl_ms",
        Optional("3600000"),
        "All but embedded and generic: how long a grant lets somebody in, 60000 to 86400000 ms. Default one hour.",
    ),
    key("weight", Default("1"), "Share of new rooms beside the app's other media servers, 1 to 1000."),
    key(
        "deadline_ms",
        Default("3000"),
        "Longest call with all its attempts, 100 to 30000 ms. agora: default 10000.",
    ),
    key(
        "check_ms",
        Default("2000"),
        "Its health is asked for so often, 100 to 60000 ms. trtc, agora: default 10000.",
    ),
    key(
        "stable_ms",
        Default("10000"),
        "One that failed gets new rooms when it has been well for so long, 0 to 600000 ms; twice as long each time that it fails again. Where no other is well, at once.",
    ),
    key("give_up_ms", Default("30000"), "Silence for so long is a failure, 1000 to 600000 ms."),
];

/// Those of [`MEDIA`] that only some kinds have a use for.
pub(super) const MEDIA_BY_KIND: &[&str] =
    &["url", "public_url", "admin_url", "plugin", "plain_rtp", "region", "private_map_key", "token_ttl_ms"];

pub(super) const MEDIA_CREDENTIALS: &[Key] = &[
    secret("api_key", Optional("\"\""), "LiveKit: name of the key."),
    secret("api_secret", Optional("\"\""), "LiveKit: the key. Janus: secret of its API."),
    secret("admin_secret", Optional("\"\""), "Janus: secret of its admin API."),
    secret("admin_key", Optional("\"\""), "Janus: what its plugin asks for when a room is made."),
    secret("token_secret", Optional("\"\""), "Janus: what its tokens are signed with."),
    secret("room_secret", Optional("\"\""), "Janus: what secrets and tokens of rooms are made from."),
    secret("sdk_app_id", Optional("1"), "TRTC: number of the application."),
    secret("secret_key", Optional("\"\""), "TRTC: the application's key."),
    secret("secret_id", Optional("\"\""), "TRTC: name of the API key."),
    secret("api_secret_key", Optional("\"\""), "TRTC: the API key."),
    secret("app_id", Optional("\"\""), "Agora: the project."),
    secret("app_certificate", Optional("\"\""), "Agora: its primary certificate."),
    secret("customer_id", Optional("\"\""), "Agora: name of the API's key."),
    secret("customer_secret", Optional("\"\""), "Agora: the API's key."),
    secret("secret", Optional("\"\""), "Generic: what requests are signed with."),
];

pub(super) const TURN: &[Key] = &[
    key(
        "urls",
        Optional("[\"stun:turn.example:3478\", \"turn:turn.example:3478?transport=udp\"]"),
        "STUN and TURN servers that every grant names.",
    ),
    secret(
        "secret",
        Optional("\"change-me-change-me-change-me-36\""),
        "Shared secret of the TURN servers (coturn: `use-auth-secret`, `static-auth-secret`), for credentials that end.",
    ),
    key("ttl_ms", Default("3600000"), "How long a credential is good for, 60000 to 86400000 ms."),
];

pub(super) const IM: &[Key] = &[
    key("levels", Later("messages"), "Levels of messages."),
    key("whitelist", Later("messages"), "Types let through."),
    key("buckets", Later("messages"), "Rates by level."),
    key("history", Later("messages"), "Length of the history."),
    key("ack", Later("messages"), "Acknowledged delivery."),
];

pub(super) const HTTP: &[Key] = &[
    key(
        "allowed_origins",
        Default("[]"),
        "Web origins let in beside the instance's own, as scheme://host[:port], for WebSocket, polling and HTTP; [\"*\"] is any, without credentials.",
    ),
    key(
        "trusted_proxies",
        Default("[]"),
        "Addresses or CIDR blocks of proxies whose X-Forwarded-For, -Proto and -Host are believed.",
    ),
];

pub(super) const LIMITS: &[Key] = &[
    key("connections", Default("10000"), "Connections of this instance, 1 to 10000000."),
    key(
        "handshake_timeout_ms",
        Default("10000"),
        "A connection that has not signed in by then is closed, 100 to 600000 ms.",
    ),
    key("max_event_bytes", Default("65536"), "Largest event or request body, 1024 to 16777216 bytes."),
    key("events_per_second", Default("50"), "Events of one connection, 1 to 100000 a second."),
    key(
        "events_burst",
        Default("100"),
        "Events a connection that was quiet may send at once, from events_per_second to 1000000. Default: twice events_per_second.",
    ),
    key(
        "joins_per_second",
        Default("500"),
        "Admissions of this instance, 1 to 1000000 a second. Default: a twentieth of `connections`, at least 1.",
    ),
    key(
        "joins_burst",
        Default("500"),
        "Admissions at once after quiet, from 1 to 1000000. Default: joins_per_second.",
    ),
    key("rooms_per_connection", Default("16"), "Rooms one connection may be in, 1 to 1000."),
    key("watch_rooms", Default("200"), "Rooms one connection may watch, 1 to 10000."),
    key("guests_per_room", Default("10000"), "Users with guest state in one room, 1 to 1000000."),
    key("json_depth", Default("16"), "Deepest nesting of JSON a client may send, 2 to 64."),
    key("custom_bytes", Default("16384"), "`custom` of a room's settings, 64 to 1048576 bytes."),
    key(
        "guest_custom_bytes",
        Default("4096"),
        "The state of one guest as JSON, `custom` included, 64 to 1048576 bytes.",
    ),
    key("attributes_bytes", Default("2048"), "Attributes of a peer, 64 to 1048576 bytes."),
    key(
        "outgoing_queue",
        Default("256"),
        "Packets waiting for one client before it is cut off, 16 to 65536.",
    ),
];

pub(super) const TELEMETRY: &[Key] = &[
    key("log", Default("\"json\""), "`json`, or `pretty` for people. With --dev the default is `pretty`."),
    key("otlp_endpoint", Later("traces over OTLP"), "Where traces go."),
];

/// Sections in the order of the reference; the flag says whether it is a list (`[[app]]`).
pub(super) const SECTIONS: &[(&str, bool, &[Key])] = &[
    ("instance", false, INSTANCE),
    ("redis", false, REDIS),
    ("lease", false, LEASE),
    ("ledger", false, LEDGER),
    ("app", true, APP),
    ("media", true, MEDIA),
    ("turn", false, TURN),
    ("im", false, IM),
    ("http", false, HTTP),
    ("limits", false, LIMITS),
    ("telemetry", false, TELEMETRY),
];

pub(super) fn section(name: &str) -> Option<&'static [Key]> {
    SECTIONS.iter().find(|(known, _, _)| *known == name).map(|(_, _, keys)| *keys)
}

pub(super) fn is_list(name: &str) -> bool {
    SECTIONS.iter().any(|(known, list, _)| *known == name && *list)
}
