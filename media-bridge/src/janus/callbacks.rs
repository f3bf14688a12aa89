//! Events of Janus's event handlers, as `sampleevh` posts them.
//!
//! Janus reports a participant's coming with the handle that it has, its going mostly without one; so exits have no
//! incarnation and go by time, which is exact, as a name is free only when its holder is gone. Media is reported by
//! handle alone: whose it is says the `opaque_id` that the client chose when it attached, in good faith. Such an
//! event carries the handle as its incarnation, by which a false one can be told from the participant's own.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use super::JanusPlugin;
use super::keys::OBSERVER;
use crate::callback::MOST_EVENTS;
use crate::{
    Callback, CallbackError, CallbackReader, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact,
};

/// Types of events.
const MEDIA: u64 = 32;
const PLUGIN: u64 = 64;
/// Subtype of media events: packets arrive, or no longer do.
const STATE: u64 = 1;
/// The section of audio, where an event names only a section: clients publish audio first.
const AUDIO_MID: &str = "0";
/// Silence, in -dBov.
const SILENCE: f64 = 127.0;

/// Proves and reads what `sampleevh` posts.
#[derive(Clone)]
pub struct JanusCallbacks {
    username: String,
    password: String,
}

impl fmt::Debug for JanusCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JanusCallbacks").finish_non_exhaustive()
    }
}

impl JanusCallbacks {
    /// With the event handler's `backend_user` and `backend_pwd`.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: password.into() }
    }

    fn is_proved(&self, authorization: &str) -> bool {
        let Some((scheme, credentials)) = authorization.split_once(' ') else { return false };
        let Ok(given) = STANDARD.decode(credentials.trim()) else { return false };
        let expected = format!("{}:{}", self.username, self.password);
        scheme.eq_ignore_ascii_case("basic") && bool::from(expected.as_bytes().ct_eq(&given))
    }
}

impl CallbackReader for JanusCallbacks {
    fn vendor(&self) -> &'static str {
        "janus"
    }

    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        let authorization = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !authorization.is_some_and(|authorization| self.is_proved(authorization)) {
            return Err(CallbackError::Unproved("authorization".to_owned()));
        }
        let body = serde_json::from_slice(request.body);
        let events = match body.map_err(|error| CallbackError::Malformed(format!("body: {error}")))? {
            Value::Array(events) => events,
            event @ Value::Object(_) => vec![event],
            _ => return Err(CallbackError::Malformed("body: neither an array nor an object".to_owned())),
        };
        if events.len() > MOST_EVENTS {
            return Err(CallbackError::Malformed(format!("body: more than {MOST_EVENTS} events")));
        }
        let mut callback = Callback::default();
        for event in &events {
            let read = read(event).unwrap_or_default();
            callback.unknown += usize::from(read.is_empty());
            callback.events.extend(read);
        }
        callback.events.sort_by_key(|event| event.at_ms);
        Ok(callback)
    }
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: u64,
    subtype: Option<u64>,
    /// Unix microseconds.
    timestamp: u64,
    handle_id: Option<u64>,
    opaque_id: Option<String>,
    event: Value,
}

/// What an event says: nothing, or one thing, or that somebody came and is heard already.
fn read(event: &Value) -> Option<Vec<VendorEvent>> {
    let envelope = Envelope::deserialize(event).ok()?;
    let (room, name, facts) = match (envelope.kind, envelope.subtype) {
        (PLUGIN, _) => {
            let data = &envelope.event["data"];
            let plugin = envelope.event["plugin"].as_str()?;
            let plugin = [JanusPlugin::AudioBridge, JanusPlugin::VideoRoom]
                .into_iter()
                .find(|known| known.package() == plugin)?;
            (
                data["room"].as_str()?.to_owned(),
                data["id"].as_str().map(str::to_owned),
                of_plugin(plugin, data)?,
            )
        }
        (MEDIA, Some(STATE)) => {
            let (room, name) = envelope.opaque_id.as_deref()?.split_once('/')?;
            let is_audio = envelope.event["media"] == "audio";
            let flows = envelope.event["receiving"].as_bool().filter(|_| is_audio)?;
            (room.to_owned(), Some(name.to_owned()), vec![heard(flows)])
        }
        _ => return None,
    };
    let is_of_room = facts == [VendorFact::RoomFinished];
    let is_observer = name.as_deref().is_some_and(|name| name.starts_with(OBSERVER));
    if is_observer || !is_of_room && name.is_none() {
        return None;
    }
    let digest = blake3::hash(event.to_string().as_bytes()).to_hex();
    let handle: Option<Arc<str>> = envelope.handle_id.map(|handle| handle.to_string().into());
    let event = |(at, fact)| VendorEvent {
        id: if at == 0 { digest.to_string() } else { format!("{digest}-{at}") },
        room: NamedRoom::Router(room.clone()),
        who: name.clone().filter(|_| !is_of_room).map(NamedPeer::Participant),
        // Requests about others bear the handle of who asked.
        incarnation: handle.clone().filter(|_| is_by_themselves(&envelope)),
        what: fact,
        sequence: None,
        at_ms: envelope.timestamp / 1_000,
        resolution_ms: 0,
    };
    Some(facts.into_iter().enumerate().map(event).collect())
}

