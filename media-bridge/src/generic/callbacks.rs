//! The callbacks of a media server that is attached by signed HTTP: one event, or a list of them.
//!
//! The raw body is proved before it is parsed, and every event is checked before the first is given on: a sender may
//! repeat the whole.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::signature::Key;
use crate::callback::MOST_EVENTS;
use crate::{
    Callback, CallbackError, CallbackReader, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact,
};

/// Longest id or name, in bytes.
const MOST_BYTES: usize = 128;
/// Longest text of an error that quotes what somebody sent.
const ERROR_CHARS: usize = 300;

/// Proves and reads what a media server posts in our own form.
#[derive(Clone)]
pub struct GenericCallbacks {
    secret: String,
}

impl fmt::Debug for GenericCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenericCallbacks").finish_non_exhaustive()
    }
}

impl GenericCallbacks {
    /// With the secret that the media server signs with.
    pub fn new(secret: impl Into<String>) -> Self {
        Self { secret: secret.into() }
    }
}

impl CallbackReader for GenericCallbacks {
    fn vendor(&self) -> &'static str {
        "generic"
    }

    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        let key = Key::new(&self.secret).ok_or_else(|| CallbackError::Unproved("no secret".to_owned()))?;
        key.verify(request.headers, request.body, request.now_ms / 1_000)
            .map_err(|error| CallbackError::Unproved(error.to_string()))?;
        parse(request.body, request.now_ms).map_err(CallbackError::Malformed)
    }
}

/// An event as it is sent. What is sent beside these fields is not looked at.
#[derive(Debug, Deserialize)]
struct Sent {
    id: Option<String>,
    room: Option<String>,
    router: Option<String>,
    user: Option<String>,
    peer: Option<String>,
    participant: Option<String>,
    at: Option<u64>,
    session: Option<String>,
    sequence: Option<u64>,
    level: Option<f32>,
    #[serde(rename = "reason")]
    _reason: Option<String>,
}

fn parse(body: &[u8], now_ms: u64) -> Result<Callback, String> {
    let body = serde_json::from_slice(body).map_err(|error| format!("the body: {error}"))?;
    let (sent, is_list) = match body {
        Value::Array(events) => (events, true),
        one => (vec![one], false),
    };
    if sent.is_empty() || sent.len() > MOST_EVENTS {
        return Err(format!("the list must have 1 to {MOST_EVENTS} events"));
    }
    let mut callback = Callback::default();
    for (n, event) in sent.into_iter().enumerate() {
        let place = if is_list { format!("[{n}]") } else { String::new() };
        match parse_one(event, &Place(place), now_ms)? {
            Some(event) => callback.events.push(event),
            None => callback.unknown += 1,
        }
    }
    Ok(callback)
}

fn parse_one(mut event: Value, place: &Place, now_ms: u64) -> Result<Option<VendorEvent>, String> {
    let kind = event.get("type").filter(|_| event.is_object()).and_then(Value::as_str);
    let kind = kind.ok_or_else(|| place.wrong("type", "an object with a text here is expected"))?;
    let is_level = kind == "level";
    let fact = match kind {
        "participant_joined" => VendorFact::ParticipantJoined,
        "audio_started" => VendorFact::AudioStarted,
        "audio_stopped" => VendorFact::AudioStopped,
        "room_exited" => VendorFact::RoomExited,
        "room_finished" => VendorFact::RoomFinished,
        "level" => VendorFact::Level(0.0),
        _ => return Ok(None),
    };
    for number in ["at", "sequence"] {
        event.get_mut(number).into_iter().for_each(make_whole);
    }
    let sent: Sent = serde_path_to_error::deserialize(event).map_err(|error| place.unread(&error))?;

    for (field, text) in [("id", &sent.id), ("session", &sent.session)] {
        if text.as_deref().and_then(fault).is_some() {
            return Err(place.wrong(field, "1 to 128 bytes without control characters are expected"));
        }
    }
    for (field, text) in [
        ("room", &sent.room),
        ("router", &sent.router),
        ("user", &sent.user),
        ("peer", &sent.peer),
        ("participant", &sent.participant),
    ] {
        if let Some(fault) = text.as_deref().and_then(fault) {
            return Err(place.wrong(field, &format!("{field} {fault}")));
        }
    }
    // Levels come many times a second and are not kept: nothing has to tell a repeated one.
    let id = match sent.id {
        Some(id) => id,
        None if is_level => String::new(),
        None => return Err(place.missing("id")),
    };
    let room = match (sent.room, sent.router) {
        (Some(room), None) => NamedRoom::Ours(room),
        (None, Some(router)) => NamedRoom::Router(router),
        (None, None) => return Err(place.missing("room")),
        (Some(_), Some(_)) => return Err(place.wrong("router", "not together with `room`")),
    };
    let at_ms = match sent.at {
        Some(at) => at,
        None if is_level => now_ms,
        None => return Err(place.missing("at")),
    };
    let who = match (sent.user, sent.peer, sent.participant) {
        (Some(user), peer, None) => Some(NamedPeer::Ours { user, peer }),
        (None, None, Some(name)) => Some(NamedPeer::Participant(name)),
        (Some(_), _, Some(_)) => return Err(place.wrong("participant", "not together with `user`")),
        (None, Some(_), _) => return Err(place.wrong("peer", "not without `user`")),
        (None, None, None) if fact == VendorFact::RoomFinished => None,
        (None, None, None) => return Err(place.wrong("user", "missing")),
    };
    let what = match (fact, sent.level) {
        (VendorFact::Level(_), Some(level)) if (0.0..=1.0).contains(&level) => VendorFact::Level(level),
        (VendorFact::Level(_), _) => return Err(place.wrong("level", "a number from 0 to 1 is expected")),
        (fact, _) => fact,
    };
    let incarnation = sent.session.map(Into::into);
    Ok(Some(VendorEvent {
        id,
        room,
        who,
        what,
        incarnation,
        sequence: sent.sequence,
        at_ms,
        resolution_ms: 0,
    }))
}

