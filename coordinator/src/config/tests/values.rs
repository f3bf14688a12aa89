use std::time::Duration;

use super::super::web::{AddressBlock, PublicUrl, WebOrigin};
use super::super::{
    AllowedOrigins, Callbacks, DEV_APP, Devices, LogFormat, Login, MediaServerConfig, RedisUrl, Role, Secret,
};
use super::*;
use media_bridge::MediaKind;

#[test]
fn least_configuration_has_the_documented_defaults() {
    let config = read(LEAST).unwrap();
    assert_eq!(config.instance.listen, "0.0.0.0:7800".parse::<std::net::SocketAddr>().unwrap());
    assert_eq!(config.instance.admin_listen, "127.0.0.1:7801".parse::<std::net::SocketAddr>().unwrap());
    assert!(config.instance.has(Role::Reaper) && config.instance.roles.len() == 5);
    assert_eq!(config.redis.url.expose(), "redis://127.0.0.1:6379");
    assert_eq!(config.redis.command_timeout, Duration::from_secs(1));
    assert_eq!(config.lease.heartbeat, Duration::from_secs(5));
    assert_eq!(config.lease.self_fence, Duration::from_secs(12));
    assert_eq!(config.lease.owner_ttl(), Duration::from_secs(15));
    assert_eq!(config.lease.failover_wait, Duration::from_secs(25));
    assert_eq!(config.lease.retry_pause(), Duration::from_secs(1));
    let app = config.app("school").unwrap();
    assert_eq!((app.seats, app.capacity, app.auto_create, app.devices), (8, None, true, Devices::Replace));
    assert_eq!(app.grace, Duration::from_secs(30));
    assert_eq!(config.http.allowed_origins, AllowedOrigins::Listed(Vec::new()));
    assert_eq!(config.telemetry.log, LogFormat::Json);
    assert!(config.media.is_empty() && config.media_of(app).next().is_none());
    assert_eq!(config.ledger.url.expose(), "sqlite://dais.db");
    assert_eq!(
        (config.ledger.lanes, config.ledger.lane_limit, config.ledger.lane_last_limit),
        (64, 10_000, 20_000)
    );
}

#[test]
fn short_heartbeats_shorten_what_follows_from_them() {
    let config = read_with(LEAST, &[("DAIS_LEASE__HEARTBEAT_MS", "200")]).unwrap();
    assert_eq!(config.lease.self_fence, Duration::from_millis(480));
    assert_eq!(config.lease.failover_wait, Duration::from_millis(1000));
    assert_eq!(config.lease.owner_ttl(), Duration::from_millis(600));
    assert_eq!(config.lease.retry_pause(), Duration::from_millis(40));
    assert_eq!(config.redis.command_timeout, Duration::from_millis(140));
    let shortest = read_with(LEAST, &[("DAIS_LEASE__HEARTBEAT_MS", "50")]).unwrap();
    assert_eq!(shortest.redis.command_timeout, Duration::from_millis(35));
}

#[test]
fn flags_win_over_variables_over_file_over_defaults() {
    let text = LEAST.replace("key_prefix = \"t\"", "key_prefix = \"file\"");
    assert_eq!(read(&text).unwrap().redis.key_prefix, "file");
    let variables = [("DAIS_REDIS__KEY_PREFIX", "variable")];
    assert_eq!(read_with(&text, &variables).unwrap().redis.key_prefix, "variable");
    let overrides = Overrides { key_prefix: Some("flag".into()), ..Overrides::default() };
    let config = Config::from_text("dais.toml", &text, &overrides, vars(&variables)).unwrap();
    assert_eq!(config.redis.key_prefix, "flag");
    assert_eq!(read_with(&text, &[("DAIS_REDIS__KEY_PREFIX", "")]).unwrap().redis.key_prefix, "file");
}

