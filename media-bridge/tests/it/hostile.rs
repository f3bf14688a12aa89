//! Whatever a client sends instead of an offer, or to the sockets, the room goes on.

use std::net::SocketAddr;

use crate::house::{Client, House, loopback, until};
use media_bridge::TrackKind::{Audio, Video};
use media_bridge::{EmbeddedConfig, MediaError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;

const PASTES: [&str; 20] = [
    "a=inactive",
    "a=sendrecv",
    "a=mid:9",
    "a=mid:",
    "a=ssrc:0 cname:x",
    "a=ssrc:4294967295 msid:a b",
    "a=ssrc-group:FID 1",
    "a=ssrc-group:FID 7000 7001",
    "a=rtpmap:111 VP8/90000",
    "a=rtpmap:x y/z/w",
    "a=rtpmap:96 H264/90000",
    "a=fmtp:111 =;=;",
    "a=fmtp:",
    "a=rtcp-fb:* nack",
    "a=extmap:99999 urn:x",
    "a=extmap:1/sendonly no url at all",
    "a=fingerprint:sha-1 00",
    "a=ice-ufrag:\u{e9}\u{e9}\u{e9}\u{e9}",
    "a=setup:holdconn",
    "m=audio 9 UDP/TLS/RTP/SAVPF 111",
];

#[derive(Debug, Clone)]
enum Edit {
    Delete(usize),
    Repeat(usize),
    Swap(usize, usize),
    Paste(usize, usize),
    Cut(usize, usize),
    Type(usize, usize, char),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || any::<usize>();
    prop_oneof![
        at().prop_map(Edit::Delete),
        at().prop_map(Edit::Repeat),
        (at(), at()).prop_map(|(a, b)| Edit::Swap(a, b)),
        (at(), 0..PASTES.len()).prop_map(|(a, b)| Edit::Paste(a, b)),
        (at(), at()).prop_map(|(a, b)| Edit::Cut(a, b)),
        (at(), at(), any::<char>()).prop_map(|(a, b, c)| Edit::Type(a, b, c)),
    ]
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits {
        let count = lines.len();
        match edit {
            _ if count == 0 => break,
            Edit::Delete(at) => drop(lines.remove(at % count)),
            Edit::Repeat(at) => lines.insert(at % count, lines[at % count].clone()),
            Edit::Swap(a, b) => lines.swap(a % count, b % count),
            Edit::Paste(at, which) => lines.insert(at % count, PASTES[*which].to_owned()),
            Edit::Cut(at, length) => {
                let line = &mut lines[at % count];
                let keep = length % (line.chars().count() + 1);
                *line = line.chars().take(keep).collect();
            }
            Edit::Type(at, place, what) => {
                let line = &mut lines[at % count];
                let place = place % (line.chars().count() + 1);
                *line = line.chars().take(place).chain([*what]).chain(line.chars().skip(place)).collect();
            }
        }
    }
    lines.join("\r\n") + "\r\n"
}

/// Offers each text as if from one peer, and looks after each whether the room is still there.
fn survives(strategy: impl Fn(&str) -> BoxedStrategy<Vec<String>>) {
    let runtime = Runtime::new().unwrap();
    let (house, offer) = runtime.block_on(async {
        let house = House::open(EmbeddedConfig { connect_deadline_ms: 500, ..loopback() }).await;
        let (client, _out) = Client::publishing(&[Audio, Video]).await;
        (house, client.offer().await)
    });
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy(&offer), |texts| {
            runtime.block_on(async {
                let peer = house.admit("eve").await;
                for text in &texts {
                    for answer in [
                        house.sfu.publish(&house.room, &peer, text).await.map(drop),
                        house.sfu.subscribe(&house.room, &peer, text).await.map(drop),
                    ] {
                        let sane = answer.is_ok()
                            || matches!(answer, Err(MediaError::BadSdp { .. } | MediaError::TooMany { .. }));
                        prop_assert!(sane, "{answer:?} to {text}");
                    }
                }
                house.sfu.remove(&house.room, &peer).await.unwrap();
                prop_assert!(house.sfu.participants(&house.room).await.is_ok());
                Ok(())
            })
        })
        .unwrap();
}

#[test]
fn arbitrary_strings_never_hurt_a_room() {
    survives(|_| prop::collection::vec(any::<String>(), 1..3).boxed());
}

#[test]
fn damaged_offers_never_hurt_a_room() {
    survives(|offer| {
        let offer = offer.to_owned();
        let damaged = prop::collection::vec(edit(), 0..4).prop_map(move |edits| edited(&offer, &edits));
        prop::collection::vec(damaged, 1..4).boxed()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn arbitrary_datagrams_never_hurt_a_room() {
    let house = House::open(loopback()).await;
    let peer = house.admit("ann").await;
    let (client, _out) = Client::publishing(&[Audio]).await;
    let answer = house.sfu.publish(&house.room, &peer, &client.offer().await).await.unwrap();
    let port = answer.lines().find_map(|line| line.strip_prefix("a=candidate:")?.split(' ').nth(5)).unwrap();
    let ufrag = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap().to_owned();
    let target: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();

    // A check with the right name and no right to it makes the address known, and the rest is for the stack.
    let mut check = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let name = format!("{ufrag}:evil");
    check.extend([0, 6, 0, u8::try_from(name.len()).unwrap()]);
    check.extend(name.as_bytes());
    check.resize(check.len().next_multiple_of(4), 0);
    check[3] = u8::try_from(check.len() - 20).unwrap();
    socket.send_to(&check, target).await.unwrap();
    let mut seed = 1u32;
    for length in 0..600 {
        let datagram: Vec<u8> = (0..length)
            .map(|at| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let byte = seed.to_be_bytes()[0];
                // Every class of first byte: STUN, DTLS, RTP and RTCP.
                if at == 0 { [byte & 3, 20 + byte % 44, 128 + byte % 64, byte][length % 4] } else { byte }
            })
            .collect();
        socket.send_to(&datagram, target).await.unwrap();
        tokio::task::yield_now().await;
    }
    until("the datagrams are in", async || house.sfu.stats().datagrams_received >= 300).await;
    assert!(house.sfu.participants(&house.room).await.is_ok());
    house.publish(&peer, &client).await;
    until("ann is connected", async || house.sfu.participants(&house.room).await.unwrap()[0].connected).await;
}
