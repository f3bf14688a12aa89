//! What tokens for LiveKit allow.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::jwt;
use crate::{Member, Permissions};

/// Life of a token that is made for one call.
const CALL: Duration = Duration::from_secs(60);

/// A pair of an API key and its secret, and the clock for tokens.
pub(super) struct Signer<'a> {
    pub(super) key: &'a str,
    pub(super) secret: &'a str,
    pub(super) now_ms: i64,
}

/// Something in a room that can be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Microphone,
    Camera,
    ScreenShare,
    ScreenShareAudio,
}

impl Source {
    /// What these permissions let somebody publish.
    pub(super) fn allowed(permissions: Permissions) -> Vec<Self> {
        let Permissions { publish_audio, publish_video, .. } = permissions;
        let all = [
            (publish_audio, Self::Microphone),
            (publish_video, Self::Camera),
            (publish_video, Self::ScreenShare),
            (publish_audio && publish_video, Self::ScreenShareAudio),
        ];
        all.into_iter().filter_map(|(allowed, source)| allowed.then_some(source)).collect()
    }

    const fn in_tokens(self) -> &'static str {
        match self {
            Self::Microphone => "microphone",
            Self::Camera => "camera",
            Self::ScreenShare => "screen_share",
            Self::ScreenShareAudio => "screen_share_audio",
        }
    }

    /// Its name in the API.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Microphone => "MICROPHONE",
            Self::Camera => "CAMERA",
            Self::ScreenShare => "SCREEN_SHARE",
            Self::ScreenShareAudio => "SCREEN_SHARE_AUDIO",
        }
    }
}

/// What a token for the API is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right<'a> {
    /// Making and closing rooms.
    Create,
    /// Listing rooms.
    List,
    /// Everything within one room.
    Admin(&'a str),
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    nbf: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'static str, &'a str>,
    video: Video<'a>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Video<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    room_create: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    room_list: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    room_admin: bool,
    #[serde(flatten)]
    join: Option<Join>,
}

/// What is unset here LiveKit takes for allowed, so all of it is said.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Join {
    room_join: bool,
    can_publish: bool,
    can_publish_sources: Vec<&'static str>,
    can_subscribe: bool,
    can_publish_data: bool,
    can_update_own_metadata: bool,
}

impl Signer<'_> {
    /// Lets a member join a room.
    pub(super) fn join(
        &self,
        room: &str,
        member: &Member,
        permissions: Permissions,
        life: Duration,
    ) -> String {
        let sources: Vec<_> = Source::allowed(permissions).into_iter().map(Source::in_tokens).collect();
        let join = Join {
            room_join: true,
            can_publish: !sources.is_empty(),
            can_publish_sources: sources,
            can_subscribe: permissions.subscribe,
            can_publish_data: false,
            can_update_own_metadata: false,
        };
        let claims = Claims {
            sub: Some(&member.name),
            name: member.display.as_deref(),
            attributes: BTreeMap::from([("user", &*member.peer.user), ("peer", &*member.peer.peer)]),
            ..self.claims(life, Video { room: Some(room), join: Some(join), ..Video::default() })
        };
        jwt::sign(&claims, self.secret)
    }

    /// Lets one call to the API be made.
    pub(super) fn call(&self, right: Right<'_>) -> String {
        let none = Video::default();
        let video = match right {
            Right::Create => Video { room_create: true, ..none },
            Right::List => Video { room_list: true, ..none },
            Right::Admin(room) => Video { room_admin: true, room: Some(room), ..none },
        };
        jwt::sign(&self.claims(CALL, video), self.secret)
    }

    fn claims<'a>(&'a self, life: Duration, video: Video<'a>) -> Claims<'a> {
        let nbf = self.now_ms.div_euclid(1_000);
        let exp = nbf.saturating_add(i64::try_from(life.as_secs()).unwrap_or(i64::MAX));
        Claims { iss: self.key, sub: None, nbf, exp, name: None, attributes: BTreeMap::new(), video }
    }
}
