use super::super::{AuthError, KeyAlgorithm, KeyError, TokenRole};
use super::*;

#[test]
fn each_kind_of_public_key_verifies_its_tokens_and_no_others() {
    let fixtures = [
        (include_str!("fixtures/ed25519.pem"), include_str!("fixtures/ed25519.jwt"), KeyAlgorithm::EdDsa),
        (include_str!("fixtures/p256.pem"), include_str!("fixtures/p256.jwt"), KeyAlgorithm::Es256),
        (include_str!("fixtures/rsa2048.pem"), include_str!("fixtures/rsa2048.jwt"), KeyAlgorithm::Rs256),
    ];
    for (pem, token, algorithm) in fixtures {
        let key = TokenKey::public(None, pem).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        let verifier = verifier(vec![key]);
        let identity = verifier.verify(token.trim(), NOW_S).unwrap();
        assert_eq!((identity.user.as_str(), identity.role_max), ("ada", TokenRole::Host));
        for (_, other, _) in fixtures.iter().filter(|fixture| fixture.2 != algorithm) {
            assert_eq!(
                verifier.verify(other.trim(), NOW_S),
                Err(AuthError::OtherAlgorithm { key: algorithm })
            );
        }
        let (signed, signature) = token.trim().rsplit_once('.').unwrap();
        let flipped: String = signature.chars().rev().collect();
        assert!(verifier.verify(&format!("{signed}.{flipped}"), NOW_S).is_err());
        assert_eq!(verifier.verify(&format!("{signed}."), NOW_S), Err(AuthError::Signature));
    }
}

#[test]
fn other_keys_are_refused() {
    let broken = include_str!("fixtures/p256.pem").replace("MFkw", "MFkx");
    let short_ed = "-----BEGIN PUBLIC KEY-----\nMA0wBQYDK2VwAwQAagv4\n-----END PUBLIC KEY-----\n";
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (pem, expected) in [
        ("", KeyError::NotPublicPem),
        ("/etc/keys/school.pem", KeyError::NotPublicPem),
        (private, KeyError::NotPublicPem),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", KeyError::NotPublicPem),
        (&broken, KeyError::NotPublicPem),
        (include_str!("fixtures/ed448.pem"), KeyError::NotPublicPem),
        (include_str!("fixtures/p384.pem"), KeyError::Unsupported),
        (short_ed, KeyError::Unsupported),
        (include_str!("fixtures/rsa1024.pem"), KeyError::RsaSize),
    ] {
        assert_eq!(TokenKey::public(None, pem).unwrap_err(), expected, "{pem}");
    }
    assert_eq!(TokenKey::hs256(None, &Secret::new("x".repeat(31))).unwrap_err(), KeyError::ShortSecret);
    TokenKey::hs256(None, &Secret::new("x".repeat(32))).unwrap();
}

#[test]
fn keys_do_not_show_what_they_hold() {
    let key = TokenKey::hs256(Some("k".into()), &Secret::new(SECRET)).unwrap();
    assert_eq!(format!("{key:?}"), "TokenKey { kid: Some(\"k\"), algorithm: Hs256, .. }");
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_key_or_refused(text in "\\PC{0,100}", body in "[A-Za-z0-9+/=\\n]{0,120}") {
        let _ = TokenKey::public(None, &text);
        let _ = TokenKey::public(None, &format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"));
    }
}
