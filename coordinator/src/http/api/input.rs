//! What a request carries beside its path, from bytes to checked types. What is wrong is named with its place.

use axum::body::HttpBody as _;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use redis_scripts::SettingsVersion;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

use crate::classroom::kind;
use crate::error::{ApiError, ErrorCode};
use crate::http::BODY_BYTES;
use crate::http::problem::Problem;
use crate::node::Node;

/// The idempotency key of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Its longest value, in characters.
const KEY_CHARS: usize = 64;
/// Longest text of an error that quotes what somebody sent.
const ERROR_CHARS: usize = 300;

/// A JSON object as the body of a request; none at all counts as an empty one.
#[derive(Debug)]
pub(super) struct Body<T> {
    pub value: T,
    /// Digest of method, path and body: what makes two requests the same.
    pub digest: Arc<str>,
}

impl<T: DeserializeOwned> FromRequest<Arc<Node>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, node: &Arc<Node>) -> Result<Self, Problem> {
        let head = format!("{} {}\n", request.method(), request.uri().path());
        let is_json = is_json(request.headers());
        let bytes = whole(request, node, BODY_BYTES).await?;
        if !bytes.is_empty() && !is_json {
            let message = "the body must be JSON, and `Content-Type` say so: application/json";
            return Err(Problem::of_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let value = read(if bytes.is_empty() { b"{}" } else { &bytes })?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(head.as_bytes()).update(&bytes);
        Ok(Self { value, digest: hasher.finalize().to_hex().as_str().into() })
    }
}

/// The bytes of a body, within the limit of its route, which is `most_bytes`.
pub(super) async fn whole(request: Request, node: &Arc<Node>, most_bytes: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        ApiError::new(ErrorCode::PayloadTooLarge, format!("the body has more than {most_bytes} bytes")).into()
    };
    // Who says that it is too much need not send it.
    if request.body().size_hint().lower() > most_bytes as u64 {
        return Err(too_large());
    }
    Bytes::from_request(request, node).await.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            too_large()
        } else {
            ApiError::bad_request("the body could not be read").into()
        }
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "application/json" | "application/merge-patch+json")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let value = decode(bytes)?;
    if !value.is_object() {
        return Err(ApiError::bad_request(format!("the body must be an object, not {}", kind(&value))));
    }
    from_value(value, "")
}

/// Reads JSON. A number without a fraction is a whole one, however it is written: `18.0` is 18.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, ApiError> {
    let mut value =
        serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("the body: {error}")))?;
    make_whole(&mut value);
    Ok(value)
}

fn make_whole(value: &mut Value) {
    /// Beyond it a double has no fractions, nor all whole numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(found) = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() <= EXACT) {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and within the exact range")]
                let whole = found as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// Reads a value; `place` says where it stands in the body.
pub(super) fn from_value<T: DeserializeOwned>(value: Value, place: &str) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let dot = if place.is_empty() || path.is_empty() || path.starts_with('[') { "" } else { "." };
        let found: String = error.inner().to_string().chars().take(ERROR_CHARS).collect();
        let colon = if place.is_empty() && path.is_empty() { "" } else { ": " };
        ApiError::bad_request(format!("{place}{dot}{path}{colon}{found}"))
    })
}

/// The query of a request.
#[derive(Debug)]
pub(super) struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Node>> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Problem> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, node).await;
        read.map(|axum::extract::Query(query)| Self(query)).map_err(|rejection| {
            let text: String = rejection.body_text().chars().take(ERROR_CHARS).collect();
            ApiError::bad_request(text).into()
        })
    }
}

/// A number of a query that must be within 1 and `most`.
pub(super) fn limit(asked: Option<usize>, default: usize, most: usize) -> Result<usize, ApiError> {
    match asked {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(ApiError::bad_request(format!("`limit` must be 1 to {most}"))),
    }
}

/// A text of a query: at most 128 bytes without control characters.
pub(super) fn label(name: &str, text: Option<String>) -> Result<String, ApiError> {
    match text {
        Some(text) if text.len() > 128 || text.contains(char::is_control) => Err(ApiError::bad_request(
            format!("`{name}` must have at most 128 bytes, without control characters"),
        )),
        text => Ok(text.unwrap_or_default()),
    }
}

/// `If-Match`: the settings version that a change is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IfMatch(pub Option<SettingsVersion>);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(if_match(&parts.headers)?)
    }
}

