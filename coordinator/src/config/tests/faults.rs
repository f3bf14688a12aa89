use super::super::{Fault, Place, Secret};
use super::*;

/// Lines put after the least configuration (they begin at line 8), and the only message they give.
#[test]
fn each_fault_names_place_key_and_what_would_be_right() {
    for (lines, expected) in [
        (
            "[lease]\nheartbeat_ms = 5",
            "dais.toml:9: lease.heartbeat_ms: 5 is not usable; it should be 50 to 60000 ms",
        ),
        (
            "[lease]\nheartbeat_ms = -1",
            "dais.toml:9: lease.heartbeat_ms: -1 is not usable; it should be 50 to 60000 ms",
        ),
        (
            "[lease]\nheartbeat_ms = \"fast\"",
            "dais.toml:9: lease.heartbeat_ms: a text where an integer, 50 to 60000 ms, should be",
        ),
        (
            "[lease]\nheartbeat_ms = 1.5",
            "dais.toml:9: lease.heartbeat_ms: a fraction where an integer, 50 to 60000 ms, should be",
        ),
        (
            "[lease]\nhartbeat_ms = 5000",
            "dais.toml:9: lease.hartbeat_ms: unknown key; did you mean `heartbeat_ms`?",
        ),
        (
            "[lease]\nzzzzzzzzzz = 1",
            "dais.toml:9: lease.zzzzzzzzzz: unknown key; known here: heartbeat_ms, self_fence_ms, failover_wait_ms, placement",
        ),
        ("[leese]\n", "dais.toml:8: leese: unknown key; did you mean `lease`?"),
        (
            "[lease]\nplacement = \"least_loaded\"",
            "dais.toml:9: lease.placement: known, not built yet: placement \"least_loaded\"",
        ),
        (
            "[lease]\nplacement = \"mine\"",
            "dais.toml:9: lease.placement: \"mine\" is not usable; it should be first_join (least_loaded and rendezvous are not built yet)",
        ),
        ("[im]\nlevels = 3", "dais.toml:9: im.levels: known, not built yet: messages"),
        (
            "[telemetry]\notlp_endpoint = \"x\"",
            "dais.toml:9: telemetry.otlp_endpoint: known, not built yet: traces over OTLP",
        ),
        (
            "[telemetry]\nlog = \"xml\"",
            "dais.toml:9: telemetry.log: \"xml\" is not usable; it should be one of json, pretty",
        ),
        (
            "[http]\nallowed_origins = [\n \"https://a.example\",\n \"https://a.example/path\",\n]",
            "dais.toml:11: http.allowed_origins: \"https://a.example/path\" is not usable; it should be scheme://host or scheme://host:port as browsers send it (ASCII, no path), or [\"*\"] alone",
        ),
        (
            "[http]\nallowed_origins = [\"*\", \"https://a\"]",
            "dais.toml:9: http.allowed_origins: \"*\" stands for all origins; let it stand alone",
        ),
        (
            "[http]\nallowed_origins = [3]",
            "dais.toml:9: http.allowed_origins: an integer where a text in a list should be",
        ),
        (
            "[http]\ntrusted_proxies = [\"10.0.0.0/40\"]",
            "dais.toml:9: http.trusted_proxies: \"10.0.0.0/40\" is not usable; it should be an address or a block, such as 10.0.0.0/8 or fd00::/8",
        ),
        (
            "[http]\ntrusted_proxies = \"10.0.0.1\"",
            "dais.toml:9: http.trusted_proxies: a text where a list of texts should be",
        ),
        (
            "[limits]\nevents_burst = 10",
            "dais.toml:9: limits.events_burst: 10 is not usable; it should be 50 to 1000000 (from events_per_second)",
        ),
        (
            "[limits]\ncustom_bytes = 70000",
            "dais.toml:9: limits.custom_bytes: 70000 bytes never fit into max_event_bytes, which is 65536",
        ),
        (
            "[limits]\nconnections = 0",
            "dais.toml:9: limits.connections: 0 is not usable; it should be 1 to 10000000",
        ),
        (
            "[ledger]\nurl = \"mongo://x:hush@h\"",
            "dais.toml:9: ledger.url: should be a ledger's address begins with `sqlite://`, `postgres://` or `mysql://`",
        ),
        (
            "[[media]]\nname = \"m\"\nkind = \"janus\"",
            "dais.toml:8: media[0].url: missing: a URL of ws or wss\n\
             dais.toml:8: media[0].credentials.room_secret: missing: the media server cannot be used without",
        ),
        (
            "[[media]]\nname = \"m\"\nkind = \"embedded\"\nurl = \"x\"",
            "dais.toml:11: media[0].url: a media server of kind \"embedded\" has no use for it",
        ),
        (
            "[[media]]\nname = \"m\"\nkind = \"trtc\"\nregion = \"eu\"\nplugin = \"audiobridge\"",
            "dais.toml:11: media[0].region: \"eu\" is not usable; it should be one of ap-guangzhou, ap-beijing, ap-singapore\n\
             dais.toml:8: media[0].credentials.sdk_app_id: missing: the media server cannot be used without\n\
             dais.toml:8: media[0].credentials.secret_key: missing: the media server cannot be used without\n\
             dais.toml:8: media[0].credentials.secret_id: missing: the media server cannot be used without\n\
             dais.toml:8: media[0].credentials.api_secret_key: missing: the media server cannot be used without\n\
             dais.toml:12: media[0].plugin: a media server of kind \"trtc\" has no use for it",
        ),
        (
            "[[media]]\nname = \"m\"\nkind = \"trtc\"\nurl = \"ftp://h\"\nprivate_map_key = 1\n\
             [media.credentials]\nsdk_app_id = 0\nsecret_key = \"\"\nsecret_id = \"i\"\n\
             api_secret_key = \"hush\"\napp_id = \"x\"",
            "dais.toml:11: media[0].url: \"ftp://h\" is not usable; it should be a URL of https or http\n\
             dais.toml:14: media[0].credentials.sdk_app_id: 0 is not usable; it should be 1 to 4294967295\n\
             dais.toml:15: media[0].credentials.secret_key: should be not empty\n\
             dais.toml:12: media[0].private_map_key: an integer where true or false should be\n\
             dais.toml:18: media[0].credentials.app_id: a media server of kind \"trtc\" has no use for it",
        ),
        (
            "[[media]]\nname = \"m\"\nkind = \"agora\"\nregion = \"ap-beijing\"\ntoken_ttl_ms = 1\n\
             [media.credentials]\napp_id = \"abc\"\napp_certificate = \"hush\"\ncustomer_id = \"c\"",
            "dais.toml:14: media[0].credentials.app_id: should be 32 hexadecimal digits\n\
             dais.toml:15: media[0].credentials.app_certificate: should be 32 hexadecimal digits\n\
             dais.toml:13: media[0].credentials.customer_secret: missing: the media server cannot be used without\n\
             dais.toml:12: media[0].token_ttl_ms: 1 is not usable; it should be 60000 to 86400000 ms\n\
             dais.toml:11: media[0].region: a media server of kind \"agora\" has no use for it",
        ),
        (
            "[media]\nname = \"m\"",
            "dais.toml:8: media: a table where a list of tables, as in [[media]], should be",
        ),
        (
            "[[app]]\ncode = \"b\"",
            "dais.toml:8: app[1].secret: missing: give `secret`, `public_key` or `keys`: without one no token can be verified",
        ),
        (
            "[[app]]\ncode = \"school\"\nsecret = \"x123456789abcdef0123456789abcdef\"",
            "dais.toml:9: app[1].code: \"school\" is given twice",
        ),
    ] {
        assert_eq!(messages(read(&format!("{LEAST}{lines}\n"))), expected, "{lines}");
    }
}

