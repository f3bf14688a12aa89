use std::time::Duration;

use key_prefix::{AppCode, RoomId, UserId};
use proptest::prelude::*;

use super::super::{AuthError, KeyAlgorithm, LEEWAY_S, MAX_TOKEN_BYTES, MintError, MintRequest, TokenRole};
use super::*;

const ID: &str = "a text of 1 to 128 bytes without control characters";

#[test]
fn least_token_is_a_guests() {
    let identity = verify(&json!({})).unwrap();
    assert_eq!((identity.app.as_str(), identity.user.as_str()), ("school", "ada"));
    assert_eq!(identity.role_max, TokenRole::Guest);
    assert_eq!(identity.expires_at_s, NOW_S + 60);
    assert!(!identity.admin && identity.name.is_none() && identity.auth_version.is_none());
    assert!(identity.allows_room(&RoomId::new("any").unwrap()));
}

#[test]
fn all_claims_arrive() {
    let identity = verify(&json!({
        "role": "host", "room": "r", "name": "Ada", "av": 7, "admin": true, "nbf": NOW_S, "exp": (NOW_S + 9) as f64 + 0.5,
        "aud": "someone", "iss": "someone", "more": {}
    }))
    .unwrap();
    assert_eq!(identity.role_max, TokenRole::Host);
    assert_eq!(identity.name.as_deref(), Some("Ada"));
    assert_eq!((identity.auth_version, identity.admin, identity.expires_at_s), (Some(7), true, NOW_S + 9));
    assert!(identity.allows_room(&RoomId::new("r").unwrap()));
    assert!(!identity.allows_room(&RoomId::new("s").unwrap()));
}

#[test]
fn roles_allow_themselves_and_a_host_the_guest() {
    use TokenRole::{Guest, Host, Monitor};
    for (held, wanted, allowed) in [
        (Guest, Guest, true),
        (Guest, Host, false),
        (Guest, Monitor, false),
        (Host, Guest, true),
        (Host, Host, true),
        (Host, Monitor, false),
        (Monitor, Guest, false),
        (Monitor, Host, false),
        (Monitor, Monitor, true),
    ] {
        assert_eq!(held.allows(wanted), allowed, "{held:?} as {wanted:?}");
        assert_eq!(TokenRole::of_name(held.name()), Some(held));
    }
}

#[test]
fn claims_that_are_not_right_are_named() {
    let missing = |claim| AuthError::MissingClaim(claim);
    let bad = |claim, right| AuthError::BadClaim { claim, right };
    let time = "a time in seconds";
    let role = "guest, host or monitor";
    let name = "a text of at most 256 bytes without control characters";
    for (more, expected) in [
        (json!({ "exp": null }), missing("exp")),
        (json!({ "exp": "soon" }), bad("exp", time)),
        (json!({ "exp": -1 }), bad("exp", time)),
        (json!({ "exp": 1e300 }), bad("exp", time)),
        (json!({ "exp": u64::MAX }), bad("exp", time)),
        (json!({ "exp": [1] }), AuthError::Malformed("claims")),
        (json!({ "exp": 0 }), AuthError::Expired { ago_s: NOW_S }),
        (json!({ "exp": NOW_S - LEEWAY_S }), AuthError::Expired { ago_s: LEEWAY_S }),
        (json!({ "nbf": NOW_S + LEEWAY_S + 1 }), AuthError::NotYet { in_s: LEEWAY_S + 1 }),
        (json!({ "nbf": "now" }), bad("nbf", time)),
        (json!({ "sub": null }), missing("sub")),
        (json!({ "sub": 7 }), bad("sub", ID)),
        (json!({ "sub": "" }), bad("sub", ID)),
        (json!({ "sub": "x".repeat(129) }), bad("sub", ID)),
        (json!({ "sub": "a\u{0}b" }), bad("sub", ID)),
        (json!({ "room": "" }), bad("room", ID)),
        (json!({ "room": 1 }), bad("room", ID)),
        (json!({ "room": "é".repeat(65) }), bad("room", ID)),
        (json!({ "role": "king" }), bad("role", role)),
        (json!({ "role": true }), bad("role", role)),
        (json!({ "name": "x".repeat(257) }), bad("name", name)),
        (json!({ "name": "a\nb" }), bad("name", name)),
        (json!({ "av": -1 }), bad("av", "a whole number, 0 or more")),
        (json!({ "av": "1" }), bad("av", "a whole number, 0 or more")),
        (json!({ "admin": 1 }), bad("admin", "true or false")),
        (json!({ "app": null }), missing("app")),
        (json!({ "app": 7 }), AuthError::UnknownApp),
        (json!({ "app": "other" }), AuthError::UnknownApp),
        (json!({ "app": "" }), AuthError::UnknownApp),
    ] {
        assert_eq!(verify(&more).unwrap_err(), expected, "{more}");
    }
}

