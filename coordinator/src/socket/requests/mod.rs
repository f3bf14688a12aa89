//! Bodies of requests, from raw JSON to checked types. What is wrong is named with its field.

mod call;
mod mic;
mod moderation;
mod room;

pub(super) use call::{CallAccept, CallDecline, CallHangup, CallInvite};
pub(super) use mic::{
    MicConfirm, MicDown, MicInvite, MicLock, MicMove, MicMute, MicMuteAll, MicRequest, MicRespond, MicSeats,
    MicUp,
};
pub(super) use moderation::{Close, Kick, LockDoor, SetRole, Unban};
pub(super) use room::{
    GuestUpdate, InRoom, Join, Leave, List, Media, PeerUpdate, Peers, Refresh, Update, WantedRole, Watch,
    check_attributes,
};

use key_prefix::{RoomId, UserId};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
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
/// Longest id and label in bytes.
const LABEL_BYTES: usize = 128;

fn room<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RoomId, D::Error> {
    let text = String::deserialize(deserializer)?;
    RoomId::new(&text).map_err(D::Error::custom)
}

fn rooms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RoomId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| RoomId::new(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserId, D::Error> {
    let text = String::deserialize(deserializer)?;
    UserId::new(&text).map_err(D::Error::custom)
}

fn some_user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UserId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| UserId::new(&text)).transpose().map_err(D::Error::custom)
}

fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<UserId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| UserId::new(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// A text of at most 128 bytes without control characters.
fn label<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.len() > LABEL_BYTES || text.chars().any(char::is_control) => {
            Err(D::Error::custom("a text of at most 128 bytes without control characters is expected"))
        }
        text => Ok(text.map(Into::into)),
    }
}

/// The name of something that the server made: a mic session, a call.
fn made<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() || text.len() > LABEL_BYTES || text.chars().any(char::is_control) {
        return Err(D::Error::custom("1 to 128 bytes without control characters are expected"));
    }
    Ok(text.into())
}

fn some_made<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    struct Made(Arc<str>);
    impl<'de> Deserialize<'de> for Made {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            made(deserializer).map(Self)
        }
    }
    Ok(Option::<Made>::deserialize(deserializer)?.map(|Made(text)| text))
}

/// The idempotency key.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if text.is_empty() || text.chars().count() > ID_CHARS => {
            Err(D::Error::custom("must have 1 to 64 characters"))
        }
        text => Ok(text.map(Into::into)),
    }
}

/// The idempotency key of what does the same whenever it is repeated: checked, and not needed.
fn unneeded_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    id(deserializer).map(drop)
}

/// A struct that is read from an object only: derived ones take a list of their fields as well. What is wrong
/// in it is named with the field that it is in.
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
                let read = serde_path_to_error::deserialize(MapAccessDeserializer::new(map));
                read.map(Object).map_err(|error| {
                    let path = error.path().to_string();
                    if path == "." {
                        error.into_inner()
                    } else {
                        A::Error::custom(in_field(&path, error.inner()))
                    }
                })
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

fn in_field(path: &str, what: &impl fmt::Display) -> String {
    format!("`{path}`: {what}")
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
    named(&request.event, read)
}

/// The body, or what is wrong with it, under the event's name.
fn named<T>(event: &str, read: Result<Object<T>, impl fmt::Display>) -> Result<T, ApiError> {
    read.map(|Object(body)| body).map_err(|error| {
        let text: String = error.to_string().chars().take(ERROR_CHARS).collect();
        ApiError::bad_request(format!("{event}: {text}"))
    })
}

#[cfg(test)]
pub(super) fn read<T: DeserializeOwned>(event: &str, text: &str) -> Result<T, ApiError> {
    named(event, serde_json::from_str::<Object<T>>(text))
}

#[cfg(test)]
mod tests;