/// Lines put into the app, which begin at line 8.
#[test]
fn faults_of_an_app() {
    for (lines, expected) in [
        ("seats = 1001", "dais.toml:8: app[0].seats: 1001 is not usable; it should be 0 to 1000"),
        ("auto_create = 1", "dais.toml:8: app[0].auto_create: an integer where true or false should be"),
        (
            "devices = \"some\"",
            "dais.toml:8: app[0].devices: \"some\" is not usable; it should be one of replace, reject, allow",
        ),
        (
            "media = \"m\"",
            "dais.toml:8: app[0].media: \"m\" is not usable; it should be the name of a [[media]]; there is none",
        ),
        (
            "jwks_url = \"https://x\"",
            "dais.toml:8: app[0].jwks_url: known, not built yet: keys fetched from a JWKS URL",
        ),
        ("hooks = {}", "dais.toml:8: app[0].hooks: known, not built yet: hooks"),
        (
            "[[app.sinks]]\nname = \"b\"\nurl = \"https://hush@h/x\"\nsecrets = [\"whsec_hush\"]",
            "dais.toml:10: app[0].sinks[0].url: should be an http or https URL without user, password or fragment\n\
             dais.toml:11: app[0].sinks[0].secrets: should be keys of which a secret has 24 to 64 bytes, this one has 3",
        ),
        (
            "[[app.sinks]]\nname = \"b\"\nkind = \"stream\"\nevents = [\"room\"]",
            "dais.toml:11: app[0].sinks[0].events: \"room\" is not usable; it should be family.name, family.* or *",
        ),
        (
            "[app.callbacks]\ngeneric = { secret = \"hush\" }",
            "dais.toml:9: app[0].callbacks.generic.secret: should be at least 32 random bytes",
        ),
        (
            "callbacks = { generic = {} }",
            "dais.toml:8: app[0].callbacks.generic.secret: missing: what the media server signs its callbacks with",
        ),
        (
            "callbacks = { livekit = { api_key = \"k\" } }",
            "dais.toml:8: app[0].callbacks.livekit.api_secret: missing: the secret of `webhook.api_key`",
        ),
        (
            "callbacks = { livekit = { api_secret = \"hush\" } }",
            "dais.toml:8: app[0].callbacks.livekit.api_key: missing: `webhook.api_key` of the server",
        ),
        (
            "callbacks = { janus = { username = \"a:b\", password = \"0123456789abcdef\" } }",
            "dais.toml:8: app[0].callbacks.janus.username: \"a:b\" is not usable; it should be 1 to 128 visible ASCII characters without a colon",
        ),
        (
            "callbacks = { janus = { username = \"j\", password = \"hush\" } }",
            "dais.toml:8: app[0].callbacks.janus.password: should be at least 16 random visible ASCII characters",
        ),
        (
            "callbacks = { trtc = { key = \"not-one\" } }",
            "dais.toml:8: app[0].callbacks.trtc.key: should be the 1 to 32 letters and digits of the console",
        ),
        (
            "callbacks = { agora = { secret = \"\" } }",
            "dais.toml:8: app[0].callbacks.agora.secret: should be not empty",
        ),
        (
            "callbacks = { zego = {} }",
            "dais.toml:8: app[0].callbacks.zego: unknown key; known here: generic, janus, livekit, trtc, agora",
        ),
        (
            "callbacks = { generic = { secret_file = \"/nowhere/at/all\" } }",
            "dais.toml:8: app[0].callbacks.generic.secret_file: /nowhere/at/all cannot be read: No such file or directory (os error 2)",
        ),
        (
            "api_keys = [\"hush\"]",
            "dais.toml:8: app[0].api_keys: should be random texts of at least 24 bytes each",
        ),
        (
            "seats_file = \"x\"",
            "dais.toml:8: app[0].seats_file: unknown key; known here: code, secret, public_key, jwks_url, keys, api_keys, auto_create, seats, capacity, grace_ms, publish_deadline_ms, ring_ms, devices, media, reconcile_ms, idle_ms, presence_window_ms, heartbeat_ms, hooks, sinks, callbacks",
        ),
    ] {
        assert_eq!(messages(read(&format!("{LEAST}{lines}\n"))), expected, "{lines}");
    }
}

