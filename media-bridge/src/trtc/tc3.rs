//! How requests to Tencent's API are signed: TC3-HMAC-SHA256.

use sha2::{Digest as _, Sha256};

use crate::mac;

pub(super) const JSON: &str = "application/json; charset=utf-8";
const ALGORITHM: &str = "TC3-HMAC-SHA256";

/// Who signs.
#[derive(Clone, Copy)]
pub(super) struct Signer<'a> {
    pub(super) id: &'a str,
    pub(super) key: &'a str,
    pub(super) service: &'a str,
}

/// A `POST` that is to be signed.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) action: Option<&'a str>,
    pub(super) body: &'a str,
    /// Unix seconds; the vendor allows for five minutes' difference.
    pub(super) at: u64,
}

impl Signer<'_> {
    /// The value of `Authorization`.
    pub(super) fn authorization(&self, request: &Request<'_>) -> String {
        let date = date(request.at);
        let scope = format!("{date}/{}/tc3_request", self.service);
        let names =
            if request.action.is_some() { "content-type;host;x-tc-action" } else { "content-type;host" };
        let digest = digest(&canonical(request, names));
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{digest}", request.at);
        let key = mac::sha256(format!("TC3{}", self.key), date);
        let key = mac::sha256(mac::sha256(key, self.service), "tc3_request");
        let signature = mac::hex(&mac::sha256(key, text));
        format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", self.id)
    }
}

fn canonical(request: &Request<'_>, names: &str) -> String {
    let Request { host, path, action, body, .. } = request;
    let action = action.map(|action| format!("x-tc-action:{}\n", action.to_lowercase())).unwrap_or_default();
    format!("POST\n{path}\n\ncontent-type:{JSON}\nhost:{host}\n{action}\n{names}\n{}", digest(body))
}

fn digest(text: &str) -> String {
    mac::hex(&Sha256::digest(text))
}

/// The day in UTC, `2025-10-09`. Counts years from March, so that a leap day is the last of its year.
fn date(at: u64) -> String {
    const DAYS_TO_1970: u64 = 719_468;
    let days = at / 86_400 + DAYS_TO_1970;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let (month, next) = if from_march < 10 { (from_march + 3, 0) } else { (from_march - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of the vendor's own examples, with the escapes as they are there.
    const CVM: &str =
        r#"{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}"#;

    fn signature(signer: Signer<'_>, request: Request<'_>) -> String {
        let authorization = signer.authorization(&request);
        let (_, signature) = authorization.split_once("Signature=").unwrap();
        signature.to_owned()
    }

    fn of_cvm(key: &str, action: Option<&str>) -> String {
        let signer = Signer { id: "AKID", key, service: "cvm" };
        let host = "cvm.tencentcloudapi.com";
        signature(signer, Request { host, path: "/", action, body: CVM, at: 1_551_113_065 })
    }

    #[test]
    fn the_vendors_examples() {
        assert_eq!(
            of_cvm("Gu5t9xGARNpq86cd98joQYCN3EXAMPLE", None),
            "72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"
        );
        // The vendor prints this key so, and signs with it as it is printed.
        assert_eq!(
            of_cvm(&"*".repeat(32), Some("DescribeInstances")),
            "10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f"
        );
    }

    #[test]
    fn a_removal() {
        let signer = Signer { id: "AKIDEXAMPLE", key: "SKEXAMPLE", service: "trtc" };
        let request = Request {
            host: "trtc.tencentcloudapi.com",
            path: "/",
            action: Some("RemoveUserByStrRoomId"),
            body: r#"{"SdkAppId":1400000000,"RoomId":"ward-7","UserIds":["alice"]}"#,
            at: 1_760_000_000,
        };
        assert_eq!(
            digest(&canonical(&request, "content-type;host;x-tc-action")),
            "24f4e3f595b389fcadfb3a3755fddc01601de7731df7f5b6a71d53d7da7eff6b"
        );
        assert_eq!(
            signer.authorization(&request),
            "TC3-HMAC-SHA256 Credential=AKIDEXAMPLE/2025-10-09/trtc/tc3_request, \
             SignedHeaders=content-type;host;x-tc-action, \
             Signature=c1700a5d72bf24fa62ba455b6bea88738435b36b5d39ce16f06113fa8d73d95d"
        );
    }

    #[test]
    fn days() {
        let days = [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
            (1_767_225_599, "2025-12-31"),
            (4_107_542_400, "2100-03-01"),
        ];
        for (at, day) in days {
            assert_eq!(date(at), day);
        }
    }
}