#[test]
fn every_flag_arrives() {
    let overrides = Overrides {
        dev: true,
        listen: Some("127.0.0.1:0".into()),
        admin_listen: Some("127.0.0.2:0".into()),
        instance_id: Some("b-2".into()),
        public_url: Some("https://{instance}.dais.example/".into()),
        redis_url: Some(Secret::new("rediss://u:hush@r.example:6380/2")),
        key_prefix: Some("p".into()),
        ledger_url: Some(Secret::new("postgres://u:hush@h/db")),
    };
    let config = Config::from_text("x", "", &overrides, []).unwrap();
    assert_eq!(config.instance.listen.to_string(), "127.0.0.1:0");
    assert_eq!(config.instance.admin_listen.to_string(), "127.0.0.2:0");
    assert_eq!(config.instance.public_base().unwrap(), "https://b-2.dais.example");
    assert_eq!(config.instance.public_origin().unwrap().to_string(), "https://b-2.dais.example");
    assert_eq!(config.redis.url.to_string(), "rediss://r.example:6380/2");
    assert!(config.redis.url.is_tls());
    assert_eq!(config.ledger.url.to_string(), "postgres://u:***@h/db");
    assert_eq!(config.redis.key_prefix, "p");
    assert!(!format!("{config:?} {overrides:?}").contains("hush"));
}

#[test]
fn development_needs_nothing() {
    let overrides = Overrides { dev: true, ..Overrides::default() };
    let config = Config::from_text("x", "", &overrides, []).unwrap();
    assert_eq!(config.redis.key_prefix, "dev");
    assert_eq!(config.instance.listen.to_string(), "127.0.0.1:7800");
    assert_eq!(config.telemetry.log, LogFormat::Pretty);
    let app = config.app(DEV_APP).unwrap();
    assert_eq!(config.media_of(app).next().unwrap().kind(), MediaKind::Embedded);
    assert_eq!(app.keys.len(), 1);
}

