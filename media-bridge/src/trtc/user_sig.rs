//! What lets a client in: `UserSig` says who it is, `PrivateMapKey` also into which room and what it may do there.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use crate::{Permissions, mac};

/// For whom, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Ticket<'a> {
    pub(super) sdk_app_id: u32,
    pub(super) key: &'a str,
    pub(super) user: &'a str,
    /// Unix seconds.
    pub(super) from: u64,
    /// Seconds.
    pub(super) lasts: u32,
}

#[derive(Serialize)]
struct Signed<'a> {
    #[serde(rename = "TLS.ver")]
    version: &'static str,
    #[serde(rename = "TLS.identifier")]
    identifier: &'a str,
    #[serde(rename = "TLS.sdkappid")]
    sdk_app_id: u32,
    #[serde(rename = "TLS.expire")]
    lasts: u32,
    #[serde(rename = "TLS.time")]
    from: u64,
    #[serde(rename = "TLS.userbuf", skip_serializing_if = "Option::is_none")]
    rights: Option<&'a str>,
    #[serde(rename = "TLS.sig")]
    signature: String,
}

impl Ticket<'_> {
    pub(super) fn user_sig(&self) -> String {
        self.sign(None)
    }

    pub(super) fn private_map_key(&self, room: &str, permissions: Permissions) -> String {
        let rights = STANDARD.encode(self.rights(room, privileges(permissions)));
        self.sign(Some(&rights))
    }

    fn sign(&self, rights: Option<&str>) -> String {
        let signed = Signed {
            version: "2.0",
            identifier: self.user,
            sdk_app_id: self.sdk_app_id,
            lasts: self.lasts,
            from: self.from,
            rights,
            signature: STANDARD.encode(mac::sha256(self.key, self.text(rights))),
        };
        let json = serde_json::to_vec(&signed).expect("its keys are strings");
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let packed = zlib.write_all(&json).and_then(|()| zlib.finish()).expect("memory takes all of it");
        STANDARD.encode(packed).replace('+', "*").replace('/', "-").replace('=', "_")
    }

    /// What is signed.
    fn text(&self, rights: Option<&str>) -> String {
        let Self { sdk_app_id, user, from, lasts, .. } = self;
        let rights = rights.map(|rights| format!("TLS.userbuf:{rights}\n")).unwrap_or_default();
        format!(
            "TLS.identifier:{user}\nTLS.sdkappid:{sdk_app_id}\nTLS.time:{from}\nTLS.expire:{lasts}\n{rights}"
        )
    }

    /// Rights in a string room, big-endian.
    fn rights(&self, room: &str, privileges: u32) -> Vec<u8> {
        let ends = u32::try_from(self.from.saturating_add(self.lasts.into())).unwrap_or(u32::MAX);
        let mut bytes = vec![IS_STRING_ROOM];
        put(&mut bytes, self.user);
        for number in [self.sdk_app_id, NO_NUMBER, ends, privileges, NO_ACCOUNT_TYPE] {
            bytes.extend(number.to_be_bytes());
        }
        put(&mut bytes, room);
        bytes
    }
}

const IS_STRING_ROOM: u8 = 1;
const NO_NUMBER: u32 = 0;
const NO_ACCOUNT_TYPE: u32 = 0;

fn put(bytes: &mut Vec<u8>, text: &str) {
    // Names are far shorter; what is not is cut, and lets nobody in.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_be_bytes());
    bytes.extend(&text.as_bytes()[..length.into()]);
}

/// Bits of a `PrivateMapKey`. A shared screen counts as video.
fn privileges(permissions: Permissions) -> u32 {
    const CREATE: u32 = 1;
    const JOIN: u32 = 2;
    const SEND_AUDIO: u32 = 4;
    const HEAR: u32 = 8;
    const SEND_VIDEO: u32 = 16;
    const SEE: u32 = 32;
    const SEND_SCREEN: u32 = 64;
    const SEE_SCREEN: u32 = 128;
    let bits = |may: bool, bits: u32| if may { bits } else { 0 };
    CREATE
        | JOIN
        | bits(permissions.publish_audio, SEND_AUDIO)
        | bits(permissions.publish_video, SEND_VIDEO | SEND_SCREEN)
        | bits(permissions.subscribe, HEAR | SEE | SEE_SCREEN)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;
    use serde_json::{Value, json};

    use super::*;

    const ALICE: Ticket<'static> = Ticket {
        sdk_app_id: 1_400_000_000,
        key: "5bd2850fff3ecb11d7c805251c51ee463a25727bddc2385f3fa8bfee1bb93b5e",
        user: "alice",
        from: 1_760_000_000,
        lasts: 86_400,
    };
    const RIGHTS: &str = "010005616c69636553724e000000000068e8c980000000ff000000000006776172642d37";
    /// Made with Python's `zlib` and `json`.
    const BY_PYTHON: &str = "eJyrVgrxCdYrSy1SslJQMtIzUNJRAItkpqTmlWSmZUIkEnMyk1NhUsUp2YkFBZkpQAlDEwMogMqlVhRkFqUCZSzMTOCCJZm5ICFDczNUxcWZ6SDDc8wLQ4qcC-2S9YMtw5ODQ3KMLMMDwwMszL1cq3y83CySojIqcjzNK719Qm2VagHw-TGU";

    fn unpack(sig: &str) -> Value {
        assert!(sig.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*-_".contains(&byte)), "{sig}");
        let sig = sig.replace('*', "+").replace('-', "/").replace('_', "=");
        let mut json = String::new();
        ZlibDecoder::new(&*STANDARD.decode(sig).unwrap()).read_to_string(&mut json).unwrap();
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_user_sig_is_what_the_vendor_expects() {
        let expected = json!({
            "TLS.ver": "2.0",
            "TLS.identifier": "alice",
            "TLS.sdkappid": 1_400_000_000,
            "TLS.time": 1_760_000_000,
            "TLS.expire": 86_400,
            "TLS.sig": "l7qTrCqNc/S9WcSTl29WQWP87JEzLJF8bZhxlI7yKLU=",
        });
        assert_eq!(unpack(&ALICE.user_sig()), expected);
        assert_eq!(unpack(BY_PYTHON), expected, "and so reads another implementation's");
    }

    #[test]
    fn a_private_map_key_binds_room_and_rights() {
        let bytes = ALICE.rights("ward-7", 255);
        assert_eq!(mac::hex(&bytes), RIGHTS);
        let sig = unpack(&ALICE.private_map_key("ward-7", Permissions::ALL));
        assert_eq!(sig["TLS.userbuf"], STANDARD.encode(bytes));
        assert_eq!(sig["TLS.sig"], "ATRMlhvW770ddntkq5PWafIzT9lKt8CmIsZYNzp6Xo4=");
    }

    #[test]
    fn each_permission_has_its_bits() {
        let none = Permissions { publish_audio: false, publish_video: false, subscribe: false };
        assert_eq!(privileges(none), 0b0000_0011);
        assert_eq!(privileges(Permissions { publish_audio: true, ..none }), 0b0000_0111);
        assert_eq!(privileges(Permissions { publish_video: true, ..none }), 0b0101_0011);
        assert_eq!(privileges(Permissions::LISTEN), 0b1010_1011);
        assert_eq!(privileges(Permissions::ALL), 0b1111_1111);
    }
}
