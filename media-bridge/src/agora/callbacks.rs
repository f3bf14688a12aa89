//! Channel events of Agora's notifications.
//!
//! Agora says who comes and goes, and nothing of microphones: becoming a broadcaster is not yet being heard, and is not
//! reported; becoming audience ends it. Of exits that the vendor expects to be followed by a return — for reasons of
//! its own or of the network, which the user does not notice — nothing is reported either: who does come back would
//! have lost their seat for it, and who does not is missed in the list of participants soon after.

use std::fmt;

use hmac::Mac as _;
use serde::Deserialize;

use crate::{
    Callback, CallbackError, CallbackReader, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact,
    mac,
};

const SHA1: &str = "agora-signature";
const SHA256: &str = "agora-signature-v2";
/// The product whose events are read.
const RTC: u64 = 1;
/// The channel of what Agora's console sends as a test.
const TEST: &str = "test_webhook";
/// Agora gives up after a few tries, and says of each when it was made; what is much older is played back by somebody.
const OLDEST_MS: u64 = 5 * 60 * 1_000;
/// Reasons of exits that users do not notice: a fault at Agora, another address, the network, and the network again.
const RETURNS: [u64; 4] = [4, 9, 10, 99];

/// Proves and reads what Agora posts.
#[derive(Clone)]
pub struct AgoraCallbacks {
    /// The secret of the notifications, as in the console. Nothing is taken while it is empty.
    pub secret: String,
}

impl fmt::Debug for AgoraCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgoraCallbacks").finish_non_exhaustive()
    }
}

impl AgoraCallbacks {
    /// Each signature that is there must be right. The older one, by SHA-1, suffices alone: as an HMAC it is not known
    /// to be weak, and it is all that older projects send.
    fn prove(&self, request: &CallbackRequest<'_>) -> Result<(), CallbackError> {
        let unproved = |name: &str, why: &str| CallbackError::Unproved(format!("{name}: {why}"));
        if self.secret.is_empty() {
            return Err(unproved(SHA256, "no secret to prove it with"));
        }
        let given = |name: &'static str| {
            let mut all = request.headers.get_all(name).iter();
            let Some(one) = all.next() else { return Ok(None) };
            let signature = one.to_str().ok().and_then(mac::unhex).filter(|_| all.next().is_none());
            signature.map(Some).ok_or_else(|| unproved(name, "form"))
        };
        let (sha256, sha1) = (given(SHA256)?, given(SHA1)?);
        if sha256.is_none() && sha1.is_none() {
            return Err(unproved(SHA256, "missing"));
        }
        let (secret, body) = (&self.secret, request.body);
        if sha256.is_some_and(|given| mac::with_sha256(secret, body).verify_slice(&given).is_err()) {
            return Err(unproved(SHA256, "not of this body"));
        }
        if sha1.is_some_and(|given| mac::with_sha1(secret, body).verify_slice(&given).is_err()) {
            return Err(unproved(SHA1, "not of this body"));
        }
        Ok(())
    }
}

impl CallbackReader for AgoraCallbacks {
    fn vendor(&self) -> &'static str {
        "agora"
    }

    fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        self.prove(request)?;
        let notice: Notice = serde_json::from_slice(request.body)
            .map_err(|error| CallbackError::Malformed(format!("body: {error}")))?;
        let missing = |what: &str| CallbackError::Malformed(format!("{what}: missing"));
        let unknown = || Ok(Callback { events: Vec::new(), unknown: 1 });
        let Payload { channel_name, uid, client_seq, ts, .. } = &notice.payload;
        if channel_name.as_deref() == Some(TEST) {
            return unknown();
        }
        let sent = notice.notify_ms.ok_or_else(|| missing("notifyMs"))?;
        if request.now_ms.abs_diff(sent) > OLDEST_MS {
            return Err(CallbackError::Unproved("notifyMs: not of now".to_owned()));
        }
        let Some(what) = notice.fact() else { return unknown() };
        let who = if what == VendorFact::RoomFinished {
            None
        } else {
            let uid = uid.ok_or_else(|| missing("payload.uid"))?;
            Some(NamedPeer::Participant(uid.to_string()))
        };
        let event = VendorEvent {
            id: notice.notice_id.clone().ok_or_else(|| missing("noticeId"))?,
            room: NamedRoom::Router(channel_name.clone().ok_or_else(|| missing("payload.channelName"))?),
            sequence: client_seq.filter(|_| who.is_some()),
            who,
            what,
            incarnation: None,
            at_ms: ts.ok_or_else(|| missing("payload.ts"))?.saturating_mul(1_000),
            resolution_ms: 1_000,
        };
        Ok(Callback { events: vec![event], unknown: 0 })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notice {
    notice_id: Option<String>,
    product_id: u64,
    event_type: u64,
    notify_ms: Option<u64>,
    payload: Payload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    channel_name: Option<String>,
    uid: Option<u64>,
    client_seq: Option<u64>,
    ts: Option<u64>,
    reason: Option<u64>,
}