#[test]
fn apps_can_come_from_variables_alone() {
    let config = read_with(
        "",
        &[
            ("DAIS_INSTANCE__ID", "a"),
            ("DAIS_INSTANCE__ROLES", "signaling, reaper"),
            ("DAIS_REDIS__KEY_PREFIX", "t"),
            ("DAIS_APP__1__CODE", "two"),
            ("DAIS_APP__1__KEYS", r#"[{ kid = "a", secret = "1123456789abcdef0123456789abcdef" }]"#),
            ("DAIS_APP__0__CODE", "one"),
            ("DAIS_APP__0__SECRET", "0123456789abcdef0123456789abcdef"),
            ("DAIS_APP__0__API_KEYS", "0123456789abcdef01234567, x123456789abcdef01234567"),
            ("DAIS_HTTP__ALLOWED_ORIGINS", r#"["https://a.example"]"#),
            ("DAIS_SERVICE_HOST", "10.0.0.1"),
            ("DAIS_PORT_7800_TCP", "tcp://10.0.0.1:7800"),
            ("OTHER__THING", "x"),
        ],
    )
    .unwrap();
    assert_eq!(config.instance.roles.iter().copied().collect::<Vec<_>>(), [Role::Signaling, Role::Reaper]);
    assert_eq!(config.apps[0].code.as_str(), "one");
    let keys = &config.apps[0].api_keys;
    assert_eq!(keys.len(), 2);
    assert!(keys.matches("x123456789abcdef01234567"));
    assert!(!keys.matches("") && !keys.matches("x123456789abcdef0123456"));
    assert_eq!(config.apps[1].keys[0].kid(), Some("a"));
    assert_eq!(
        config.http.allowed_origins,
        AllowedOrigins::Listed(vec!["https://a.example".parse().unwrap()])
    );
}

#[test]
fn secrets_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    put("secret", "0123456789abcdef0123456789abcdef\r\n");
    let url = put("url", "redis://u:hush@h:1\n");
    let keys = put("keys", "0123456789abcdef01234567\n\nx123456789abcdef01234567\n");
    let file = put(
        "dais.toml",
        "[instance]\nid = \"a\"\n[redis]\nkey_prefix = \"t\"\nurl = \"redis://other\"\n[[app]]\ncode = \"a\"\nsecret_file = \"secret\"\n",
    );
    let given = vars(&[("DAIS_REDIS__URL_FILE", &url), ("DAIS_APP__API_KEYS_FILE", &keys)]);
    let config = Config::load(Some(file.as_ref()), &Overrides::default(), given).unwrap();
    assert_eq!(config.redis.url.expose(), "redis://u:hush@h:1");
    assert_eq!(config.apps[0].api_keys.len(), 2);

    let both = format!("{LEAST}secret_file = {url:?}\n");
    assert!(
        messages(read(&both))
            .contains("dais.toml:8: app[0].secret_file: `secret` and `secret_file` are both given; keep one")
    );
    let replaced = vars(&[("DAIS_APP__SECRET", "z123456789abcdef0123456789abcdef")]);
    Config::load(Some(file.as_ref()), &Overrides::default(), replaced).unwrap();
    let large = put("large", &"x".repeat(64 * 1024 + 1));
    let said = messages(read_with(LEAST, &[("DAIS_REDIS__URL_FILE", &large)]));
    assert!(said.contains("redis.url_file: ") && said.contains("65537 bytes are more than 65536"), "{said}");
}

#[test]
fn sentinels_are_worked_into_the_url() {
    let with = |url: &str| {
        let line = format!("key_prefix = \"t\"\nurl = {url:?}\nsentinels = [\"s1:26379\", \"[::1]:26380\"]");
        read(&LEAST.replace("key_prefix = \"t\"", &line))
    };
    let url = with("rediss://u:p%40ss@ignored/3").unwrap().redis.url;
    assert_eq!(
        url.expose(),
        "rediss-sentinel://u:p%40ss@s1:26379/3?sentinelServiceName=mymaster&node=[::1]:26380"
    );
    assert!(url.is_sentinel() && url.is_tls());
    assert_eq!(url.to_string(), "rediss-sentinel://s1:26379/3");
    let said = messages(with("redis-sentinel://h:1?sentinelServiceName=m"));
    assert!(said.contains("where `sentinels` are listed as well"), "{said}");
    RedisUrl::parse(
        "redis-sentinel://u:p@h:1/0?node=b:2&sentinelServiceName=m&sentinelUsername=x&sentinelPassword=y",
    )
    .unwrap();
}

#[test]
fn the_only_media_server_is_every_apps() {
    let text = format!("{LEAST}[[media]]\nname = \"m\"\nkind = \"embedded\"\n");
    let config = read(&text).unwrap();
    assert_eq!(&*config.media_of(&config.apps[0]).next().unwrap().name, "m");
    let two = format!("{text}[[media]]\nname = \"n\"\nkind = \"embedded\"\n");
    assert_eq!(read(&two).unwrap().apps[0].media.len(), 0);
    assert!(messages(read(&two.replace("\"n\"", "\"m\""))).contains("media[1].name: \"m\" is given twice"));
}

#[test]
fn admissions_follow_connections() {
    for (connections, joins) in [("10000", 500), ("7", 1)] {
        let limits = read_with(LEAST, &[("DAIS_LIMITS__CONNECTIONS", connections)]).unwrap().limits;
        assert_eq!((limits.joins_per_second, limits.joins_burst), (joins, joins));
    }
    let limits = read_with(LEAST, &[("DAIS_LIMITS__EVENTS_PER_SECOND", "7")]).unwrap().limits;
    assert_eq!(limits.events_burst, 14);
}

#[test]
fn origins_are_what_browsers_send() {
    for (text, shown) in [
        ("https://A.Example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:443", "http://a.example:443"),
        ("http://[::1]:7800", "http://[::1]:7800"),
        ("capacitor://localhost", "capacitor://localhost"),
    ] {
        assert_eq!(text.parse::<WebOrigin>().unwrap().to_string(), shown);
    }
    for text in [
        "",
        "null",
        "*",
        "a.example",
        "https://",
        "https://a/",
        "https://u@a",
        "https://a:",
        "https://a:x",
        "https://a:99999",
        "https://a:+1",
        "https://ä.example",
        "https://[::1",
        "https://[x]",
        "://a",
        "1x://a",
    ] {
        assert!(text.parse::<WebOrigin>().is_err(), "{text}");
    }
}

#[test]
fn public_urls_take_the_id_in_host_or_path() {
    let id = key_prefix::InstanceName::new("a_1").unwrap();
    let url = PublicUrl::parse("https://dais.example:8443/i/{instance}/").unwrap();
    assert_eq!(url.of_instance(&id), "https://dais.example:8443/i/a_1");
    assert_eq!(url.origin_of_instance(&id).to_string(), "https://dais.example:8443");
    assert!(url.suits(&id));
    assert!(!PublicUrl::parse("https://{instance}.x").unwrap().suits(&id));
    for text in [
        "https://u:p@h",
        "https://h/?q",
        "https://h/#f",
        "https://h/a b",
        "https://{other}.h",
        "ftp://h",
        "h",
    ] {
        assert!(PublicUrl::parse(text).is_err(), "{text}");
    }
}

#[test]
fn blocks_hold_their_addresses() {
    for (block, address, inside) in [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("0.0.0.0/0", "1.2.3.4", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "fd00::1", true),
        ("fd00::/8", "fd12::1", true),
        ("fd00::/8", "fe80::1", false),
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.2", false),
    ] {
        let contains = block.parse::<AddressBlock>().unwrap().contains(address.parse().unwrap());
        assert_eq!(contains, inside, "{address} in {block}");
    }
    for text in ["", "10.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "host"] {
        assert!(text.parse::<AddressBlock>().is_err(), "{text}");
    }
}

#[test]
fn reference_can_be_used_as_it_stands_and_states_the_true_defaults() {
    let text = Config::reference();
    let mut reference =
        Config::from_text("reference", &text, &Overrides::default(), vars(&[("DAIS_INSTANCE__ID", "a-1")]))
            .unwrap();
    let least = read(LEAST).unwrap();
    // What the reference has to make up: the app's name and key, a media server, a prefix.
    reference.apps[0].code = least.apps[0].code.clone();
    reference.apps[0].media.clear();
    reference.apps[0].media_kind = None;
    reference.media.clear();
    reference.redis.key_prefix = least.redis.key_prefix.clone();
    assert_eq!(format!("{reference:#?}"), format!("{least:#?}"));
}

#[test]
fn examples_in_the_reference_are_right_too() {
    let text = Config::reference();
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let Some((key, _)) = line
            .split_once(" = ")
            .filter(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        else {
            continue;
        };
        let mut used = text.replace(&format!("# {line}\n"), &format!("{line}\n"));
        if matches!(key, "keys" | "public_key") {
            used = used.lines().filter(|line| !line.starts_with("secret = ")).collect::<Vec<_>>().join("\n");
        }
        // What only other kinds of media servers have a use for has its own test.
        if (key == "public_url" && line.contains("media.")) || OF_MEDIA_SERVERS.contains(&key) {
            continue;
        }
        if key == "sentinel_service" {
            used = used.replace("# sentinels = ", "sentinels = ");
        }
        let result = read(&used);
        // The example of a public key is cut short.
        assert!(result.is_ok() || key == "public_key", "{key}: {}", messages(result));
    }
}

/// Keys of `[[media]]` that an embedded media server has no use for; those of `[turn]` go together.
const OF_MEDIA_SERVERS: [&str; 9] = [
    "urls",
    "plugin",
    "plain_rtp",
    "admin_url",
    "region",
    "private_map_key",
    "credentials",
    "token_ttl_ms",
    "url",
];

const JANUS: &str = r#"
[[media]]
name = "one"
kind = "janus"
url = "ws://10.0.0.1:8188"
admin_url = "http://10.0.0.1:7088/admin"
plugin = "videoroom"
deadline_ms = 500
credentials = { room_secret = "0123456789abcdef0123456789abcdef", api_secret = "a" }
"#;

#[test]
fn an_app_has_media_servers_of_one_kind() {
    let two = JANUS.replace("\"one\"", "\"two\"").replace("10.0.0.1", "10.0.0.2");
    let text =
        LEAST.replace("[[app]]\n", "[[app]]\nmedia = [\"one\", \"two\"]\nreconcile_ms = 500\n") + JANUS;
    let config = read(&format!("{text}{two}")).unwrap();
    let app = &config.apps[0];
    assert_eq!((app.media_kind, app.reconcile), (Some(MediaKind::Janus), Duration::from_millis(500)));
    assert!(app.has_external_media() && app.rules().external_media && app.rules().live_list);
    let names: Vec<&str> = config.media_of(app).map(|media| &*media.name).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(config.media[0].deadline, Duration::from_millis(500));
    let MediaServerConfig::Janus { public_url, videoroom, .. } = &config.media[1].server else { panic!() };
    assert_eq!((public_url.as_str(), *videoroom), ("ws://10.0.0.2:8188", true));
    let livekit = "[[media]]\nname = \"two\"\nkind = \"livekit\"\nurl = \"http://l:7880\"\n\
                   credentials = { api_key = \"k\", api_secret = \"s\" }\n";
    let mixed = messages(read(&format!("{text}{livekit}")));
    assert!(mixed.contains("those of one app must be of one kind"), "{mixed}");
}

#[test]
fn what_a_media_server_needs_is_named_where_it_is_missing_or_of_another_kind() {
    for (was, is, message) in [
        ("url = \"ws://10.0.0.1:8188\"\n", "", "media[0].url: missing: a URL of ws or wss"),
        ("ws://10.0.0.1:8188", "http://10.0.0.1", "media[0].url: \"http://10.0.0.1\" is not usable"),
        ("ws://10.0.0.1:8188", "ws://u:p@10.0.0.1", "media[0].url: \"ws://u:p@10.0.0.1\" is not usable"),
        (
            "room_secret = \"0123456789abcdef0123456789abcdef\", ",
            "",
            "media[0].credentials.room_secret: missing",
        ),
        ("0123456789abcdef0123456789abcdef", "short", "room_secret: should be at least 32 random bytes"),
        (
            "plugin = \"videoroom\"",
            "plugin = \"x\"",
            "media[0].plugin: \"x\" is not usable; it should be one of",
        ),
        ("plugin = \"videoroom\"", "regoin = \"x\"", "media[0].regoin: unknown key"),
        ("plugin = \"videoroom\"", "region = \"x\"", "region: a media server of kind \"janus\" has no use"),
        ("api_secret = \"a\"", "api_key = \"a\"", "api_key: a media server of kind \"janus\" has no use"),
        ("kind = \"janus\"", "kind = \"zoom\"", "media[0].kind: \"zoom\" is not usable"),
        (
            "api_secret = \"a\"",
            "api_secret = \"\", app_id = \"1\"",
            "app_id: a media server of kind \"janus\" has",
        ),
        ("deadline_ms = 500", "deadline_ms = 5", "media[0].deadline_ms: 5 is not usable"),
    ] {
        let text = format!("{LEAST}{JANUS}").replace(was, is);
        let found = messages(read(&text));
        assert!(found.contains(message), "{is}: {found}");
        assert!(!found.contains("0123456789"), "{found}");
    }
}

const CERTIFICATE: &str = "5CFd2fd1755d40ecb72977518be15d3b";

fn trtc(lines: &str) -> String {
    format!(
        "{LEAST}[[media]]\nname = \"cloud\"\nkind = \"trtc\"\n{lines}\n[media.credentials]\n\
         sdk_app_id = 1400000000\nsecret_key = \"s-key\"\nsecret_id = \"AKID\"\napi_secret_key = \"a-key\"\n"
    )
}

fn agora(lines: &str) -> String {
    format!(
        "{LEAST}[[media]]\nname = \"cloud\"\nkind = \"agora\"\n{lines}\n[media.credentials]\n\
         app_id = \"970CA35de60c44645bbae8a215061b33\"\napp_certificate = \"{CERTIFICATE}\"\n\
         customer_id = \"c\"\ncustomer_secret = \"c-key\"\n"
    )
}

#[test]
fn clouds_are_reached_and_checked_as_their_vendors_ask() {
    let s = Duration::from_secs;
    let config = read(&trtc("")).unwrap();
    assert_eq!(config.apps[0].media_kind, Some(MediaKind::Trtc));
    assert_eq!((config.media[0].deadline, config.media[0].checks.every), (s(3), s(10)));
    let trtc_server = |url: &str, region: &str, private_map_key, token_ttl| MediaServerConfig::Trtc {
        url: url.to_owned(),
        region: region.to_owned(),
        sdk_app_id: 1_400_000_000,
        secret_key: Secret::new("s-key"),
        secret_id: "AKID".to_owned(),
        api_secret_key: Secret::new("a-key"),
        private_map_key,
        token_ttl,
    };
    let assumed = trtc_server("https://trtc.tencentcloudapi.com/", "ap-guangzhou", true, s(3_600));
    assert_eq!(config.media[0].server, assumed);
    let lines = "url = \"http://127.0.0.1:8080/\"\nregion = \"ap-singapore\"\nprivate_map_key = false\n\
                 token_ttl_ms = 60000\ncheck_ms = 200\ndeadline_ms = 500";
    let config = read(&trtc(lines)).unwrap();
    assert_eq!(config.media[0].server, trtc_server("http://127.0.0.1:8080", "ap-singapore", false, s(60)));
    let (deadline, every) = (config.media[0].deadline, config.media[0].checks.every);
    assert_eq!((deadline, every), (Duration::from_millis(500), Duration::from_millis(200)));

    let config = read(&agora("")).unwrap();
    let app = &config.apps[0];
    assert_eq!((app.media_kind, app.rules().live_list), (Some(MediaKind::Agora), false));
    assert_eq!((config.media[0].deadline, config.media[0].checks.every), (s(10), s(10)));
    let MediaServerConfig::Agora { url, app_certificate, token_ttl, .. } = &config.media[0].server else {
        panic!("{config:?}")
    };
    assert_eq!(
        (url.as_str(), app_certificate.expose(), *token_ttl),
        ("https://api.agora.io", CERTIFICATE, s(3_600))
    );
    let clock: media_bridge::ClockMs = std::sync::Arc::new(|| 0_i64);
    for config in [read(&trtc("")).unwrap(), config] {
        crate::media::MediaServers::new(&config, "t", &clock).unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("-key") && !shown.contains(CERTIFICATE), "{shown}");
    }
}