/// Whether the handle of an event is that of the participant whom it is about.
fn is_by_themselves(envelope: &Envelope) -> bool {
    let by_another = ["destroyed", "kicked", "mute"];
    !envelope.event["data"]["event"].as_str().is_some_and(|event| by_another.contains(&event))
}

fn of_plugin(plugin: JanusPlugin, data: &Value) -> Option<Vec<VendorFact>> {
    use VendorFact::{ParticipantJoined, RoomExited, RoomFinished};
    if let Some(event) = data["event"].as_str() {
        let muted = data["muted"].as_bool();
        return Some(match (plugin, event) {
            (_, "destroyed") => vec![RoomFinished],
            (JanusPlugin::AudioBridge, "joined") => {
                let is_heard = data["setup"] == true && muted == Some(false);
                std::iter::once(ParticipantJoined).chain(is_heard.then_some(heard(true))).collect()
            }
            (JanusPlugin::AudioBridge, "configured") => vec![heard(!muted?)],
            // Its counterpart says nothing of media, which may not flow yet.
            (JanusPlugin::AudioBridge, "mute") => vec![heard(false)],
            (JanusPlugin::AudioBridge, "left") | (JanusPlugin::VideoRoom, "leaving") | (_, "kicked") => {
                vec![RoomExited]
            }
            (JanusPlugin::VideoRoom, "joined") => vec![ParticipantJoined],
            (JanusPlugin::VideoRoom, "published" | "updated") => {
                let is_heard = data["streams"].as_array()?.iter().any(is_audible);
                // Of somebody who begins with video alone nothing was heard that could stop.
                if !is_heard && event == "published" {
                    return None;
                }
                vec![heard(is_heard)]
            }
            (JanusPlugin::VideoRoom, "unpublished") => vec![heard(false)],
            _ => return None,
        });
    }
    match data[plugin.word()].as_str()? {
        "talking" | "stopped-talking" => {
            let average = data["audio-level-dBov-avg"].as_f64()?;
            #[expect(clippy::cast_possible_truncation, reason = "a share of one needs no precision")]
            let level = (1.0 - (average / SILENCE).clamp(0.0, 1.0)) as f32;
            Some(vec![VendorFact::Level(level)])
        }
        "moderated" if data["mid"] == AUDIO_MID => Some(vec![heard(data["moderation"] == "unmuted")]),
        _ => None,
    }
}

const fn heard(flows: bool) -> VendorFact {
    if flows { VendorFact::AudioStarted } else { VendorFact::AudioStopped }
}