fn if_match(headers: &HeaderMap) -> Result<IfMatch, ApiError> {
    let Some(text) = only(headers, &header::IF_MATCH)? else { return Ok(IfMatch(None)) };
    let text = text.trim();
    if text == "*" {
        return Ok(IfMatch(None));
    }
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
    let version = bare.parse().ok().filter(|_| is_number);
    let wrong = || ApiError::bad_request("`If-Match` must be one settings version, such as \"7\"");
    Ok(IfMatch(Some(SettingsVersion::new(version.ok_or_else(wrong)?))))
}

/// `Idempotency-Key`: the id under which a request may be repeated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IdempotencyKey(pub Option<Arc<str>>);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(idempotency_key(&parts.headers)?)
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, ApiError> {
    let Some(text) = only(headers, &IDEMPOTENCY_KEY)? else { return Ok(IdempotencyKey(None)) };
    let fits = (1..=KEY_CHARS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(IdempotencyKey(Some(text.into())))
    } else {
        Err(ApiError::bad_request(format!("`Idempotency-Key` must have 1 to {KEY_CHARS} visible characters")))
    }
}

/// A header that may stand once.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ApiError> {
    let mut given = headers.get_all(name).iter();
    let Some(value) = given.next() else { return Ok(None) };
    match (value.to_str(), given.next()) {
        (Ok(text), None) => Ok(Some(text)),
        (Ok(_), Some(_)) => Err(ApiError::bad_request(format!("`{name}` is given twice"))),
        (Err(_), _) => Err(ApiError::bad_request(format!("`{name}` holds more than visible ASCII"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde::Deserialize;
    use serde_json::json;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_version_is_quoted_or_bare() {
        let at = |sv| Ok(IfMatch(Some(SettingsVersion::new(sv))));
        for (given, right) in [("\"7\"", at(7)), ("7", at(7)), (" \"0\" ", at(0)), ("*", Ok(IfMatch(None)))] {
            assert_eq!(if_match(&headers("if-match", &[given])), right, "{given}");
        }
        assert_eq!(if_match(&HeaderMap::new()), Ok(IfMatch(None)));
        for bad in ["W/\"7\"", "\"7\", \"8\"", "\"\"", "", "+7", "-1", "\"seven\"", "99999999999999999999999"]
        {
            assert!(if_match(&headers("if-match", &[bad])).is_err(), "{bad}");
        }
        assert!(if_match(&headers("if-match", &["1", "2"])).is_err());
    }

    #[test]
    fn an_idempotency_key_is_short_and_visible() {
        let longest = "k".repeat(64);
        for good in ["k", "8e03978e-40d5-43e8-bc93-6894a57f9324", longest.as_str()] {
            assert_eq!(
                idempotency_key(&headers("idempotency-key", &[good])),
                Ok(IdempotencyKey(Some(good.into())))
            );
        }
        let too_long = "k".repeat(65);
        for bad in ["", "a b", too_long.as_str()] {
            assert!(idempotency_key(&headers("idempotency-key", &[bad])).is_err(), "{bad:?}");
        }
        assert!(idempotency_key(&headers("idempotency-key", &["a", "b"])).is_err());
    }

    #[test]
    fn only_json_is_read_as_json() {
        for (kind, right) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/merge-patch+json", true),
            ("text/json", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            assert_eq!(is_json(&headers("content-type", &[kind])), right, "{kind}");
        }
    }

    #[test]
    fn a_number_without_a_fraction_is_whole() {
        let read = decode(br#"{"a": [18.0, 1.8e1, -0.0, 0.5, 18], "b": {"c": 1e300}}"#);
        let right = json!({ "a": [18, 18, 0, 0.5, 18], "b": { "c": 1e300 } });
        assert_eq!(read.unwrap(), right);
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "read by serde")]
        count: u16,
    }

    #[test]
    fn what_is_wrong_in_a_body_is_named_with_its_place() {
        let message = |text: &str| {
            read::<std::collections::BTreeMap<String, Inner>>(text.as_bytes()).unwrap_err().message
        };
        assert_eq!(message("[]"), "the body must be an object, not a list");
        assert_eq!(message(r#"{"a": {"count": "x"}}"#), "a.count: invalid type: string \"x\", expected u16");
        assert_eq!(message(r#"{"a": {"cuont": 1}}"#), "a.cuont: unknown field `cuont`, expected `count`");
        assert!(message("{\"a\"").starts_with("the body: EOF while parsing"), "{}", message("{\"a\""));
        let error = from_value::<Vec<Inner>>(json!([{}]), "events").unwrap_err();
        assert_eq!(error.message, "events[0]: missing field `count`");
    }
}