#[test]
fn the_pages_of_clouds_have_examples_that_are_right() {
    let (least, _) = LEAST.split_once("[[app]]").unwrap();
    for (page, kind) in [
        (include_str!("../../../../docs/media/trtc.md"), MediaKind::Trtc),
        (include_str!("../../../../docs/media/agora.md"), MediaKind::Agora),
    ] {
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let example =
            example.replace("[[app]]\n", "[[app]]\nsecret = \"0123456789abcdef0123456789abcdef\"\n");
        let config = read(&format!("{least}{example}")).unwrap();
        assert_eq!(config.apps[0].media_kind, Some(kind));
        assert_eq!(config.apps[0].callbacks.readers()[0].vendor(), kind.word());
    }
}

#[test]
fn credentials_of_clouds_come_from_files_and_variables_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app");
    let text = trtc("").replace("sdk_app_id = 1400000000", &format!("sdk_app_id_file = {file:?}"));
    let number = |config: Config| match config.media[0].server {
        MediaServerConfig::Trtc { sdk_app_id, .. } => sdk_app_id,
        ref other => panic!("{other:?}"),
    };
    std::fs::write(&file, "1400000001\n").unwrap();
    assert_eq!(number(read(&text).unwrap()), 1_400_000_001);
    std::fs::write(&file, "hush\n").unwrap();
    let message = messages(read(&text));
    assert!(
        message.contains("credentials.sdk_app_id: should be 1 to 4294967295") && !message.contains("hush"),
        "{message}"
    );
    let variable = ("DAIS_MEDIA__CREDENTIALS__SDK_APP_ID", "1400000002");
    assert_eq!(number(read_with(&trtc(""), &[variable]).unwrap()), 1_400_000_002);
    std::fs::write(&file, CERTIFICATE).unwrap();
    let text = agora("").replace(
        &format!("app_certificate = \"{CERTIFICATE}\""),
        &format!("app_certificate_file = {file:?}"),
    );
    assert_eq!(read(&text).unwrap().media, read(&agora("")).unwrap().media);
}