fn is_audible(stream: &Value) -> bool {
    stream["type"] == "audio" && stream["disabled"] != true && stream["moderated"] != true
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use serde_json::json;

    const RECORDING: &str = include_str!("../../tests/fixtures/janus/videoroom-lifecycle.evh.jsonl");

    fn callbacks() -> JanusCallbacks {
        JanusCallbacks::new("u", "p")
    }

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, authorization.parse().unwrap())])
    }

    fn read_body(body: &Value) -> Result<Callback, CallbackError> {
        let (headers, body) = (headers("Basic dTpw"), body.to_string());
        callbacks().read(&CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms: 0 })
    }

    fn bridge(data: &Value) -> Vec<VendorFact> {
        let event = json!({ "plugin": "janus.plugin.audiobridge", "data": data });
        let event = json!({ "type": 64, "timestamp": 1_700_000_000_123_456_u64, "event": event });
        read_body(&event).unwrap().events.into_iter().map(|event| event.what).collect()
    }

    fn name(event: &VendorEvent) -> &str {
        match &event.who {
            Some(NamedPeer::Participant(name)) => name,
            Some(NamedPeer::Ours { .. }) => panic!("{event:?}"),
            None => "",
        }
    }

    #[test]
    fn a_recorded_life_of_a_video_room() {
        use VendorFact::{AudioStarted, AudioStopped, Level, ParticipantJoined, RoomExited, RoomFinished};
        let (mut seen, mut unknown, mut all) = (Vec::new(), 0, Vec::new());
        for line in RECORDING.lines() {
            let request: Value = serde_json::from_str(line).unwrap();
            // The clients of the recording named themselves only.
            let body = request["body"].to_string().replace("\"opaque_id\":\"user-", "\"opaque_id\":\"r1/");
            let authorization = headers(request["headers"]["Authorization"].as_str().unwrap());
            let request = CallbackRequest { headers: &authorization, body: body.as_bytes(), now_ms: 0 };
            let callback = callbacks().read(&request).unwrap();
            unknown += callback.unknown;
            all.extend(callback.events);
        }
        for event in &all {
            assert_eq!(event.room, NamedRoom::Router("r1".to_owned()));
            assert!((1_795_981_455_794..1_795_981_550_000).contains(&event.at_ms), "{event:?}");
            if !matches!(event.what, Level(_)) {
                seen.push((name(event), event.what));
            }
        }
        let expected = [
            ("alice", ParticipantJoined),
            ("bob", ParticipantJoined),
            ("alice", AudioStarted),
            ("alice", AudioStarted),
            ("alice", AudioStopped),
            ("alice", AudioStarted),
            ("alice", AudioStopped),
            ("alice", AudioStarted),
            ("alice", AudioStopped),
            ("alice", AudioStopped),
            ("alice", AudioStarted),
            ("alice", AudioStarted),
            ("alice", RoomExited),
            ("bob", RoomExited),
            ("carol", ParticipantJoined),
            ("carol", AudioStarted),
            ("carol", AudioStarted),
            ("carol", AudioStopped),
            ("carol", AudioStopped),
            ("carol", RoomExited),
            ("dave", ParticipantJoined),
            ("eve", ParticipantJoined),
            ("", RoomFinished),
        ];
        assert_eq!(seen, expected);
        let loud: Vec<_> = all
            .iter()
            .filter_map(|event| match event.what {
                Level(level) => Some((name(event), level)),
                _ => None,
            })
            .collect();
        assert_eq!(loud.len(), 5);
        assert!(loud.contains(&("alice", 1.0 - 12.0 / 127.0)) && loud.contains(&("alice", 0.0)), "{loud:?}");
        assert!(unknown > 50);
        let ids: std::collections::HashSet<_> = all.iter().map(|event| &event.id).collect();
        assert_eq!(ids.len(), all.len(), "each has an id of its own, also the repeated ones");
        for event in &all {
            // Janus names no handle where somebody goes; those of the requests are not the participants'.
            let has_handle = matches!(event.what, ParticipantJoined | Level(_));
            assert!(event.incarnation.is_some() || !has_handle, "{event:?}");
            assert!(
                event.incarnation.is_none() || !matches!(event.what, RoomExited | RoomFinished),
                "{event:?}"
            );
        }
    }

    #[test]
    fn an_audio_bridge_tells_who_mutes_themselves() {
        use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
        let of = |event: &str, more: Value| {
            let mut data = json!({ "event": event, "room": "r", "id": "ann" });
            data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            bridge(&data)
        };
        assert_eq!(of("joined", json!({ "setup": false, "muted": false })), [ParticipantJoined]);
        assert_eq!(of("joined", json!({ "setup": true, "muted": true })), [ParticipantJoined]);
        assert_eq!(of("joined", json!({ "setup": true, "muted": false })), [ParticipantJoined, AudioStarted]);
        assert_eq!(of("configured", json!({ "muted": true, "quality": 4 })), [AudioStopped]);
        assert_eq!(of("configured", json!({ "muted": false })), [AudioStarted]);
        assert_eq!(of("mute", json!({})), [AudioStopped]);
        assert_eq!(of("unmute", json!({})), [], "whether media flows is unknown");
        assert_eq!(of("kicked", json!({})), [RoomExited]);
        assert_eq!(of("left", json!({})), [RoomExited]);
        assert_eq!(bridge(&json!({ "event": "destroyed", "room": "r" })), [RoomFinished]);
        assert_eq!(bridge(&json!({ "event": "mute_room", "room": "r" })), []);
        assert_eq!(bridge(&json!({ "event": "joined", "room": 1234, "id": 5 })), [], "numbers are not ours");
    }

    #[test]
    fn what_was_asked_by_a_handle_is_not_its_own() {
        let event = |data: Value| {
            let event = json!({ "plugin": "janus.plugin.audiobridge", "data": data });
            let event =
                json!({ "type": 64, "timestamp": 1, "session_id": 1, "handle_id": 7, "event": event });
            read_body(&event).unwrap().events.remove(0).incarnation
        };
        assert_eq!(event(json!({ "event": "joined", "room": "r", "id": "ann" })).as_deref(), Some("7"));
        assert_eq!(event(json!({ "event": "left", "room": "r", "id": "ann" })).as_deref(), Some("7"));
        for asked in ["mute", "kicked", "destroyed"] {
            assert_eq!(event(json!({ "event": asked, "room": "r", "id": "ann" })), None, "{asked}");
        }
    }

    #[test]
    fn a_coordinator_that_looks_into_a_room_is_nobody() {
        let data = json!({ "event": "joined", "room": "r", "id": "dais-7-x" });
        let event = json!({ "plugin": "janus.plugin.videoroom", "data": data });
        let callback = read_body(&json!({ "type": 64, "timestamp": 1, "event": event })).unwrap();
        assert_eq!((callback.events.len(), callback.unknown), (0, 1));
    }

    #[test]
    fn only_the_event_handler_is_believed() {
        let read = |headers: &HeaderMap| {
            callbacks()
                .read(&CallbackRequest { headers, body: b"[]", now_ms: 0 })
                .map(|callback| callback.unknown)
        };
        assert_eq!(read(&headers("Basic dTpw")), Ok(0));
        assert_eq!(read(&headers("basic dTpw")), Ok(0));
        let unproved = Err(CallbackError::Unproved("authorization".to_owned()));
        for wrong in ["Basic dTpx", "Basic", "Basic !", "Bearer dTpw", "dTpw", "", "Basic dTpwcA=="] {
            assert_eq!(read(&headers(wrong)), unproved, "{wrong}");
        }
        assert_eq!(read(&HeaderMap::new()), unproved);
        assert!(!format!("{:?}", callbacks()).contains('p'.to_string().repeat(2).as_str()));
    }

    #[test]
    fn a_strange_event_spoils_no_other() {
        let data = json!({ "event": "left", "room": "r", "id": "ann" });
        let good = json!({ "type": 64, "timestamp": 5_999, "event": { "plugin": "janus.plugin.audiobridge", "data": data } });
        let strange = [
            json!(1),
            json!({}),
            json!({ "type": 64 }),
            json!({ "type": 32, "subtype": 3, "timestamp": 1, "event": [] }),
        ];
        for strange in strange {
            let callback = read_body(&json!([strange, good])).unwrap();
            assert_eq!((callback.events.len(), callback.unknown), (1, 1));
            assert_eq!(callback.events[0].at_ms, 5);
        }
        let malformed = |body: &Value| matches!(read_body(body), Err(CallbackError::Malformed(_)));
        assert!(malformed(&json!("x")) && malformed(&json!(vec![good.clone(); MOST_EVENTS + 1])));
        assert_eq!(read_body(&good).unwrap().events.len(), 1, "one alone is no array");
        assert_eq!(read_body(&json!(vec![good; MOST_EVENTS])).unwrap().events.len(), MOST_EVENTS);
    }
}
