//! Keys of an app.

use std::fmt;

use jsonwebtoken::crypto::rust_crypto;
use jsonwebtoken::{Algorithm, DecodingKey};

use crate::config::Secret;

/// What a key is for: the key fixes the algorithm, a token never chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// Ed25519.
    EdDsa,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// RSA PKCS #1 v1.5 with SHA-256.
    Rs256,
}

impl KeyAlgorithm {
    /// All of them.
    pub const ALL: [KeyAlgorithm; 4] =
        [KeyAlgorithm::Hs256, KeyAlgorithm::EdDsa, KeyAlgorithm::Es256, KeyAlgorithm::Rs256];

    /// Name in a token's `alg`.
    pub const fn name(self) -> &'static str {
        match self {
            KeyAlgorithm::Hs256 => "HS256",
            KeyAlgorithm::EdDsa => "EdDSA",
            KeyAlgorithm::Es256 => "ES256",
            KeyAlgorithm::Rs256 => "RS256",
        }
    }

    pub(super) const fn algorithm(self) -> Algorithm {
        match self {
            KeyAlgorithm::Hs256 => Algorithm::HS256,
            KeyAlgorithm::EdDsa => Algorithm::EdDSA,
            KeyAlgorithm::Es256 => Algorithm::ES256,
            KeyAlgorithm::Rs256 => Algorithm::RS256,
        }
    }
}

/// Why a key cannot be used: says what would be right, never what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A secret that could be guessed.
    #[error("at least {} random bytes", TokenKey::MIN_SECRET_BYTES)]
    ShortSecret,
    /// No public key in PEM.
    #[error("a public key in PEM, beginning with -----BEGIN PUBLIC KEY-----")]
    NotPublicPem,
    /// A key of another kind, curve or a broken one.
    #[error("an Ed25519, a P-256 or an RSA public key")]
    Unsupported,
    /// An RSA key that is too short or absurdly long.
    #[error("an RSA key of 2048 to 8192 bits")]
    RsaSize,
}

/// A key that verifies the tokens of one app, and the algorithm it is for.
#[derive(Clone)]
pub struct TokenKey {
    kid: Option<String>,
    algorithm: KeyAlgorithm,
    pub(super) decoding: DecodingKey,
    pub(super) signing: Option<Secret>,
}

impl TokenKey {
    /// Shortest secret, in bytes: as long as the digest.
    pub const MIN_SECRET_BYTES: usize = 32;

    /// A shared secret, used as the bytes of the text.
    ///
    /// # Errors
    /// [`KeyError::ShortSecret`].
    pub fn hs256(kid: Option<String>, secret: &Secret) -> Result<Self, KeyError> {
        let bytes = secret.expose().as_bytes();
        if bytes.len() < Self::MIN_SECRET_BYTES {
            return Err(KeyError::ShortSecret);
        }
        let decoding = DecodingKey::from_secret(bytes).map_err(|_| KeyError::ShortSecret)?;
        Ok(TokenKey { kid, algorithm: KeyAlgorithm::Hs256, decoding, signing: Some(secret.clone()) })
    }

    /// A public key in PEM; its kind fixes the algorithm.
    ///
    /// # Errors
    /// All but [`KeyError::ShortSecret`].
    pub fn public(kid: Option<String>, pem: &str) -> Result<Self, KeyError> {
        let label = pem.trim_start().lines().next().unwrap_or_default().trim_end();
        if !matches!(label, "-----BEGIN PUBLIC KEY-----" | "-----BEGIN RSA PUBLIC KEY-----") {
            return Err(KeyError::NotPublicPem);
        }
        let pem = pem.as_bytes();
        let (algorithm, decoding) = if let Ok(key) = DecodingKey::from_ed_pem(pem) {
            // The verifier slices without looking.
            if key.try_get_as_bytes().map(<[u8]>::len) != Ok(32) {
                return Err(KeyError::Unsupported);
            }
            (KeyAlgorithm::EdDsa, key)
        } else if let Ok(key) = DecodingKey::from_ec_pem(pem) {
            (KeyAlgorithm::Es256, key)
        } else if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
            (KeyAlgorithm::Rs256, key)
        } else {
            return Err(KeyError::NotPublicPem);
        };
        prove(algorithm, &decoding)?;
        Ok(TokenKey { kid, algorithm, decoding, signing: None })
    }

    /// Name of the key, for tokens that carry `kid`.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// What it is for.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }
}

/// A key is parsed only when it first verifies something: do that now, where it can be told.
fn prove(algorithm: KeyAlgorithm, key: &DecodingKey) -> Result<(), KeyError> {
    if algorithm == KeyAlgorithm::Rs256 {
        let der = key.try_get_as_bytes().map_err(|_| KeyError::Unsupported)?;
        let components = (rust_crypto::DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(der);
        let (modulus, _) = components.map_err(|_| KeyError::Unsupported)?;
        let bytes = modulus.iter().skip_while(|byte| **byte == 0).count();
        return if (256..=1024).contains(&bytes) { Ok(()) } else { Err(KeyError::RsaSize) };
    }
    jsonwebtoken::crypto::verify("", b"", key, algorithm.algorithm())
        .map(|_| ())
        .map_err(|_| KeyError::Unsupported)
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