#[test]
fn turn_servers_come_with_a_secret() {
    let turn = "[turn]\nurls = [\"stun:t:3478\", \"turn:t:3478\"]\n";
    let message = messages(read(&format!("{LEAST}{turn}")));
    assert!(message.contains("turn.secret: missing"), "{message}");
    let config = read(&format!("{LEAST}{turn}secret = \"s\"\nttl_ms = 60000\n")).unwrap();
    assert_eq!((config.turn.urls.len(), config.turn.ttl), (2, Duration::from_secs(60)));
    assert!(messages(read(&format!("{LEAST}[turn]\nurls = [\"http://t\"]\n"))).contains("turn.urls"));
    assert!(read(&format!("{LEAST}[turn]\nurls = [\"stun:t:1\"]\n")).is_ok());
}

#[test]
fn the_secret_of_generic_callbacks_is_given_in_a_table_a_variable_or_a_file() {
    let secret = "0123456789abcdef0123456789abcdef";
    let generic = |config: Config| config.apps[0].callbacks.generic.clone();
    let given = Some(Secret::new(secret));
    let table = format!("{LEAST}[app.callbacks]\ngeneric = {{ secret = {secret:?} }}\n");
    assert_eq!(generic(read(&table).unwrap()), given);
    assert_eq!(
        generic(read_with(LEAST, &[("DAIS_APP__CALLBACKS__GENERIC__SECRET", secret)]).unwrap()),
        given
    );
    let inline = format!("{{ secret = {secret:?} }}");
    assert_eq!(generic(read_with(LEAST, &[("DAIS_APP__CALLBACKS__GENERIC", &inline)]).unwrap()), given);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let variable = ("DAIS_APP__CALLBACKS__GENERIC__SECRET_FILE", file.to_str().unwrap());
    assert_eq!(generic(read_with(LEAST, &[variable]).unwrap()), given);
    assert_eq!(generic(read(LEAST).unwrap()), None);
}

#[test]
fn callbacks_of_each_vendor_have_their_own_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let table = format!(
        "{LEAST}[app.callbacks]\ntrtc = {{ key = \"k9\" }}\nagora = {{ secret = \"a\" }}\n\
         livekit = {{ api_key = \"devkey\", api_secret = \"secret\" }}\n\
         janus = {{ username = \"j\", password_file = {:?} }}\n",
        file.to_str().unwrap()
    );
    let callbacks = read(&table).unwrap().apps.remove(0).callbacks;
    let login = |name: &str, secret: &str| Some(Login { name: name.to_owned(), secret: Secret::new(secret) });
    assert_eq!(
        callbacks,
        Callbacks {
            generic: None,
            janus: login("j", "0123456789abcdef"),
            livekit: login("devkey", "secret"),
            trtc: Some(Secret::new("k9")),
            agora: Some(Secret::new("a")),
        }
    );
    let vendors: Vec<_> = callbacks.readers().iter().map(|reader| reader.vendor()).collect();
    assert_eq!(vendors, ["janus", "livekit", "trtc", "agora"]);
}
