use proptest::prelude::*;

use super::super::web::{AddressBlock, PublicUrl, WebOrigin};
use super::super::{LedgerUrl, RedisUrl};
use super::*;

/// Texts that look a little like a configuration.
fn lines() -> impl Strategy<Value = String> {
    let section = "\\[{1,2}(instance|redis|lease|ledger|app|media|im|http|limits|telemetry|x)\\]{1,2}";
    let pair = "(id|url|code|secret|keys|heartbeat_ms|seats|sentinels|roles|name|kind|public_url|[a-z_]{1,8}) = (-?[0-9]{1,25}|\"[ -~]{0,40}\"|\\[\"?[a-z0-9:/.]{0,9}\"?\\]|true|\\{ ?\\}|1\\.5|nan|2020-01-01)";
    let line = prop_oneof![section, pair, "\\PC{0,20}"];
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = read(&text).map_err(|error| assert!(!error.problems().is_empty()));
    }

    #[test]
    fn anything_like_a_configuration_is_read_or_refused(text in lines()) {
        if let Err(error) = read(&text) {
            prop_assert!(!error.problems().is_empty());
            prop_assert_eq!(error.to_string().is_empty(), false);
        }
    }

    #[test]
    fn any_variable_is_read_or_refused(name in "(INSTANCE|REDIS|LEASE|APP|HTTP|LIMITS|X|[A-Z_0-9]{0,6})(_|__)([A-Z_]{0,8}|[0-9]{1,22}__[A-Z_]{0,8})", value in "\\PC{0,40}") {
        let _ = read_with(LEAST, &[(&format!("DAIS_{name}"), &value)]);
    }

    #[test]
    fn a_secret_is_never_shown(secret in "hush[a-z0-9]{0,40}", key in "(redis\\.url|ledger\\.url)") {
        let said = messages(read(&format!("{key} = \"x://{secret}\"\n[[app]]\ncode = \"a\"\nsecret = \"{secret}\"\napi_keys = [\"{secret}\"]\n")));
        prop_assert!(!said.contains("hush"), "{}", said);
    }

    #[test]
    fn origins_come_back_as_they_went(scheme in "(http|https|capacitor)", host in "[a-z0-9.-]{1,20}", port in proptest::option::of(1u16..)) {
        let text = port.map_or(format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}"));
        let origin: WebOrigin = text.parse().unwrap();
        prop_assert_eq!(origin.to_string().parse::<WebOrigin>().unwrap(), origin);
    }

    #[test]
    fn blocks_come_back_as_they_went(address: std::net::IpAddr, bits in 0u8..=32) {
        let block: AddressBlock = format!("{address}/{bits}").parse().unwrap();
        prop_assert!(block.contains(address) || address.to_canonical() != address);
        prop_assert_eq!(block.to_string().parse::<AddressBlock>().unwrap(), block);
    }

    #[test]
    fn no_parser_panics(text in "\\PC{0,60}") {
        let _ = text.parse::<WebOrigin>();
        let _ = text.parse::<AddressBlock>();
        let _ = PublicUrl::parse(&text);
        let _ = LedgerUrl::parse(&text);
        let _ = RedisUrl::parse(&text);
        let _ = RedisUrl::parse(&format!("redis-sentinel://{text}"));
    }

    #[test]
    fn what_is_in_range_is_taken(heartbeat in 50u64..=60_000) {
        let config = read_with(LEAST, &[("DAIS_LEASE__HEARTBEAT_MS", &heartbeat.to_string())]).unwrap();
        let lease = config.lease;
        prop_assert!(lease.failover_wait > lease.owner_ttl() && lease.owner_ttl() > lease.self_fence);
        prop_assert!(lease.self_fence > lease.heartbeat);
        prop_assert!(config.redis.command_timeout * 2 <= lease.self_fence - lease.heartbeat);
    }
}
