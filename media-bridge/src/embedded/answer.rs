//! Answers: what is read from the stack's answer, and what is changed before the client gets it.

use super::offer::{Offer, Role};
use crate::TrackKind;

/// Packets say how loud they are: RFC 6464.
pub(super) const AUDIO_LEVEL: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";

/// The local ICE user name fragment, by which the client's first packets are recognised.
pub(super) fn local_ufrag(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).map(str::trim)
}

/// The payload type of each section, in order. There is one codec for each kind, so it is the first format.
pub(super) fn payload_types(answer: &str) -> Vec<Option<u8>> {
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("m="))
        .map(|media| media.split_whitespace().nth(3).and_then(|format| format.parse().ok()))
        .collect()
}

/// The number that the client's packets carry their loudness under, if they do.
pub(super) fn audio_level(answer: &str) -> Option<u8> {
    let mut maps = answer.lines().filter_map(|line| line.strip_prefix("a=extmap:"));
    maps.find_map(|map| {
        let (number, uri) = map.split_once(' ')?;
        if uri.trim() != AUDIO_LEVEL {
            return None;
        }
        number.split('/').next()?.parse().ok()
    })
}

/// The answer as the client gets it: inactive where it offered inactive, and telling a publisher how much it may send.
pub(super) fn for_client(answer: &str, offer: &Offer, role: Role, max_bitrate_bps: u64) -> String {
    let mut text = String::with_capacity(answer.len() + 64);
    let mut section = None;
    for line in answer.lines() {
        if line.starts_with("m=") {
            section = Some(section.map_or(0, |at: usize| at + 1));
        }
        let offered = section.and_then(|at| offer.sections.get(at));
        let inactive = offered.is_some_and(|offered| !offered.active);
        if inactive && matches!(line, "a=sendonly" | "a=recvonly" | "a=sendrecv") {
            text.push_str("a=inactive");
        } else {
            text.push_str(line);
        }
        text.push_str("\r\n");
        let sends_video =
            role == Role::Publish && offered.is_some_and(|s| s.kind == TrackKind::Video && s.active);
        if sends_video && line.starts_with("c=") {
            // Nine tenths, so that a client which obeys is never cut off by the cap on what arrives.
            text.push_str(&format!("b=AS:{}\r\n", max_bitrate_bps * 9 / 10 / 1000));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_audio_level_is_found_where_there_is_one() {
        let answer =
            format!("m=audio 9 X 111\r\na=extmap:3 urn:other\r\na=extmap:10/recvonly {AUDIO_LEVEL}\r\n");
        assert_eq!(audio_level(&answer), Some(10));
        assert_eq!(audio_level("a=extmap:3 urn:other\r\n"), None);
    }
}
