//! Offers: what is accepted of a client's SDP before the WebRTC stack sees any of it.
//!
//! Pure. What passes is rewritten: the client's candidates are taken out, so that nothing is ever sent to an address
//! only because an SDP names it, and directions are brought into the one form each kind of connection has.

use std::collections::HashSet;

use crate::{MediaError, TrackKind};

/// Which of its two connections a client is talking about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Publish,
    Subscribe,
}

/// An offer that the WebRTC stack may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// Tells one `RTCPeerConnection` from another: the origin's session id and the DTLS fingerprint.
    pub(super) connection: String,
    pub(super) sections: Vec<Section>,
    /// The rewritten SDP.
    pub(super) text: String,
}

/// One media section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) mid: String,
    pub(super) kind: TrackKind,
    /// False if the client offered it `inactive`.
    pub(super) active: bool,
    /// What a publisher sends it with.
    pub(super) ssrc: Option<u32>,
}

/// Bounds on an offer.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferLimits {
    pub(super) bytes: usize,
    pub(super) sections: usize,
    /// The configuration key of `sections`.
    pub(super) sections_key: &'static str,
}

/// Longest mid, session id or credential that is taken seriously.
const TOKEN_MAX: usize = 256;
const LINE_MAX: usize = 4096;

impl Offer {
    pub(super) fn parse(text: &str, role: Role, limits: OfferLimits) -> Result<Self, MediaError> {
        if text.len() > limits.bytes {
            return Err(MediaError::TooMany { limit: "max_sdp_bytes", max: limits.bytes as u64 });
        }
        let lines = well_formed(text)?;
        let starts: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| line.starts_with("m=")).map(|(at, _)| at).collect();
        if starts.is_empty() {
            return Err(MediaError::bad_sdp("it has no media section"));
        }
        if starts.len() > limits.sections {
            return Err(MediaError::TooMany { limit: limits.sections_key, max: limits.sections as u64 });
        }

        let head = &lines[..starts[0]];
        let mut offer = Self { connection: String::new(), sections: Vec::new(), text: String::new() };
        let mut fingerprints: Vec<&str> = values(head, "fingerprint").collect();
        let mut mids = HashSet::new();
        push_lines(&mut offer.text, head.iter().copied().filter(|line| !is_candidate(line)));
        for (nth, &start) in starts.iter().enumerate() {
            let end = starts.get(nth + 1).copied().unwrap_or(lines.len());
            let block = &lines[start..end];
            let section = Section::parse(block, head, role)?;
            if !mids.insert(section.mid.clone()) {
                return Err(MediaError::bad_sdp("two sections have one mid"));
            }
            fingerprints.extend(values(block, "fingerprint"));
            section.write(block, role, &mut offer.text);
            offer.sections.push(section);
        }

        let bundle: HashSet<&str> = values(head, "group")
            .filter_map(|group| group.strip_prefix("BUNDLE "))
            .flat_map(str::split_whitespace)
            .collect();
        if offer.sections.iter().any(|section| !bundle.contains(section.mid.as_str())) {
            return Err(MediaError::bad_sdp("a section is not in the BUNDLE group"));
        }
        fingerprints.dedup();
        let [fingerprint] = fingerprints[..] else {
            return Err(MediaError::bad_sdp("it has not exactly one fingerprint"));
        };
        offer.connection = format!("{} {fingerprint}", origin(head)?);
        Ok(offer)
    }

    /// The sections that are not `inactive`.
    pub(super) fn active(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| section.active)
    }
}