impl Notice {
    fn fact(&self) -> Option<VendorFact> {
        if self.product_id != RTC {
            return None;
        }
        let returns = self.payload.reason.is_some_and(|reason| RETURNS.contains(&reason));
        match self.event_type {
            102 => Some(VendorFact::RoomFinished),
            103 | 105 | 107 => Some(VendorFact::ParticipantJoined),
            104 | 106 | 108 if !returns => Some(VendorFact::RoomExited),
            112 => Some(VendorFact::AudioStopped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName};
    use serde_json::{Value, json};

    const NOW: u64 = 1_760_000_000_000;
    /// The vendor's own, which is no event of a channel.
    const OFFICIAL: (&str, &str, &str) = (
        r#"{"eventMs":1560408533119,"eventType":10,"noticeId":"4eb720f0-8da7-11e9-a43e-53f411c2761f","notifyMs":1560408533119,"payload":{"a":"1","b":2},"productId":1}"#,
        "033c62f40f687675f17f0f41f91a40c71c0f134c",
        "6d3320c60b11101395b7fc8f9068748808a0aa1bfa064438e39d1bc2c7d74d99",
    );
    const JOINED: (&str, &str, &str) = (
        r#"{"noticeId":"2000001428:4330:107","productId":1,"eventType":103,"notifyMs":1611566412672,"payload":{"channelName":"ward-7","uid":12121212,"platform":7,"clientSeq":1625051030746,"ts":1560396843,"account":"alice"}}"#,
        "8d1139641182fab7872bbc575173aeb9600ba692",
        "e1d701f6d14d276b6e1c9fac698b3a659680e1e0ab19237ecc2ae3c1d08cc659",
    );

    fn posted(headers: &[(&str, &str)], body: &str, now_ms: u64) -> Result<Callback, CallbackError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let callbacks = AgoraCallbacks { secret: "secret".to_owned() };
        callbacks.read(&CallbackRequest { headers: &map, body: body.as_bytes(), now_ms })
    }

    fn signed(body: &Value) -> Result<Callback, CallbackError> {
        let body = body.to_string();
        posted(&[("Agora-Signature-V2", &mac::hex(&mac::sha256("secret", &body)))], &body, NOW)
    }

    fn notice(kind: u64, payload: Value) -> Value {
        let mut all =
            json!({ "channelName": "ward7", "uid": 7, "clientSeq": 3, "ts": 1_760_000_000, "platform": 7 });
        let Value::Object(payload) = payload else { panic!("{payload}") };
        all.as_object_mut().unwrap().extend(payload);
        json!({ "noticeId": "n1", "productId": 1, "eventType": kind, "notifyMs": NOW, "sid": "s", "payload": all })
    }

    fn fact(kind: u64, payload: Value) -> Option<VendorFact> {
        let callback = signed(&notice(kind, payload)).unwrap();
        assert_eq!(callback.events.len() + callback.unknown, 1);
        callback.events.first().map(|event| event.what)
    }

    #[test]
    fn digests_of_the_vendor_and_our_own() {
        let both = |(body, v1, v2): (&str, &str, &str), now_ms| {
            posted(&[("Agora-Signature", v1), ("Agora-Signature-V2", v2)], body, now_ms)
        };
        assert_eq!(both(OFFICIAL, 1_560_408_533_119), Ok(Callback { events: Vec::new(), unknown: 1 }));
        let joined = both(JOINED, 1_611_566_412_672).unwrap().events.remove(0);
        assert_eq!(joined.id, "2000001428:4330:107");
        assert_eq!(joined.room, NamedRoom::Router("ward-7".to_owned()));
        assert_eq!(joined.who, Some(NamedPeer::Participant("12121212".to_owned())));
        assert_eq!(joined.what, VendorFact::ParticipantJoined);
        assert_eq!((joined.sequence, joined.incarnation), (Some(1_625_051_030_746), None));
        assert_eq!((joined.at_ms, joined.resolution_ms), (1_560_396_843_000, 1_000));
    }

    #[test]
    fn each_signature_that_is_there_must_be_right() {
        let (body, v1, v2) = JOINED;
        let (name1, name2) = ("Agora-Signature", "Agora-Signature-V2");
        let is_taken = |headers: &[(&str, &str)]| match posted(headers, body, 1_611_566_412_672) {
            Ok(_) => true,
            Err(CallbackError::Unproved(_)) => false,
            Err(other) => panic!("{other}"),
        };
        assert!(is_taken(&[(name2, v2)]) && is_taken(&[(name1, v1)]));
        assert!(is_taken(&[(name2, &v2.to_uppercase())]));
        let flip = |signature: &str| signature.replacen('1', "2", 1);
        assert!(!is_taken(&[]));
        assert!(!is_taken(&[(name2, &flip(v2))]) && !is_taken(&[(name1, &flip(v1))]));
        assert!(!is_taken(&[(name2, v2), (name1, &flip(v1))]));
        assert!(!is_taken(&[(name1, v1), (name2, &flip(v2))]), "the weaker one does not stand in for it");
        assert!(!is_taken(&[(name1, v1), (name2, "")]));
        assert!(
            !is_taken(&[(name2, v1)]) && !is_taken(&[(name2, &v2[..62])]) && !is_taken(&[(name2, &v2[1..])])
        );
        assert!(!is_taken(&[(name2, v2), (name2, v2)]), "two are none");
        let keyless = AgoraCallbacks { secret: String::new() };
        let signature = mac::hex(&mac::sha256("", body)).parse().unwrap();
        let headers = HeaderMap::from_iter([(SHA256.parse().unwrap(), signature)]);
        let request = CallbackRequest { headers: &headers, body: body.as_bytes(), now_ms: 1_611_566_412_672 };
        assert!(matches!(keyless.read(&request), Err(CallbackError::Unproved(_))));
        assert_eq!(format!("{:?}", AgoraCallbacks { secret: "secret".into() }), "AgoraCallbacks { .. }");
    }

    #[test]
    fn an_altered_byte_is_noticed() {
        let (body, v1, v2) = JOINED;
        for at in 0..body.len() {
            let mut altered = body.as_bytes().to_vec();
            altered[at] ^= 1;
            let altered = std::str::from_utf8(&altered).unwrap();
            for header in [("Agora-Signature", v1), ("Agora-Signature-V2", v2)] {
                let read = posted(&[header], altered, 1_611_566_412_672);
                assert!(matches!(read, Err(CallbackError::Unproved(_))), "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_played_back_is_not_believed() {
        let (body, _, v2) = JOINED;
        let sent = 1_611_566_412_672;
        for (now, is_taken) in
            [(sent + OLDEST_MS, true), (sent + OLDEST_MS + 1, false), (sent - OLDEST_MS - 1, false)]
        {
            assert_eq!(posted(&[("Agora-Signature-V2", v2)], body, now).is_ok(), is_taken, "{now}");
        }
    }

    #[test]
    fn each_kind_of_event() {
        use VendorFact::{AudioStopped, ParticipantJoined, RoomExited, RoomFinished};
        let plain = |kind| fact(kind, json!({}));
        assert_eq!(plain(102), Some(RoomFinished));
        for kind in [103, 105, 107] {
            assert_eq!(plain(kind), Some(ParticipantJoined), "{kind}");
        }
        for kind in [104, 106, 108] {
            assert_eq!(plain(kind), Some(RoomExited), "{kind}");
            for reason in [0, 1, 2, 3, 5, 12, 999, 7] {
                assert_eq!(fact(kind, json!({ "reason": reason })), Some(RoomExited), "{kind} {reason}");
            }
            for reason in [4, 9, 10, 99] {
                assert_eq!(fact(kind, json!({ "reason": reason })), None, "{kind} {reason}");
            }
        }
        assert_eq!(plain(112), Some(AudioStopped));
        for kind in [0, 1, 101, 109, 110, 111, 113, 999] {
            assert_eq!(plain(kind), None, "{kind}");
        }
        let finished = signed(&notice(102, json!({ "lastUid": 7 }))).unwrap().events.remove(0);
        assert_eq!((finished.who, finished.sequence), (None, None));
    }

    #[test]
    fn other_products_and_the_consoles_test_are_none_of_ours() {
        let mut other = notice(103, json!({}));
        other["productId"] = json!(3);
        let mut test = notice(104, json!({ "channelName": "test_webhook", "uid": 12_121_212 }));
        test["notifyMs"] = json!(1_611_566_412_672_u64);
        for notice in [other, test] {
            assert_eq!(signed(&notice), Ok(Callback { events: Vec::new(), unknown: 1 }));
        }
    }

    #[test]
    fn what_is_proved_and_makes_no_sense_is_malformed() {
        let malformed = |body: &Value| matches!(signed(body), Err(CallbackError::Malformed(_)));
        assert!(malformed(&json!([])) && malformed(&json!({ "productId": 1 })));
        for field in ["channelName", "uid", "ts"] {
            assert!(malformed(&notice(103, json!({ (field): null }))), "{field}");
        }
        assert!(malformed(&notice(103, json!({ "uid": "alice" }))));
        for field in ["noticeId", "notifyMs"] {
            let mut notice = notice(103, json!({}));
            notice[field] = json!(null);
            assert!(malformed(&notice), "{field}");
        }
    }
}
