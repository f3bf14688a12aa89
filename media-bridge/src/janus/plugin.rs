//! What differs between the two plugins that can be a room.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::MediaError;

/// Publishers that a video room takes: how many there may be is decided before they get a grant.
const PUBLISHERS: u32 = 1_000;
/// Packets over which loudness is averaged, half a second of them.
const LEVEL_PACKETS: u32 = 25;
/// The average, in -dBov, from which somebody counts as talking.
const TALKING: u32 = 40;

/// Which plugin makes the rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JanusPlugin {
    /// Audio alone, mixed by the server: each client receives one stream, however many speak.
    AudioBridge,
    /// Audio and video, forwarded: each client subscribes to each publisher.
    VideoRoom,
}

/// Error codes of a plugin that mean more than a refusal.
pub(super) struct Codes {
    pub(super) no_room: u64,
    pub(super) room_exists: u64,
    pub(super) no_user: u64,
}

impl JanusPlugin {
    /// The word for it, as in a grant.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AudioBridge => "audiobridge",
            Self::VideoRoom => "videoroom",
        }
    }

    /// Its name at Janus.
    pub(super) const fn package(self) -> &'static str {
        match self {
            Self::AudioBridge => "janus.plugin.audiobridge",
            Self::VideoRoom => "janus.plugin.videoroom",
        }
    }

    pub(super) const fn codes(self) -> Codes {
        match self {
            Self::AudioBridge => Codes { no_room: 485, room_exists: 486, no_user: 492 },
            Self::VideoRoom => Codes { no_room: 426, room_exists: 427, no_user: 428 },
        }
    }

    /// What an error code means for who asked `what`.
    pub(super) fn fault(self, what: &str, code: u64) -> MediaError {
        let codes = self.codes();
        if code == codes.no_room {
            MediaError::NotFound { what: "room" }
        } else if code == codes.no_user {
            MediaError::NotFound { what: "participant" }
        } else {
            // Janus's own words may hold names.
            MediaError::Refused { reason: format!("{what}: error {code}") }
        }
    }

    /// The request that makes a room, which nobody but the holder of `own_token` may join yet.
    pub(super) fn create(self, room: &str, secret: &str, own_token: &str, plain_rtp: bool) -> Value {
        let mut request = json!({
            "request": "create",
            "room": room,
            "secret": secret,
            "allowed": [own_token],
            "permanent": false,
            "is_private": true,
            "audiolevel_event": true,
            "audio_active_packets": LEVEL_PACKETS,
            "audio_level_average": TALKING,
        });
        match self {
            Self::AudioBridge => {
                request["sampling_rate"] = json!(48_000);
                request["audiolevel_ext"] = json!(true);
                request["allow_rtp_participants"] = json!(plain_rtp);
            }
            Self::VideoRoom => {
                request["publishers"] = json!(PUBLISHERS);
                // A subscriber is asked for no token: it proves by its private id that it has joined with one.
                request["require_pvtid"] = json!(true);
                request["lock_record"] = json!(true);
                request["notify_joining"] = json!(false);
                request["audiocodec"] = json!("opus");
            }
        }
        request
    }
}