impl Section {
    fn parse(block: &[&str], head: &[&str], role: Role) -> Result<Self, MediaError> {
        let mut words = block[0].trim_start_matches("m=").split_whitespace();
        let (codec, kind) = match words.next() {
            Some("audio") => ("opus/48000/2", TrackKind::Audio),
            Some("video") => ("vp8/90000", TrackKind::Video),
            _ => return Err(MediaError::bad_sdp("a section is neither audio nor video")),
        };
        let port = words.next().and_then(|port| port.parse::<u16>().ok());
        let proto = words.next().is_some_and(|proto| proto.ends_with("RTP/SAVPF"));
        if port.is_none() || !proto || words.next().is_none() {
            return Err(MediaError::bad_sdp("a section's first line is malformed"));
        }
        if port == Some(0) && !has(block, "bundle-only") {
            return Err(MediaError::bad_sdp(
                "a section has port 0: make a transceiver inactive, do not stop it",
            ));
        }
        let mid = match values(block, "mid").next() {
            Some(mid) if !mid.is_empty() && mid.len() <= TOKEN_MAX => mid.to_owned(),
            _ => return Err(MediaError::bad_sdp("a section has no usable mid")),
        };
        for key in ["ice-ufrag", "ice-pwd", "setup"] {
            let value = values(block, key).chain(values(head, key)).next();
            if value.is_none_or(|value| value.is_empty() || value.len() > TOKEN_MAX) {
                return Err(MediaError::bad_sdp(format!("a section has no {key}")));
            }
        }
        if !has(block, "rtcp-mux") {
            return Err(MediaError::bad_sdp("a section does not multiplex RTCP"));
        }
        if block.iter().any(|line| line.starts_with("a=rid:") || line.starts_with("a=simulcast:")) {
            return Err(MediaError::bad_sdp("simulcast is not supported"));
        }
        if !values(block, "rtpmap").any(|map| map.to_ascii_lowercase().ends_with(codec)) {
            return Err(MediaError::bad_sdp(format!("a section does not offer {codec}")));
        }
        let active = match block.iter().copied().find(|line| is_direction(line)) {
            Some("a=inactive") => false,
            Some("a=sendonly") if role == Role::Publish => true,
            Some("a=recvonly") if role == Role::Subscribe => true,
            Some("a=sendrecv") | None => true,
            Some(_) => {
                return Err(MediaError::bad_sdp(match role {
                    Role::Publish => "a publishing section does not send",
                    Role::Subscribe => "a subscribing section does not receive",
                }));
            }
        };
        let ssrc = values(block, "ssrc")
            .find_map(|value| value.split_whitespace().next().and_then(|id| id.parse::<u32>().ok()));
        if role == Role::Publish && active && ssrc.is_none() {
            return Err(MediaError::bad_sdp("a publishing section names no ssrc"));
        }
        Ok(Self { mid, kind, active, ssrc })
    }

    fn write(&self, block: &[&str], role: Role, text: &mut String) {
        let dropped = |line: &str| {
            let stream = line.starts_with("a=ssrc") || line.starts_with("a=msid:");
            // The stack ends a section for ever when it is offered inactive; so it is shown as silent instead, and
            // the client is answered what it asked for.
            is_candidate(line) || is_direction(line) || (stream && (role == Role::Subscribe || !self.active))
        };
        push_lines(text, block.iter().copied().filter(|line| !dropped(line)));
        push_lines(
            text,
            std::iter::once(match role {
                Role::Publish => "a=sendonly",
                Role::Subscribe => "a=recvonly",
            }),
        );
    }
}

fn well_formed(text: &str) -> Result<Vec<&str>, MediaError> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    if lines.first() != Some(&"v=0") {
        return Err(MediaError::bad_sdp("it does not begin with v=0"));
    }
    for line in &lines {
        let bytes = line.as_bytes();
        if bytes.len() < 2 || !bytes[0].is_ascii_lowercase() || bytes[1] != b'=' || bytes.len() > LINE_MAX {
            return Err(MediaError::bad_sdp("a line is not of the form x=value"));
        }
        if line.chars().any(char::is_control) {
            return Err(MediaError::bad_sdp("a line has control characters"));
        }
    }
    Ok(lines)
}

fn origin<'a>(head: &[&'a str]) -> Result<&'a str, MediaError> {
    head.iter()
        .find_map(|line| line.strip_prefix("o="))
        .and_then(|origin| origin.split_whitespace().nth(1))
        .filter(|id| id.len() <= TOKEN_MAX)
        .ok_or_else(|| MediaError::bad_sdp("it has no origin"))
}

fn values<'a>(lines: &[&'a str], key: &str) -> impl Iterator<Item = &'a str> {
    lines
        .iter()
        .filter_map(move |line| line.strip_prefix("a=")?.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}

fn has(lines: &[&str], flag: &str) -> bool {
    lines.iter().any(|line| line.strip_prefix("a=") == Some(flag))
}

fn is_direction(line: &str) -> bool {
    matches!(line, "a=sendonly" | "a=recvonly" | "a=sendrecv" | "a=inactive")
}

fn is_candidate(line: &str) -> bool {
    line.starts_with("a=candidate:")
        || line.starts_with("a=remote-candidates:")
        || line == "a=end-of-candidates"
}

fn push_lines<'a>(text: &mut String, lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
}

#[cfg(test)]
mod tests;
