//! Webhooks of LiveKit.
//!
//! Their times are whole seconds. Muting is not reported: a track that is published muted is not heard of here, nor
//! is a later mute or unmute; only the list of participants tells.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::jwt;
use crate::{
    Callback, CallbackError, CallbackReader, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact,
};

/// Proves and reads what LiveKit posts.
#[derive(Clone)]
pub struct LivekitCallbacks {
    /// API keys and their secrets: webhooks signed with any of them are taken.
    pub keys: Vec<(String, String)>,
}

impl fmt::Debug for LivekitCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivekitCallbacks").field("keys", &self.keys.len()).finish()
    }
}

impl LivekitCallbacks {
    fn prove(&self, request: &CallbackRequest<'_>) -> Result<(), &'static str> {
        let mut headers = request.headers.get_all(AUTHORIZATION).iter();
        let (Some(token), None) = (headers.next(), headers.next()) else { return Err("missing or twice") };
        let token = token.to_str().map_err(|_| "form")?;
        let claims = jwt::verify(token, &self.keys, request.now_ms)?;
        let digest = STANDARD.encode(Sha256::digest(request.body));
        let is_of_body = bool::from(digest.as_bytes().ct_eq(claims.sha256.as_bytes()));
        is_of_body.then_some(()).ok_or("sha256")
    }
}

impl CallbackReader for LivekitCallbacks {
    fn vendor(&self) -> &'static str {
        "livekit"
    }

    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        self.prove(request).map_err(|why| CallbackError::Unproved(format!("authorization: {why}")))?;
        let webhook: Webhook = serde_json::from_slice(request.body)
            .map_err(|error| CallbackError::Malformed(format!("body: {error}")))?;
        let Some(what) = webhook.fact() else { return Ok(Callback { events: Vec::new(), unknown: 1 }) };
        let missing = |what: &str| CallbackError::Malformed(format!("{what}: missing"));
        let created_at = webhook.created_at.ok_or_else(|| missing("createdAt"))?;
        let room = webhook.room.name.ok_or_else(|| missing("room.name"))?;
        let Somebody { identity, sid, .. } = webhook.participant;
        let (who, incarnation) = if what == VendorFact::RoomFinished {
            (None, None)
        } else {
            let identity = identity.ok_or_else(|| missing("participant.identity"))?;
            (Some(NamedPeer::Participant(identity)), sid.map(Arc::from))
        };
        let event = VendorEvent {
            id: webhook.id.unwrap_or_else(|| blake3::hash(request.body).to_hex().to_string()),
            room: NamedRoom::Router(room),
            who,
            what,
            incarnation,
            sequence: None,
            at_ms: created_at.saturating_mul(1_000),
            resolution_ms: 1_000,
        };
        Ok(Callback { events: vec![event], unknown: 0 })
    }
}

/// What is zero is left out of a webhook; `null` is the same.
#[derive(Deserialize)]
struct Webhook {
    event: String,
    id: Option<String>,
    #[serde(alias = "created_at", rename = "createdAt", default, deserialize_with = "whole")]
    created_at: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    room: Room,
    #[serde(default, deserialize_with = "or_default")]
    participant: Somebody,
    #[serde(default, deserialize_with = "or_default")]
    track: Track,
}

#[derive(Deserialize, Default)]
struct Room {
    name: Option<String>,
}

#[derive(Deserialize, Default)]
struct Somebody {
    sid: Option<String>,
    identity: Option<String>,
    #[serde(alias = "disconnect_reason", rename = "disconnectReason", default)]
    disconnect_reason: Value,
}

/// The fields of a track that tell whether it is somebody's voice, here and in the list of participants. Values that
/// are not known are not a fault.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Track {
    #[serde(rename = "type", default)]
    kind: Value,
    #[serde(default)]
    source: Value,
    #[serde(default)]
    muted: Value,
}

impl Track {
    /// The microphone, or audio of which nothing is said; not the sound of a shared screen.
    pub(super) fn is_voice(&self) -> bool {
        let is_audio = self.kind.is_null() || self.kind == "AUDIO" || self.kind == 0;
        let of = &self.source;
        is_audio && (of.is_null() || of == "UNKNOWN" || of == 0 || of == "MICROPHONE" || of == 2)
    }

    pub(super) fn is_muted(&self) -> bool {
        self.muted == true
    }
}

impl Webhook {
    /// What it says that matters here.
    fn fact(&self) -> Option<VendorFact> {
        match self.event.as_str() {
            "participant_joined" => Some(VendorFact::ParticipantJoined),
            // Moved to another node of a cluster: comes back, or is missed in the list.
            "participant_left" if self.participant.disconnect_reason == "MIGRATION" => None,
            "participant_left" => Some(VendorFact::RoomExited),
            "track_published" if self.track.is_muted() => None,
            "track_published" => self.track.is_voice().then_some(VendorFact::AudioStarted),
            "track_unpublished" => self.track.is_voice().then_some(VendorFact::AudioStopped),
            "room_finished" => Some(VendorFact::RoomFinished),
            _ => None,
        }
    }
}

/// What `null` stands for in LiveKit's JSON.
pub(super) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A 64-bit number, which protobuf's JSON writes as a string.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = match Value::deserialize(from)? {
        Value::Null => return Ok(None),
        Value::String(digits) => digits.parse().ok(),
        number => number.as_u64(),
    };
    number.map(Some).ok_or_else(|| serde::de::Error::custom("not a whole number"))
}