/// The whole text of the only app.
#[test]
fn faults_of_keys() {
    for (app, expected) in [
        ("secret = \"hush\"", "dais.toml:7: app[0].secret: should be at least 32 random bytes"),
        (
            "public_key = \"hush\"",
            "dais.toml:7: app[0].public_key: should be a public key in PEM, beginning with -----BEGIN PUBLIC KEY-----",
        ),
        (
            "secret_file = \"/nowhere/at/all\"",
            "dais.toml:7: app[0].secret_file: /nowhere/at/all cannot be read: No such file or directory (os error 2)",
        ),
        (
            "secret = \"dais-development-only-not-a-secret\"",
            "dais.toml:7: app[0].secret: that is the development secret, which everyone knows",
        ),
        (
            "secret = \"0123456789abcdef0123456789abcdef\"\nkeys = [{ kid = \"a\", secret = \"1123456789abcdef0123456789abcdef\" }]",
            "dais.toml:7: app[0].secret: more than one of `secret`, `public_key` and `keys`; give one, or list all under `keys` with a `kid` each",
        ),
        (
            "keys = [{ secret = \"1123456789abcdef0123456789abcdef\" }]",
            "dais.toml:7: app[0].keys[0].kid: missing: listed keys are told apart by the tokens' `kid`",
        ),
        (
            "keys = [{ kid = \"a\" }]",
            "dais.toml:7: app[0].keys[0].secret: give either `secret` or `public_key`",
        ),
        (
            "keys = [{ kid = \"a\", alg = \"RS256\", secret = \"1123456789abcdef0123456789abcdef\" }]",
            "dais.toml:7: app[0].keys[0].alg: RS256 is not for this key, which is for HS256",
        ),
        (
            "keys = [{ kid = \"a\", alg = \"none\", secret = \"1123456789abcdef0123456789abcdef\" }]",
            "dais.toml:7: app[0].keys[0].alg: \"none\" is not usable; it should be one of HS256, EdDSA, ES256, RS256",
        ),
        (
            "keys = [\n{ kid = \"a\", secret = \"1123456789abcdef0123456789abcdef\" },\n{ kid = \"a\", secret = \"2123456789abcdef0123456789abcdef\" }]",
            "dais.toml:9: app[0].keys[1].kid: \"a\" is given twice",
        ),
        ("keys = [3]", "dais.toml:7: app[0].keys[0]: an integer where a table should be"),
        (
            "keys = []",
            "dais.toml:5: app[0].secret: missing: give `secret`, `public_key` or `keys`: without one no token can be verified",
        ),
    ] {
        let text = format!(
            "[instance]\nid = \"a-1\"\n[redis]\nkey_prefix = \"t\"\n[[app]]\ncode = \"school\"\n{app}\n"
        );
        let said = messages(read(&text));
        assert!(said.lines().any(|line| line == expected), "{app}\n{said}\n{expected}");
        assert!(!said.contains("hush"), "{said}");
    }
}

