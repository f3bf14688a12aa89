//! `[app.callbacks]`: how the callbacks of media servers are proved.

use std::sync::Arc;

use media_bridge::{
    AgoraCallbacks, CallbackReader, GenericCallbacks, JanusCallbacks, LivekitCallbacks, TrtcCallbacks,
};

use super::error::Fault;
use super::keys;
use super::secret::Secret;
use super::section::Section;
use crate::auth::TokenKey;

/// Longest name of a user or a key, in bytes.
const NAME_BYTES: usize = 128;
/// Shortest password that goes with each callback, in bytes.
const PASSWORD_BYTES: usize = 16;

/// `[app.callbacks]`. Of a vendor that is `None` no callbacks are taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// Secret of callbacks in our own form.
    pub generic: Option<Secret>,
    /// What Janus's event handlers sign in with.
    pub janus: Option<Login>,
    /// Name and secret of the key that LiveKit signs with.
    pub livekit: Option<Login>,
    /// The key that TRTC signs with.
    pub trtc: Option<Secret>,
    /// The secret that Agora signs with.
    pub agora: Option<Secret>,
}

/// A name, and the secret that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub name: String,
    /// The secret.
    pub secret: Secret,
}

impl Callbacks {
    /// What proves and reads them.
    pub fn readers(&self) -> Vec<Arc<dyn CallbackReader>> {
        let mut readers: Vec<Arc<dyn CallbackReader>> = Vec::new();
        if let Some(secret) = &self.generic {
            readers.push(Arc::new(GenericCallbacks::new(secret.expose())));
        }
        if let Some(Login { name, secret }) = &self.janus {
            readers.push(Arc::new(JanusCallbacks::new(name.as_str(), secret.expose())));
        }
        if let Some(Login { name, secret }) = &self.livekit {
            let key = (name.clone(), secret.expose().to_owned());
            readers.push(Arc::new(LivekitCallbacks { keys: vec![key] }));
        }
        if let Some(key) = &self.trtc {
            readers.push(Arc::new(TrtcCallbacks { key: key.expose().to_owned() }));
        }
        if let Some(secret) = &self.agora {
            readers.push(Arc::new(AgoraCallbacks { secret: secret.expose().to_owned() }));
        }
        readers
    }
}

/// Reads an app's callbacks.
pub(super) fn read(section: &mut Section<'_>) -> Callbacks {
    let Some(mut callbacks) = section.table("callbacks", keys::CALLBACKS) else {
        return Callbacks::default();
    };
    let least = TokenKey::MIN_SECRET_BYTES;
    let generic = callbacks.table("generic", keys::GENERIC_CALLBACKS).and_then(|generic| {
        let right = format!("at least {least} random bytes");
        secret(&generic, "secret", "what the media server signs its callbacks with", &right, |secret| {
            secret.len() >= least
        })
    });
    let janus = callbacks.table("janus", keys::JANUS_CALLBACKS).and_then(|janus| {
        let right = format!("1 to {NAME_BYTES} visible ASCII characters without a colon");
        let name = name(&janus, "username", "`backend_user` of the event handler", &right, |name| {
            is_visible(name) && !name.contains(':')
        });
        let right = format!("at least {PASSWORD_BYTES} random visible ASCII characters");
        let secret = secret(&janus, "password", "`backend_pwd` of the event handler", &right, |secret| {
            secret.len() >= PASSWORD_BYTES && is_visible(secret)
        });
        Some(Login { name: name?, secret: secret? })
    });
    let livekit = callbacks.table("livekit", keys::LIVEKIT_CALLBACKS).and_then(|livekit| {
        let right = format!("1 to {NAME_BYTES} visible ASCII characters");
        let name = name(&livekit, "api_key", "`webhook.api_key` of the server", &right, is_visible);
        let what = "the secret of `webhook.api_key`";
        let secret = secret(&livekit, "api_secret", what, NOT_EMPTY, is_given);
        Some(Login { name: name?, secret: secret? })
    });
    let trtc = callbacks.table("trtc", keys::TRTC_CALLBACKS).and_then(|trtc| {
        let right = "the 1 to 32 letters and digits of the console";
        secret(&trtc, "key", "the callbacks' key, as in the console", right, |key| {
            (1..=32).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    });
    let agora = callbacks.table("agora", keys::AGORA_CALLBACKS).and_then(|agora| {
        secret(&agora, "secret", "the notifications' secret, as in the console", NOT_EMPTY, is_given)
    });
    Callbacks { generic, janus, livekit, trtc, agora }
}

const NOT_EMPTY: &str = "not empty";

fn is_given(secret: &str) -> bool {
    !secret.is_empty()
}

fn is_visible(text: &str) -> bool {
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn name(
    section: &Section<'_>,
    key: &str,
    what: &str,
    right: &str,
    fits: impl Fn(&str) -> bool,
) -> Option<String> {
    if !section.has(key) {
        section.missing(key, what);
    }
    section.parsed(key, right, |text| fits(text).then(|| text.to_owned()))
}

fn secret(
    section: &Section<'_>,
    key: &str,
    what: &str,
    right: &str,
    fits: impl Fn(&str) -> bool,
) -> Option<Secret> {
    match section.secret(key) {
        Some(secret) if fits(secret.value.expose()) => Some(secret.value),
        Some(secret) => {
            section.note(&secret.place, key, Fault::BadValue { found: None, right: right.to_owned() });
            None
        }
        // What is given and could not be read has been noted already.
        None if section.has(key) || section.has(&format!("{key}_file")) => None,
        None => {
            section.missing(key, what);
            None
        }
    }
}
