//! One HTTP request at a time, over a connection of its own.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const ANSWERED: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body, which all of ours are text.
    pub body: String,
}

impl Response {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body read as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// `GET url`
pub async fn get(url: &str) -> io::Result<Response> {
    request("GET", url, &[], "").await
}

/// Sends a request to an `http://` URL; `headers` come beside those that every request needs.
pub async fn request(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Response> {
    let rest = url.strip_prefix("http://").ok_or_else(|| io::Error::other(format!("not http: {url}")))?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let answer = timeout(ANSWERED, async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    });
    parse(&answer.await??)
}

fn parse(answer: &[u8]) -> io::Result<Response> {
    let malformed = || io::Error::other(format!("not a response: {:?}", String::from_utf8_lossy(answer)));
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(malformed)?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(malformed)?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let rest = &answer[end + 4..];
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if is_chunked { join_chunks(rest).ok_or_else(malformed)? } else { rest.to_vec() };
    Ok(Response { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line_end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        let from = line_end + 2;
        body.extend_from_slice(rest.get(from..from + size)?);
        rest = rest.get(from + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_with_and_without_chunks() {
        let plain = parse(b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nno").unwrap();
        assert_eq!(
            (plain.status, plain.header("content-type"), plain.body.as_str()),
            (503, Some("text/plain"), "no")
        );
        let chunked =
            parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
        assert_eq!(chunked.unwrap().body, "abc");
        assert!(parse(b"nonsense").is_err());
    }
}