/// The whole text of `[redis]` and `[instance]`.
#[test]
fn faults_of_redis_and_instance() {
    let service = "a Sentinel URL with ?sentinelServiceName=… in it";
    for (line, expected) in [
        ("redis.url = \"hush\"", "redis.url: should be a URL such as redis://user:password@host:6379/0".to_owned()),
        ("redis.url = \"http://u:hush@h\"", "redis.url: should be a URL that begins with redis://, rediss://, redis-sentinel:// or rediss-sentinel://".to_owned()),
        ("redis.url = \"redis-cluster://u:hush@h\"", "redis.url: should be a standalone Redis or one behind Sentinels; a Redis Cluster cannot serve".to_owned()),
        ("redis.url = \"redis://u:hush@h/x\"", "redis.url: should be a URL whose path is a database number, 0 to 255, or nothing".to_owned()),
        ("redis.url = \"redis://u:hush@h/0?node=a:1\"", "redis.url: should be a URL without parameters; with Sentinels these: node=host:port, sentinelServiceName, sentinelUsername, sentinelPassword".to_owned()),
        ("redis.url = \"redis-sentinel://u:hush@h:1\"", format!("redis.url: should be {service}")),
        ("redis.sentinels = [\"h\"]", "redis.sentinels: \"h\" is not usable; it should be host:port".to_owned()),
        ("redis.sentinels = []", "redis.sentinels: should be a list of at least one host:port".to_owned()),
        ("redis.sentinel_service = \"m\"", "redis.sentinel_service: goes with `sentinels`, which are not given".to_owned()),
        ("redis.command_timeout_ms = 4000", "redis.command_timeout_ms: 4000 ms are more than (self_fence - heartbeat) / 2 = (12000 - 5000) / 2 = 3500 ms: a lease could run out while its renewal waits".to_owned()),
        ("redis = 3", "redis: an integer where a table should be".to_owned()),
        ("instance.id = \"a b\"", "instance.id: \"a b\" is not usable; it should be 1 to 63 of a-z A-Z 0-9 . _ -, not beginning with a dot".to_owned()),
        ("instance.id = \"..\"", "instance.id: \"..\" is not usable; it should be 1 to 63 of a-z A-Z 0-9 . _ -, not beginning with a dot".to_owned()),
        ("instance.listen = \"localhost:7800\"", "instance.listen: \"localhost:7800\" is not usable; it should be address:port, such as 0.0.0.0:7800 or [::1]:7800".to_owned()),
        ("instance.admin_listen = \"0.0.0.0:7800\"", "instance.admin_listen: 0.0.0.0:7800 is also `listen`; the operations listener needs its own".to_owned()),
        ("instance.public_url = \"ws://h\"", "instance.public_url: \"ws://h\" is not usable; it should be http:// or https://, a host, perhaps a port and a path; `{instance}` stands for the id".to_owned()),
        ("instance.roles = [\"king\"]", "instance.roles: \"king\" is not usable; it should be signaling, callbacks, reaper, archiver or outbox".to_owned()),
        ("instance.roles = []", "instance.roles: an empty list is not usable; it should be at least one role".to_owned()),
        ("instance.region = \"eu\"", "instance.region: known, not built yet: placement by region".to_owned()),
    ] {
        let rest = LEAST.split_once("[[app]]").map(|(_, app)| format!("[[app]]{app}")).unwrap();
        let id = if line.starts_with("instance.id") { "" } else { "instance.id = \"a-1\"\n" };
        let prefix = if line.starts_with("redis =") { "" } else { "redis.key_prefix = \"t\"\n" };
        let said = messages(read(&format!("{line}\n{id}{prefix}{rest}")));
        assert!(said.lines().any(|found| found == format!("dais.toml:1: {expected}")), "{line}\n{said}");
        assert!(!said.contains("hush"), "{said}");
    }
}

