//! Bodies of requests, from raw JSON to checked types. What is wrong is named with its field.

use key_prefix::{RoomId, UserId};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use socketioxide::adapter::LocalAdapter;
use socketioxide::extract::TryData;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::inbound::Request;
use crate::error::ApiError;

/// Longest idempotency key in characters.
const ID_CHARS: usize = 64;
/// Longest text of an error that quotes what somebody sent.
const ERROR_CHARS: usize = 200;

/// `room:join`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Join {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    #[serde(default)]
    pub role: Option<WantedRole>,
    #[serde(default)]
    pub attributes: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "label")]
    pub resume: Option<Arc<str>>,
    #[serde(default)]
    pub hops: u32,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// What a client wants to be in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WantedRole {
    Guest,
    Host,
    Monitor,
}

/// `room:leave`, `room:heartbeat`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct InRoom {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `room:peers`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Peers {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "label")]
    pub cursor: Option<Arc<str>>,
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `room:update`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(super) struct Update {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub if_version: Option<u64>,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `guest:update`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object", rename_all = "camelCase")]
pub(super) struct GuestUpdate {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    #[serde(default, deserialize_with = "user")]
    pub user: Option<UserId>,
    pub state: Map<String, Value>,
    #[serde(default)]
    pub if_version: Option<u64>,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `room:watch`, `room:unwatch`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Watch {
    #[serde(deserialize_with = "rooms")]
    pub rooms: Vec<RoomId>,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `rooms:list`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct List {
    #[serde(default, deserialize_with = "label")]
    pub cursor: Option<Arc<str>>,
    #[serde(default)]
    pub limit: Option<usize>,
    #[serde(default, deserialize_with = "label")]
    pub prefix: Option<Arc<str>>,
    #[serde(default, deserialize_with = "label")]
    pub status: Option<Arc<str>>,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

/// `media:publish`, `media:subscribe`
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Media {
    #[serde(deserialize_with = "room")]
    pub room: RoomId,
    pub sdp: String,
    #[serde(default, rename = "id", deserialize_with = "id")]
    _id: (),
}

fn room<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RoomId, D::Error> {
    let text = String::deserialize(deserializer)?;
    RoomId::new(&text).map_err(D::Error::custom)
}

fn rooms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RoomId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| RoomId::new(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UserId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| UserId::new(&text)).transpose().map_err(D::Error::custom)
}

/// A text of at most 128 bytes without control characters.
fn label<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.len() > 128 || text.chars().any(char::is_control) => {
            Err(D::Error::custom("a text of at most 128 bytes without control characters is expected"))
        }
        text => Ok(text.map(Into::into)),
    }
}

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.is_empty() || text.chars().count() > ID_CHARS => {
            Err(D::Error::custom("`id` must have 1 to 64 characters"))
        }
        _ => Ok(()),
    }
}

/// A struct that is read from an object only: derived ones take a list of their fields as well.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// Reads the body of a request.
pub(super) fn body<T: DeserializeOwned>(request: &mut Request) -> Result<T, ApiError> {
    if let socketioxide_core::Value::Str(_, Some(binaries)) = &request.body
        && !binaries.is_empty()
    {
        return Err(ApiError::bad_request("binary attachments are not taken"));
    }
    let Ok(TryData(read)) =
        <TryData<Object<T>> as socketioxide::handler::FromMessageParts<LocalAdapter>>::from_message_parts(
            &request.socket,
            &mut request.body,
            &None,
        );
    read.map(|Object(body)| body).map_err(|error| {
        let text: String = error.to_string().chars().take(ERROR_CHARS).collect();
        ApiError::bad_request(format!("{}: {text}", request.event))
    })
}
