use proptest::prelude::*;

use super::*;

const LIMITS: OfferLimits = OfferLimits { bytes: 4096, sections: 2, sections_key: "max_tracks_per_peer" };

fn section(kind: &str, mid: &str, direction: &str) -> String {
    let codec = if kind == "audio" { "opus/48000/2" } else { "VP8/90000" };
    format!(
        "m={kind} 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=rtcp:9 IN IP4 0.0.0.0\r\n\
         a=candidate:1 1 udp 2122260223 192.0.2.7 50000 typ host\r\na=ice-ufrag:user\r\na=ice-pwd:secret\r\n\
         a=fingerprint:sha-256 AA:BB\r\na=setup:actpass\r\na=mid:{mid}\r\na={direction}\r\na=rtcp-mux\r\n\
         a=rtpmap:111 {codec}\r\na=msid:s t\r\na=ssrc:1234 cname:c\r\na=end-of-candidates\r\n"
    )
}

fn offer(mids: &str, sections: &[String]) -> String {
    let head = format!("v=0\r\no=- 42 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {mids}\r\n");
    head + &sections.concat()
}

fn reason(text: &str, role: Role) -> String {
    match Offer::parse(text, role, LIMITS) {
        Err(MediaError::BadSdp { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_offer_is_stripped_of_what_the_server_must_not_believe() {
    let text = offer("0 1", &[section("audio", "0", "sendrecv"), section("video", "1", "inactive")]);
    let offer = Offer::parse(&text, Role::Publish, LIMITS).unwrap();
    assert_eq!(offer.connection, "42 sha-256 AA:BB");
    assert_eq!(
        offer.sections,
        [
            Section { mid: "0".into(), kind: TrackKind::Audio, active: true, ssrc: Some(1234) },
            Section { mid: "1".into(), kind: TrackKind::Video, active: false, ssrc: Some(1234) },
        ]
    );
    assert!(!offer.text.contains("candidate"), "{}", offer.text);
    assert_eq!(offer.text.matches("a=sendonly").count(), 2);
    assert_eq!(offer.text.matches("a=ssrc:").count(), 1, "an inactive section names no stream");

    let offer = Offer::parse(&text, Role::Subscribe, LIMITS).unwrap();
    assert_eq!((offer.text.matches("a=recvonly").count(), offer.text.matches("a=ssrc:").count()), (2, 0));
}

#[test]
fn limits_are_named() {
    let three: Vec<_> = ["0", "1", "2"].map(|mid| section("audio", mid, "sendonly")).into();
    assert!(Offer::parse(&offer("0 1", &three[..2]), Role::Publish, LIMITS).is_ok());
    assert_eq!(
        Offer::parse(&offer("0 1 2", &three), Role::Publish, LIMITS),
        Err(MediaError::TooMany { limit: "max_tracks_per_peer", max: 2 }),
    );
    let one = offer("0", &three[..1]);
    let limits = OfferLimits { bytes: one.len(), ..LIMITS };
    assert!(Offer::parse(&one, Role::Publish, limits).is_ok());
    assert_eq!(
        Offer::parse(&(one + "\r\n"), Role::Publish, limits),
        Err(MediaError::TooMany { limit: "max_sdp_bytes", max: limits.bytes as u64 }),
    );
}

#[test]
fn what_cannot_be_answered_is_refused_with_a_reason() {
    let good = section("audio", "0", "sendonly");
    for (text, expected) in [
        (String::new(), "it does not begin with v=0"),
        ("v=0\r\n".into(), "it has no media section"),
        ("v=0\r\nnonsense\r\n".into(), "a line is not of the form x=value"),
        ("v=0\r\ns=a\u{7}b\r\n".into(), "a line has control characters"),
        (offer("1", std::slice::from_ref(&good)), "a section is not in the BUNDLE group"),
        (offer("0", &[good.clone(), good.clone()]), "two sections have one mid"),
        (offer("0", &[good.replace("sendonly", "recvonly")]), "a publishing section does not send"),
        (offer("0", &[good.replace("audio 9", "application 9")]), "a section is neither audio nor video"),
        (offer("0", &[good.replace("audio 9", "audio x")]), "a section's first line is malformed"),
        (
            offer("0", &[good.replace("audio 9", "audio 0")]),
            "a section has port 0: make a transceiver inactive, do not stop it",
        ),
        (offer("0", &[good.replace("opus/48000", "PCMU/8000")]), "a section does not offer opus/48000/2"),
        (offer("0", &[good.replace("a=rtcp-mux\r\n", "")]), "a section does not multiplex RTCP"),
        (offer("0", &[good.replace("a=ice-pwd:secret\r\n", "")]), "a section has no ice-pwd"),
        (offer("0", &[good.replace("a=ssrc:1234 cname:c\r\n", "")]), "a publishing section names no ssrc"),
        (offer("0", &[good.clone() + "a=simulcast:send a;b\r\n"]), "simulcast is not supported"),
        (
            offer("0", &[good.clone() + "a=fingerprint:sha-256 CC:DD\r\n"]),
            "it has not exactly one fingerprint",
        ),
    ] {
        assert_eq!(reason(&text, Role::Publish), expected, "{text}");
    }
    let sends = offer("0", &[good]);
    assert_eq!(reason(&sends, Role::Subscribe), "a subscribing section does not receive");
}

proptest! {
    #[test]
    fn arbitrary_text_is_refused_without_a_panic(text in "\\PC{0,200}|(v=0\r\n)?([a-z]=[ -~]{0,20}\r\n){0,20}") {
        for role in [Role::Publish, Role::Subscribe] {
            prop_assert!(Offer::parse(&text, role, LIMITS).is_err() || text.contains("m="));
        }
    }

    #[test]
    fn what_is_accepted_names_no_address(cut in 0usize..900, paste in "[ -~]{0,12}") {
        let mut text = offer("0", &[section("audio", "0", "sendonly")]);
        text.insert_str(cut.min(text.len()), &paste);
        if let Ok(offer) = Offer::parse(&text, Role::Publish, LIMITS) {
            prop_assert!(!offer.text.contains("a=candidate:"), "{}", offer.text);
        }
    }
}