#[test]
fn id_that_cannot_be_a_host_name_is_refused_where_the_url_needs_one() {
    let text = LEAST.replace("a-1\"", "a_1\"\npublic_url = \"https://{instance}.dais.example\"");
    assert_eq!(
        messages(read(&text)),
        "dais.toml:3: instance.public_url: `{instance}` is part of the host name, so the id \"a_1\" must consist of letters, digits and inner hyphens"
    );
}

#[test]
fn timing_is_refused_with_its_numbers() {
    for (lines, expected) in [
        ("self_fence_ms = 5000", "self_fence_ms: self_fence 5000 ms must be above heartbeat 5000 ms"),
        (
            "self_fence_ms = 15000",
            "self_fence_ms: self_fence 15000 ms must be below the owner key's life, 3 x heartbeat 5000 ms = 15000 ms",
        ),
        (
            "failover_wait_ms = 15000",
            "failover_wait_ms: failover_wait 15000 ms must be above the owner key's life, 3 x heartbeat 5000 ms = 15000 ms",
        ),
    ] {
        let said = messages(read(&format!("{LEAST}[lease]\n{lines}\n")));
        assert!(said.contains(&format!("dais.toml:9: lease.{expected}")), "{said}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let said = messages(read(
        "[redis]\nurl = \"x\"\n[lease]\nheartbeat_ms = 1\nfoo = 1\n[[app]]\ncode = \"\"\n[what]\n",
    ));
    for part in [
        "redis.url",
        "redis.key_prefix: missing",
        "lease.heartbeat_ms",
        "lease.foo",
        "app[0].code",
        "app[0].secret: missing",
        "what: unknown",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn missing_things_name_the_file_or_the_section() {
    let said = messages(read("[instance]\nid = \"a\"\n"));
    assert!(said.contains("dais.toml: redis.key_prefix: missing"), "{said}");
    assert!(said.contains("dais.toml: app: missing: give at least one [[app]]"), "{said}");
    let said = messages(read("[instance]\nid = \"a\"\n[redis]\n[[app]]\ncode = \"a\"\n"));
    assert!(said.contains("dais.toml:3: redis.key_prefix: missing"), "{said}");
    assert!(said.contains("dais.toml:4: app[0].secret: missing"), "{said}");
}

#[test]
fn broken_toml_names_its_line_and_hides_what_stands_there() {
    let error = read("[redis]\nurl = \"redis://u:hush\n").unwrap_err();
    assert_eq!(error.problems()[0].place, Place::Line { file: "dais.toml".into(), line: 2 });
    assert!(matches!(error.problems()[0].fault, Fault::Syntax(_)));
    assert!(!error.to_string().contains("hush"), "{error}");
    let said = messages(read("a = 1\na = 2\n"));
    assert!(said.starts_with("dais.toml:2: not valid TOML: duplicate key"), "{said}");
}

#[test]
fn faults_of_variables_and_flags_name_them() {
    for (name, value, expected) in [
        (
            "DAIS_LEASE__HEARTBEAT_MS",
            "x",
            "environment variable DAIS_LEASE__HEARTBEAT_MS: lease.heartbeat_ms: \"x\" is not usable; it should be 50 to 60000 ms",
        ),
        (
            "DAIS_LEASE__HARTBEAT_MS",
            "5",
            "environment variable DAIS_LEASE__HARTBEAT_MS: lease.hartbeat_ms: unknown key; did you mean `heartbeat_ms`?",
        ),
        (
            "DAIS_LEESE__X",
            "5",
            "environment variable DAIS_LEESE__X: leese: unknown key; did you mean `lease`?",
        ),
        (
            "DAIS_REDIS_URL",
            "redis://h",
            "environment variable DAIS_REDIS_URL: redis.url: unknown key; did you mean `DAIS_REDIS__URL`?",
        ),
        (
            "DAIS_REDIS_URL_FILE",
            "/x",
            "environment variable DAIS_REDIS_URL_FILE: redis.url_file: unknown key; did you mean `DAIS_REDIS__URL_FILE`?",
        ),
        (
            "DAIS_APP__2__CODE",
            "x",
            "environment variable DAIS_APP__2__CODE: app.2.code: 2 is not usable; it should be a number up to 1 (there are 1)",
        ),
        (
            "DAIS_APP__0__CODE__X",
            "x",
            "environment variable DAIS_APP__0__CODE__X: app.0.code.x: a text where a table should be",
        ),
        (
            "DAIS_APP__0__AUTO_CREATE",
            "yes",
            "environment variable DAIS_APP__0__AUTO_CREATE: app[0].auto_create: \"yes\" is not usable; it should be true or false",
        ),
        (
            "DAIS_APP__CALLBACKS__GENERIC",
            "hush",
            "environment variable DAIS_APP__CALLBACKS__GENERIC: app[0].callbacks.generic: a text where a table should be",
        ),
        (
            "DAIS_HTTP__ALLOWED_ORIGINS",
            "[1",
            "environment variable DAIS_HTTP__ALLOWED_ORIGINS: http.allowed_origins: should be a list as in TOML, or texts separated by commas",
        ),
        (
            "DAIS_LEASE____X",
            "1",
            "environment variable DAIS_LEASE____X: lease..x: should be DAIS_SECTION__KEY",
        ),
    ] {
        assert_eq!(messages(read_with(LEAST, &[(name, value)])), expected);
    }
    let overrides = Overrides {
        listen: Some("nowhere".into()),
        redis_url: Some(Secret::new("hush")),
        ..Overrides::default()
    };
    let said = messages(Config::from_text("dais.toml", LEAST, &overrides, []));
    assert!(said.contains("flag --listen: instance.listen: \"nowhere\" is not usable"), "{said}");
    assert!(said.contains("flag --redis-url: redis.url: should be"), "{said}");
    assert!(!said.contains("hush"), "{said}");
}

#[test]
fn several_apps_need_a_number() {
    let text = format!("{LEAST}[[app]]\ncode = \"b\"\nsecret = \"x123456789abcdef0123456789abcdef\"\n");
    assert_eq!(
        messages(read_with(&text, &[("DAIS_APP__SEATS", "3")])),
        "environment variable DAIS_APP__SEATS: app.seats: there are several [[app]]; say which by its number from 0, as in DAIS_APP__0__SEATS"
    );
    assert_eq!(read_with(&text, &[("DAIS_APP__1__SEATS", "3")]).unwrap().apps[1].seats, 3);
}

#[test]
fn a_file_that_is_named_has_to_be_there() {
    let error = Config::load(Some("/nowhere/dais.toml".as_ref()), &Overrides::default(), []).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nowhere/dais.toml: the file cannot be read: No such file or directory (os error 2)"
    );
}