/// What is wrong with an id or a name, as the rest of a sentence.
fn fault(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if text.len() > MOST_BYTES {
        return Some(format!("has {} bytes, at most {MOST_BYTES} are allowed", text.len()));
    }
    let (at, found) = text.char_indices().find(|(_, c)| c.is_control())?;
    Some(format!("holds the character {found:?} at byte {at}, which is not allowed"))
}

/// A number without a fraction is a whole one, however it is written: `18.0` is 18.
fn make_whole(value: &mut Value) {
    /// Beyond it a double has no fractions, nor all whole numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = value.as_f64().filter(|_| value.is_f64());
    if let Some(found) = float.filter(|it| it.fract() == 0.0 && it.abs() <= EXACT) {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within the exact range")]
        let whole = found as i64;
        *value = whole.into();
    }
}

/// Where an event stands in the body: `[3]`, or nowhere if it is the body.
struct Place(String);

impl Place {
    fn wrong(&self, field: &str, right: &str) -> String {
        let dot = if self.0.is_empty() { "" } else { "." };
        format!("{}{dot}{field}: {right}", self.0)
    }

    fn missing(&self, field: &str) -> String {
        self.whole(&format!("missing field `{field}`"))
    }

    fn unread(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
        let field = error.path().to_string();
        let found: String = error.inner().to_string().chars().take(ERROR_CHARS).collect();
        if field == "." { self.whole(&found) } else { self.wrong(&field, &found) }
    }