#[test]
fn edges_of_time_and_length_are_taken() {
    for more in [
        json!({ "exp": NOW_S - LEEWAY_S + 1 }),
        json!({ "exp": 253_402_300_799_u64 }),
        json!({ "nbf": NOW_S + LEEWAY_S }),
        json!({ "sub": "x".repeat(128), "room": "r".repeat(128), "name": "n".repeat(256) }),
        json!({ "name": "", "av": 0, "admin": false }),
    ] {
        verify(&more).unwrap();
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let verifier = shared();
    let good = sign(&Header::new(Algorithm::HS256), &claims(&json!({})), SECRET);
    for (token, label) in [
        ("", "absent"),
        ("x", "malformed"),
        ("a.b", "malformed"),
        ("a.b.c", "malformed"),
        ("....", "malformed"),
        ("\u{0}.\u{0}.\u{0}", "malformed"),
        // {"alg":"none"}, with and without a signature
        ("eyJhbGciOiJub25lIn0.eyJhcHAiOiJzY2hvb2wifQ.", "algorithm"),
        ("eyJhbGciOiJub25lIn0.eyJhcHAiOiJzY2hvb2wifQ.AAAA", "algorithm"),
        // {"alg":"None"}
        ("eyJhbGciOiJOb25lIn0.eyJhcHAiOiJzY2hvb2wifQ.", "algorithm"),
        (&format!("{good}.x"), "malformed"),
        (&good[..good.len() - 3], "signature"),
        (&good[..good.rfind('.').unwrap() + 1], "signature"),
        (&"x".repeat(MAX_TOKEN_BYTES + 1), "malformed"),
    ] {
        let error = verifier.verify(token, NOW_S).unwrap_err();
        assert_eq!(error.label(), label, "{token}: {error:?}");
    }
}

#[test]
fn algorithm_is_the_keys_not_the_tokens() {
    let hs256 = KeyAlgorithm::Hs256;
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        let token = sign(&Header::new(algorithm), &claims(&json!({})), SECRET);
        assert_eq!(shared().verify(&token, NOW_S), Err(AuthError::Algorithm));
    }
    // The classic: a public key, known to all, taken for a shared secret.
    let pem = include_str!("fixtures/rsa2048.pem");
    let public = verifier(vec![TokenKey::public(None, pem).unwrap()]);
    let forged = sign(&Header::new(Algorithm::HS256), &claims(&json!({})), pem);
    assert_eq!(public.verify(&forged, NOW_S), Err(AuthError::OtherAlgorithm { key: KeyAlgorithm::Rs256 }));
    let token = include_str!("fixtures/rsa2048.jwt").trim();
    assert_eq!(shared().verify(token, NOW_S), Err(AuthError::OtherAlgorithm { key: hs256 }));
}

#[test]
fn another_secret_and_another_app_do_not_count() {
    let token = sign(&Header::new(Algorithm::HS256), &claims(&json!({})), OTHER);
    assert_eq!(shared().verify(&token, NOW_S), Err(AuthError::Signature));
    let mut both = shared();
    both.keys
        .insert(AppCode::new("club").unwrap(), vec![TokenKey::hs256(None, &Secret::new(OTHER)).unwrap()]);
    let crossed = sign(&Header::new(Algorithm::HS256), &claims(&json!({ "app": "club" })), SECRET);
    assert_eq!(both.verify(&crossed, NOW_S), Err(AuthError::Signature));
    assert_eq!(both.verify(&token, NOW_S), Err(AuthError::Signature));
}

#[test]
fn kid_chooses_among_the_keys() {
    let key = |kid: &str, secret| TokenKey::hs256(Some(kid.into()), &Secret::new(secret)).unwrap();
    let verifier = verifier(vec![key("old", SECRET), key("new", OTHER)]);
    let with = |kid: Option<&str>, secret| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = kid.map(str::to_owned);
        verifier.verify(&sign(&header, &claims(&json!({})), secret), NOW_S).map(|identity| identity.user)
    };
    let ada = Ok(UserId::new("ada").unwrap());
    assert_eq!(with(Some("old"), SECRET), ada);
    assert_eq!(with(Some("new"), OTHER), ada);
    assert_eq!(with(Some("new"), SECRET), Err(AuthError::Signature));
    assert_eq!(with(Some("lost"), SECRET), Err(AuthError::UnknownKey));
    assert_eq!(with(None, SECRET), Err(AuthError::KeyNotNamed));
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("old".into());
    let named = sign(&header, &claims(&json!({})), SECRET);
    assert_eq!(shared().verify(&named, NOW_S), Err(AuthError::UnknownKey));
}

