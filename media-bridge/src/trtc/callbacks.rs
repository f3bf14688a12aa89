//! Room and media callbacks of TRTC.
//!
//! Only string rooms are ours: a number is a room of somebody else's, in a space of its own. Whoever enters again
//! because their network changed is told as having come, which has what they may do told to TRTC anew; whoever leaves
//! is only told to have left, and no longer publishes. Becoming audience ends publishing without a further event, too.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Callback, CallbackError, CallbackReader, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact,
    mac,
};

const SIGN: &str = "sign";
/// TRTC gives up a minute after its first try; what is much older is played back by somebody.
const OLDEST_MS: u64 = 5 * 60 * 1_000;
/// `Role` of an audience.
const AUDIENCE: u64 = 21;

/// Proves and reads what TRTC posts.
#[derive(Clone)]
pub struct TrtcCallbacks {
    /// The callback key of the application, as in its console. Nothing is taken while it is empty.
    pub key: String,
}

impl fmt::Debug for TrtcCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrtcCallbacks").finish_non_exhaustive()
    }
}

impl TrtcCallbacks {
    fn prove(&self, request: &CallbackRequest<'_>) -> Result<(), &'static str> {
        if self.key.is_empty() {
            return Err("no key to prove it with");
        }
        let mut signs = request.headers.get_all(SIGN).iter();
        let (Some(sign), None) = (signs.next(), signs.next()) else { return Err("missing or twice") };
        let sign = STANDARD.decode(sign.as_bytes()).map_err(|_| "form")?;
        mac::with_sha256(&self.key, request.body).verify_slice(&sign).map_err(|_| "not of this body")
    }
}

impl CallbackReader for TrtcCallbacks {
    fn vendor(&self) -> &'static str {
        "trtc"
    }

    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        self.prove(request).map_err(|why| CallbackError::Unproved(format!("{SIGN}: {why}")))?;
        let posted: Posted = serde_json::from_slice(request.body)
            .map_err(|error| CallbackError::Malformed(format!("body: {error}")))?;
        if request.now_ms.abs_diff(posted.callback_ts) > OLDEST_MS {
            return Err(CallbackError::Unproved("CallbackTs: not of now".to_owned()));
        }
        let Some((what, room)) = posted.fact().zip(posted.event_info.room_id.as_str()) else {
            return Ok(Callback { events: Vec::new(), unknown: 1 });
        };
        let missing = |what: &str| CallbackError::Malformed(format!("EventInfo.{what}: missing"));
        let info = &posted.event_info;
        let user = info.user_id.as_deref().filter(|_| what != VendorFact::RoomFinished);
        if user.is_none() && what != VendorFact::RoomFinished {
            return Err(missing("UserId"));
        }
        let exact = info.event_ms_ts.map(|at| (at, 0));
        let whole = || info.event_ts.map(|at| (at.saturating_mul(1_000), 1_000));
        let (at_ms, resolution_ms) = exact.or_else(whole).ok_or_else(|| missing("EventMsTs"))?;
        // The same each time it is sent, which `CallbackTs` need not be.
        let same = json!([posted.event_type, room, user, at_ms]).to_string();
        let event = VendorEvent {
            id: blake3::hash(same.as_bytes()).to_hex().to_string(),
            room: NamedRoom::Router(room.to_owned()),
            who: user.map(|user| NamedPeer::Participant(user.to_owned())),
            what,
            incarnation: None,
            sequence: None,
            at_ms,
            resolution_ms,
        };
        Ok(Callback { events: vec![event], unknown: 0 })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Posted {
    event_type: u64,
    callback_ts: u64,
    event_info: Info,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    #[serde(default)]
    room_id: Value,
    user_id: Option<String>,
    event_ts: Option<u64>,
    event_ms_ts: Option<u64>,
    role: Option<u64>,
}

impl Posted {
    /// What it says that matters here: neither recordings nor video do.
    fn fact(&self) -> Option<VendorFact> {
        match self.event_type {
            102 => Some(VendorFact::RoomFinished),
            103 => Some(VendorFact::ParticipantJoined),
            104 => Some(VendorFact::RoomExited),
            105 if self.event_info.role == Some(AUDIENCE) => Some(VendorFact::AudioStopped),
            203 => Some(VendorFact::AudioStarted),
            204 => Some(VendorFact::AudioStopped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    /// The vendor's example, with its tabs.
    const EXAMPLE: &str = "{\n\t\"EventGroupId\":\t2,\n\t\"EventType\":\t204,\n\t\"CallbackTs\":\t1664209748188,\n\t\"EventInfo\":\t{\n\t\t\"RoomId\":\t8489,\n\t\t\"EventTs\":\t1664209748,\n\t\t\"EventMsTs\":\t1664209748180,\n\t\t\"UserId\":\t\"user_85034614\",\n\t\t\"Reason\":\t0\n\t}\n}";
    const NOW: u64 = 1_760_000_000_000;

    fn posted(key: &str, sign: &str, body: &str, now_ms: u64) -> Result<Callback, CallbackError> {
        let headers = HeaderMap::from_iter([("sign".parse().unwrap(), sign.parse().unwrap())]);
        let callbacks = TrtcCallbacks { key: key.to_owned() };
        callbacks.read(&CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms })
    }

    fn signed(body: &Value) -> Result<Callback, CallbackError> {
        let body = body.to_string();
        posted("k", &STANDARD.encode(mac::sha256("k", &body)), &body, NOW)
    }

    fn event(kind: u64, info: Value) -> Value {
        let mut all =
            json!({ "RoomId": "ward7", "UserId": "alice", "EventTs": 1_760_000_000, "EventMsTs": NOW });
        let Value::Object(info) = info else { panic!("{info}") };
        all.as_object_mut().unwrap().extend(info);
        json!({ "EventGroupId": 1, "EventType": kind, "CallbackTs": NOW + 5, "EventInfo": all, "New": [] })
    }

    fn fact(kind: u64, info: Value) -> Option<VendorFact> {
        signed(&event(kind, info)).unwrap().events.first().map(|event| event.what)
    }

    #[test]
    fn signatures_of_the_vendor_and_of_others() {
        let unknown = Ok(Callback { events: Vec::new(), unknown: 1 });
        let sign = "kkoFeO3Oh2ZHnjtg8tEAQhtXK16/KI05W3BQff8IvGA=";
        assert_eq!(posted("123654", sign, EXAMPLE, 1_664_209_748_188), unknown);
        let body = r#"{"EventGroupId":2,"EventType":203,"CallbackTs":1687771869377,"EventInfo":{"RoomId":12345,"EventTs":1687771869,"EventMsTs":1687771869365,"UserId":"test"}}"#;
        let sign = "td5qbvergWl9zsGkseXck8Mqrxi8qC8xULIf8bwvbyw=";
        assert_eq!(posted("coordKey1", sign, body, 1_687_771_869_377), unknown);
        let body = "{\n\t\"EventGroupId\":\t1,\n\t\"EventType\":\t101,\n\t\"CallbackTs\":\t1608086882372,\n\t\"EventInfo\":\t{\n\t\t\"RoomId\":\t20222,\n\t\t\"EventTs\":\t1608086882,\n\t\t\"UserId\":\t\"222222_phone\"\n\t}\n}";
        let sign = "t2Yq1R4wilV/RIMRyygkgdhxWO8dgTdXXrfNVtz7V3k=";
        assert_eq!(posted("789", sign, body, 1_608_086_882_372), unknown);
    }

    #[test]
    fn what_is_not_signed_so_is_not_believed() {
        let unproved = |sign: &str, body: &str| {
            matches!(posted("123654", sign, body, 1_664_209_748_188), Err(CallbackError::Unproved(_)))
        };
        let sign = "kkoFeO3Oh2ZHnjtg8tEAQhtXK16/KI05W3BQff8IvGA=";
        assert!(!unproved(sign, EXAMPLE));
        for at in 0..EXAMPLE.len() {
            let mut altered = EXAMPLE.as_bytes().to_vec();
            altered[at] ^= 1;
            assert!(unproved(sign, std::str::from_utf8(&altered).unwrap()), "byte {at}");
        }
        for wrong in ["", "x", "kkoFeO3Oh2ZHnjtg8tEAQhtXK16/KI05W3BQff8IvGE=", &sign[..40]] {
            assert!(unproved(wrong, EXAMPLE), "{wrong}");
        }
        let keyless = STANDARD.encode(mac::sha256("", EXAMPLE));
        assert!(matches!(posted("", &keyless, EXAMPLE, 1_664_209_748_188), Err(CallbackError::Unproved(_))));
        let callbacks = TrtcCallbacks { key: "123654".to_owned() };
        let read = |headers: &HeaderMap| {
            callbacks.read(&CallbackRequest { headers, body: EXAMPLE.as_bytes(), now_ms: 1_664_209_748_188 })
        };
        let mut headers = HeaderMap::new();
        assert!(matches!(read(&headers), Err(CallbackError::Unproved(_))));
        headers.append("Sign", sign.parse().unwrap());
        assert!(read(&headers).is_ok());
        headers.append("Sign", sign.parse().unwrap());
        assert!(matches!(read(&headers), Err(CallbackError::Unproved(_))), "two signatures are none");
        assert!(!format!("{callbacks:?}").contains("123654"));
    }

    #[test]
    fn what_is_played_back_is_not_believed() {
        let body = event(103, json!({})).to_string();
        let sign = STANDARD.encode(mac::sha256("k", &body));
        let at = NOW + 5;
        for (now, is_taken) in
            [(at, true), (at + OLDEST_MS, true), (at + OLDEST_MS + 1, false), (at - OLDEST_MS - 1, false)]
        {
            assert_eq!(posted("k", &sign, &body, now).is_ok(), is_taken, "{now}");
        }
    }

    #[test]
    fn each_kind_of_event() {
        use VendorFact::{AudioStarted, AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
        let plain = |kind| fact(kind, json!({}));
        assert_eq!(plain(102), Some(RoomFinished));
        assert_eq!(plain(104), Some(RoomExited));
        assert_eq!(plain(203), Some(AudioStarted));
        assert_eq!(plain(204), Some(AudioStopped));
        for reason in 1..=4 {
            assert_eq!(fact(103, json!({ "Reason": reason })), Some(ParticipantJoined));
        }
        assert_eq!(fact(105, json!({ "Role": 21 })), Some(AudioStopped));
        assert_eq!(fact(105, json!({ "Role": 20 })), None);
        assert_eq!(plain(105), None);
        for kind in (301..=312).chain([0, 101, 201, 202, 205, 206, 999]) {
            assert_eq!(plain(kind), None, "{kind}");
        }
    }

    #[test]
    fn an_event_says_where_who_and_when() {
        let callback = signed(&event(104, json!({ "Reason": 2 }))).unwrap();
        assert_eq!((callback.events.len(), callback.unknown), (1, 0));
        let exited = &callback.events[0];
        assert_eq!(exited.room, NamedRoom::Router("ward7".to_owned()));
        assert_eq!(exited.who, Some(NamedPeer::Participant("alice".to_owned())));
        assert_eq!((exited.at_ms, exited.resolution_ms), (NOW, 0));
        let without = json!({ "RoomId": "ward7", "EventTs": 1_760_000_000 });
        let without = json!({ "EventType": 102, "CallbackTs": NOW, "EventInfo": without });
        let finished = signed(&without).unwrap().events.remove(0);
        assert_eq!((finished.who, finished.at_ms, finished.resolution_ms), (None, NOW, 1_000));
    }

    #[test]
    fn a_number_is_nobody_elses_room_of_ours() {
        for room in [json!(12_345), json!(null), json!({})] {
            assert_eq!(fact(103, json!({ "RoomId": room })), None);
        }
    }

    #[test]
    fn the_same_event_has_the_same_id() {
        let id = |event: Value| signed(&event).unwrap().events.remove(0).id;
        let first = id(event(203, json!({})));
        let mut again = event(203, json!({ "Reason": 0 }));
        again["CallbackTs"] = json!(NOW + 10_000);
        assert_eq!(first, id(again));
        for other in [
            event(204, json!({})),
            event(203, json!({ "RoomId": "ward8" })),
            event(203, json!({ "UserId": "bob" })),
            event(203, json!({ "EventMsTs": NOW + 1 })),
        ] {
            assert_ne!(first, id(other));
        }
    }

    #[test]
    fn what_is_proved_and_makes_no_sense_is_malformed() {
        let malformed = |body: &Value| matches!(signed(body), Err(CallbackError::Malformed(_)));
        assert!(malformed(&json!([])) && malformed(&json!({ "EventType": 103 })));
        assert!(malformed(&event(103, json!({ "UserId": null }))));
        assert!(malformed(&event(103, json!({ "EventTs": null, "EventMsTs": null }))));
        assert!(malformed(&event(103, json!({ "EventMsTs": "soon" }))));
    }
}