    fn whole(&self, found: &str) -> String {
        let colon = if self.0.is_empty() { "" } else { ": " };
        format!("{}{colon}{found}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::signature::tests::{SECRET, headers, sign};
    use super::*;
    use serde_json::json;

    const NOW_MS: u64 = 1_700_000_000_500;

    fn read(body: &Value) -> Result<Callback, String> {
        parse(body.to_string().as_bytes(), NOW_MS)
    }

    fn one(body: &Value) -> VendorEvent {
        read(body).unwrap().events.remove(0)
    }

    #[test]
    fn one_event_or_a_list_of_them_is_read() {
        let event = json!({ "id": "e", "type": "room_exited", "room": "r", "user": "ann", "at": 5, "session": "s", "more": 1 });
        let found = read(&event).unwrap();
        assert_eq!((found.events.len(), found.unknown), (1, 0));
        assert_eq!(
            found.events[0],
            VendorEvent {
                id: "e".to_owned(),
                room: NamedRoom::Ours("r".to_owned()),
                who: Some(NamedPeer::Ours { user: "ann".to_owned(), peer: None }),
                what: VendorFact::RoomExited,
                incarnation: Some("s".into()),
                sequence: None,
                at_ms: 5,
                resolution_ms: 0,
            }
        );
        let finished = json!({ "id": "f", "type": "room_finished", "room": "r", "at": 6 });
        let found = read(&json!([event, { "type": "weather" }, finished])).unwrap();
        assert_eq!((found.events.len(), found.unknown), (2, 1));
        assert_eq!(found.events[1].who, None);
    }

    #[test]
    fn every_kind_is_known() {
        for (kind, fact) in [
            ("participant_joined", VendorFact::ParticipantJoined),
            ("audio_started", VendorFact::AudioStarted),
            ("audio_stopped", VendorFact::AudioStopped),
            ("room_exited", VendorFact::RoomExited),
            ("room_finished", VendorFact::RoomFinished),
        ] {
            let event =
                json!({ "id": "e", "type": kind, "room": "r", "user": "ann", "at": 5.0, "sequence": 7.0 });
            let event = one(&event);
            assert_eq!((event.what, event.at_ms, event.sequence), (fact, 5, Some(7)), "{kind}");
        }
    }

    #[test]
    fn rooms_and_people_go_by_either_name() {
        let event =
            json!({ "id": "e", "type": "audio_started", "router": "abc", "participant": "def", "at": 5 });
        let event = one(&event);
        assert_eq!(event.room, NamedRoom::Router("abc".to_owned()));
        assert_eq!(event.who, Some(NamedPeer::Participant("def".to_owned())));
        let event =
            json!({ "id": "e", "type": "audio_started", "room": "r", "user": "ann", "peer": "p", "at": 5 });
        let peer = Some("p".to_owned());
        assert_eq!(one(&event).who, Some(NamedPeer::Ours { user: "ann".to_owned(), peer }));
    }

    #[test]
    fn a_level_needs_neither_id_nor_time() {
        for level in [json!(0), json!(0.25), json!(1.0)] {
            let event = one(&json!({ "type": "level", "room": "r", "user": "ann", "level": level }));
            let VendorFact::Level(found) = event.what else { panic!("{event:?}") };
            assert_eq!(Some(f64::from(found)), level.as_f64());
            assert_eq!(event.at_ms, NOW_MS);
        }
        for bad in [json!(-0.1), json!(1.1), json!(null)] {
            let event = json!({ "type": "level", "room": "r", "user": "ann", "level": bad });
            assert_eq!(read(&event).unwrap_err(), "level: a number from 0 to 1 is expected");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let good = json!({ "id": "e", "type": "audio_started", "room": "r", "user": "ann", "at": 5 });
        let with = |field: &str, value: Value| {
            let mut event = good.clone();
            event[field] = value;
            event
        };
        let without = |field: &str| {
            let mut event = good.clone();
            event.as_object_mut().unwrap().remove(field);
            event
        };
        for (bad, message) in [
            (json!([]), "the list must have 1 to 100 events"),
            (json!(vec![good.clone(); 101]), "the list must have 1 to 100 events"),
            (json!("x"), "type: an object with a text here is expected"),
            (json!([good, 3]), "[1].type: an object with a text here is expected"),
            (without("type"), "type: an object with a text here is expected"),
            (with("type", json!(1)), "type: an object with a text here is expected"),
            (without("id"), "missing field `id`"),
            (json!([good, without("id")]), "[1]: missing field `id`"),
            (with("id", json!("")), "id: 1 to 128 bytes without control characters are expected"),
            (with("session", json!("\n")), "session: 1 to 128 bytes without control characters are expected"),
            (without("room"), "missing field `room`"),
            (with("room", json!("")), "room: room is empty"),
            (with("room", json!("r".repeat(129))), "room: room has 129 bytes, at most 128 are allowed"),
            (
                with("user", json!("a\nb")),
                "user: user holds the character '\\n' at byte 1, which is not allowed",
            ),
            (json!([with("room", json!(7))]), "[0].room: invalid type: integer `7`, expected a string"),
            (with("router", json!("abc")), "router: not together with `room`"),
            (without("user"), "user: missing"),
            (with("participant", json!("def")), "participant: not together with `user`"),
            (
                json!([{ "id": "e", "type": "audio_started", "room": "r", "peer": "p", "at": 5 }]),
                "[0].peer: not without `user`",
            ),
            (without("at"), "missing field `at`"),
            (with("at", json!(-1)), "at: invalid value: integer `-1`, expected u64"),
            (with("at", json!(1.5)), "at: invalid type: floating point `1.5`, expected u64"),
            (with("sequence", json!("1")), "sequence: invalid type: string \"1\", expected u64"),
            (with("reason", json!(1)), "reason: invalid type: integer `1`, expected a string"),
        ] {
            assert_eq!(read(&bad).unwrap_err(), message, "{bad}");
        }
        assert!(parse(b"{", NOW_MS).unwrap_err().starts_with("the body: EOF"));
    }

    #[test]
    fn what_is_not_proved_is_not_parsed() {
        let callbacks = GenericCallbacks::new(SECRET);
        let read = |body: &[u8], signed: &[u8]| {
            let headers = headers("1700000000", &[&sign(SECRET, 1_700_000_000, signed)]);
            callbacks.read(&CallbackRequest { headers: &headers, body, now_ms: NOW_MS })
        };
        let body = br#"{"id":"e","type":"audio_started","room":"r","user":"ann","at":5}"#;
        assert_eq!(read(body, body).unwrap().events.len(), 1);
        let unproved = CallbackError::Unproved("no signature is that of this body".to_owned());
        assert_eq!(read(b"{", body), Err(unproved));
        let Err(CallbackError::Malformed(message)) = read(b"{", b"{") else { panic!("it is no JSON") };
        assert!(message.starts_with("the body: EOF"), "{message}");
        assert_eq!(format!("{callbacks:?}"), "GenericCallbacks { .. }");
    }
}