#[test]
fn critical_header_extensions_are_refused() {
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["ours".into()]);
    let token = sign(&header, &claims(&json!({})), SECRET);
    assert!(shared().verify(&token, NOW_S).is_err());
}

#[test]
fn clients_are_not_told_which_part_of_the_proof_failed() {
    let all = [
        AuthError::Algorithm,
        AuthError::OtherAlgorithm { key: KeyAlgorithm::EdDsa },
        AuthError::UnknownApp,
        AuthError::UnknownKey,
        AuthError::KeyNotNamed,
        AuthError::Signature,
    ];
    for error in &all {
        assert_eq!(error.public(), all[0].public());
    }
}

fn request() -> MintRequest {
    MintRequest {
        app: AppCode::new("school").unwrap(),
        user: UserId::new("ada").unwrap(),
        role: TokenRole::Guest,
        room: None,
        name: None,
        auth_version: None,
        admin: false,
        ttl: Duration::from_secs(60),
    }
}

#[test]
fn minting_needs_an_app_with_a_secret() {
    let other = MintRequest { app: AppCode::new("club").unwrap(), ..request() };
    assert_eq!(shared().mint(&other, NOW_S), Err(MintError::UnknownApp(other.app.clone())));
    let public = verifier(vec![TokenKey::public(None, include_str!("fixtures/p256.pem")).unwrap()]);
    assert_eq!(public.mint(&request(), NOW_S), Err(MintError::NoSecret(request().app)));
    let zero = MintRequest { ttl: Duration::ZERO, ..request() };
    let token = shared().mint(&zero, NOW_S).unwrap();
    assert_eq!(shared().verify(&token, NOW_S).unwrap().expires_at_s, NOW_S + 1);
}

#[test]
fn minted_tokens_carry_the_kid_of_their_key() {
    let named = verifier(vec![
        TokenKey::public(Some("p".into()), include_str!("fixtures/p256.pem")).unwrap(),
        TokenKey::hs256(Some("s".into()), &Secret::new(SECRET)).unwrap(),
    ]);
    let token = named.mint(&request(), NOW_S).unwrap();
    named.verify(&token, NOW_S).unwrap();
}

proptest! {
    #[test]
    fn any_text_is_refused_without_panic(token in "\\PC{0,120}") {
        prop_assert!(shared().verify(&token, NOW_S).is_err());
    }

    #[test]
    fn any_three_parts_are_refused_without_panic(token in "[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{0,60}") {
        prop_assert!(shared().verify(&token, NOW_S).is_err());
    }

    #[test]
    fn any_claims_are_taken_or_refused(exp: f64, nbf: i64, sub in "\\PC{0,140}", role in "\\PC{0,8}") {
        let _ = verify(&json!({ "exp": exp, "nbf": nbf, "sub": sub, "role": role }));
    }

    #[test]
    fn one_changed_byte_is_noticed(at in 0usize..400, by in 1u8..) {
        let good = sign(&Header::new(Algorithm::HS256), &claims(&json!({})), SECRET);
        let mut bytes = good.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = bytes[at].wrapping_add(by);
        // The last character of a signature has bits that mean nothing; strict decoders refuse them all the same.
        if let Ok(text) = String::from_utf8(bytes) {
            prop_assert!(shared().verify(&text, NOW_S).is_err());
        }
    }

    #[test]
    fn what_is_minted_is_verified(user in "[^\\p{Cc}]{1,32}", room in proptest::option::of("[^\\p{Cc}]{1,32}"), role in 0usize..3, av: Option<u64>, admin: bool, ttl in 1u64..1_000_000) {
        let wanted = MintRequest {
            user: UserId::new(&user).unwrap(),
            room: room.as_deref().map(|room| RoomId::new(room).unwrap()),
            role: [TokenRole::Guest, TokenRole::Host, TokenRole::Monitor][role],
            auth_version: av,
            admin,
            name: Some("Ada".into()),
            ttl: Duration::from_secs(ttl),
            ..request()
        };
        let identity = shared().verify(&shared().mint(&wanted, NOW_S).unwrap(), NOW_S).unwrap();
        prop_assert_eq!(identity.user, wanted.user);
        prop_assert_eq!(identity.room_limit, wanted.room);
        prop_assert_eq!(identity.role_max, wanted.role);
        prop_assert_eq!((identity.auth_version, identity.admin), (av, admin));
        prop_assert_eq!(identity.expires_at_s, NOW_S + ttl);
    }
}
