//! AccessToken2, which lets one user into one channel.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::{Permissions, mac};

const VERSION: &str = "007";
/// The service that tokens are for: channels.
const RTC: u16 = 1;
/// Salts are at least 1 and less than this.
const SALTS: u32 = 99_999_999;

/// What a token is made with.
#[derive(Clone, Copy)]
pub(super) struct Issuer<'a> {
    pub(super) app_id: &'a str,
    pub(super) certificate: &'a str,
    /// Unix seconds.
    pub(super) now_s: u32,
    /// Seconds.
    pub(super) ttl_s: u32,
    /// Any number.
    pub(super) salt: u32,
}

impl Issuer<'_> {
    pub(super) fn token(&self, channel: &str, uid: u32, permissions: Permissions) -> String {
        const JOIN: u16 = 1;
        const PUBLISH_AUDIO: u16 = 2;
        const PUBLISH_VIDEO: u16 = 3;
        let rights = [
            (JOIN, true),
            (PUBLISH_AUDIO, permissions.publish_audio),
            (PUBLISH_VIDEO, permissions.publish_video),
        ];
        let granted = rights.into_iter().filter(|(_, may)| *may).map(|(right, _)| (right, self.ttl_s));
        self.sign(channel, uid, &granted.collect())
    }

    /// `rights` are valid for so many seconds each.
    fn sign(&self, channel: &str, uid: u32, rights: &BTreeMap<u16, u32>) -> String {
        let salt = self.salt % (SALTS - 1) + 1;
        let mut info = Packed::default();
        info.text(self.app_id).u32(self.now_s).u32(self.ttl_s).u32(salt);
        info.u16(1).u16(RTC).u16(u16::try_from(rights.len()).unwrap_or(u16::MAX));
        for (right, lasts) in rights {
            info.u16(*right).u32(*lasts);
        }
        info.text(channel).text(&uid.to_string());

        let key = mac::sha256(self.now_s.to_le_bytes(), self.certificate);
        let key = mac::sha256(salt.to_le_bytes(), key);
        let mut signed = Packed::default();
        signed.bytes(&mac::sha256(key, &info.0));
        signed.0.extend(info.0);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let packed = zlib.write_all(&signed.0).and_then(|()| zlib.finish()).expect("memory takes all of it");
        format!("{VERSION}{}", STANDARD.encode(packed))
    }
}

/// Little-endian; bytes have their length before them.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn u16(&mut self, number: u16) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// What is longer than can be said is cut, and lets nobody in.
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(length).0.extend(&bytes[..length.into()]);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    const OFFICIAL: &str = "007eJxTYBBbsMMnKq7p9Hf/HcIX5kce9b518kCiQgSr5Zrp4X1Tu6UUGCzNDZwdjU1TUs0Mkk1MzExMk5ISUy0SjQxNDcwMk4yN3b8IMEQwMTAwMoAwBIL4CgzmKeZGxmamqUmWFsYmFqbGluapxqnGaZYpJmYGSSkpiVwMRhYWRsYmhkbmxgDCaiTj";
    const CHANNEL: &str = "7d72365eb983485397e3e3f9d460bdda";
    const ISSUER: Issuer<'static> = Issuer {
        app_id: "970CA35de60c44645bbae8a215061b33",
        certificate: "5CFd2fd1755d40ecb72977518be15d3b",
        now_s: 1_111_111,
        ttl_s: 600,
        salt: 0,
    };

    struct Reader(Vec<u8>);

    impl Reader {
        fn open(token: &str) -> Self {
            let packed = STANDARD.decode(token.strip_prefix(VERSION).unwrap()).unwrap();
            let mut bytes = Vec::new();
            ZlibDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
            Self(bytes)
        }

        fn take<const N: usize>(&mut self) -> [u8; N] {
            self.0.drain(..N).collect::<Vec<_>>().try_into().unwrap()
        }

        fn u16(&mut self) -> u16 {
            u16::from_le_bytes(self.take())
        }

        fn u32(&mut self) -> u32 {
            u32::from_le_bytes(self.take())
        }

        fn bytes(&mut self) -> Vec<u8> {
            let length = self.u16();
            self.0.drain(..usize::from(length)).collect()
        }

        fn text(&mut self) -> String {
            String::from_utf8(self.bytes()).unwrap()
        }
    }

    type Said = (String, [u32; 3], Vec<(u16, u32)>, String, String);

    /// What a token says, if this certificate has signed it.
    fn verify(token: &str, certificate: &str) -> Option<Said> {
        let mut reader = Reader::open(token);
        let signature = reader.bytes();
        let info = reader.0.clone();
        let (app_id, numbers) = (reader.text(), [reader.u32(), reader.u32(), reader.u32()]);
        let key = mac::sha256(numbers[0].to_le_bytes(), certificate);
        let key = mac::sha256(numbers[2].to_le_bytes(), key);
        if *signature != mac::sha256(key, info) {
            return None;
        }
        assert_eq!((reader.u16(), reader.u16()), (1, RTC));
        let count = reader.u16();
        let rights = (0..count).map(|_| (reader.u16(), reader.u32())).collect();
        let said = (app_id, numbers, rights, reader.text(), reader.text());
        assert!(reader.0.is_empty());
        Some(said)
    }

    #[test]
    fn a_token_is_the_vendors_byte_for_byte_before_it_is_packed() {
        let made = ISSUER.sign(CHANNEL, 2_882_341_273, &BTreeMap::from([(1, 600)]));
        assert_eq!(Reader::open(&made).0, Reader::open(OFFICIAL).0);
        let signature = Reader::open(&made).bytes();
        assert_eq!(mac::hex(&signature), "16a0b84c5a5e82cbf74fb813d09f59c54bdac9c06120580539ac97578e958b1a");
        let said = verify(OFFICIAL, ISSUER.certificate).unwrap();
        let expected = (
            ISSUER.app_id.to_owned(),
            [1_111_111, 600, 1],
            vec![(1, 600)],
            CHANNEL.to_owned(),
            "2882341273".into(),
        );
        assert_eq!(said, expected);
        assert!(verify(OFFICIAL, "5CFd2fd1755d40ecb72977518be15d3c").is_none());
    }

    #[test]
    fn a_token_grants_what_is_permitted_and_nothing_else() {
        let rights = |permissions| {
            let (_, _, rights, channel, uid) =
                verify(&ISSUER.token("c", 7, permissions), ISSUER.certificate).unwrap();
            assert_eq!((&*channel, &*uid), ("c", "7"));
            assert!(rights.iter().all(|(_, lasts)| *lasts == 600));
            rights.into_iter().map(|(right, _)| right).collect::<Vec<_>>()
        };
        assert_eq!(rights(Permissions::ALL), [1, 2, 3]);
        assert_eq!(rights(Permissions::LISTEN), [1]);
        assert_eq!(rights(Permissions { publish_video: false, ..Permissions::ALL }), [1, 2]);
        assert_eq!(rights(Permissions { publish_audio: false, ..Permissions::ALL }), [1, 3]);
    }

    #[test]
    fn salts_are_in_their_range() {
        for (salt, expected) in [(0, 1), (99_999_997, 99_999_998), (99_999_998, 1), (u32::MAX, 94_967_380)] {
            let token = Issuer { salt, ..ISSUER }.token("c", 7, Permissions::ALL);
            let (_, [.., salt], ..) = verify(&token, ISSUER.certificate).unwrap();
            assert_eq!(salt, expected);
        }
    }
}
