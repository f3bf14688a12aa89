//! Real WebRTC clients, over real sockets, around one SFU.

use crate::house::{Client, GENERATION, House, loopback, packet, until};
use media_bridge::TrackKind::{Audio, Video};
use media_bridge::{
    EmbeddedConfig, ExitReason, Generation, MediaError, MediaEventKind, PeerRef, Permissions, RoomRef,
};

const SOUND: [u8; 3] = [0xfc, 1, 2];
const DTX: [u8; 1] = [0xf8];
const KEY_FRAME: [u8; 4] = [0x10, 0x00, 1, 2];
const DELTA_FRAME: [u8; 4] = [0x10, 0x01, 1, 2];

#[tokio::test(flavor = "multi_thread")]
async fn two_peers_hear_each_other_and_events_come_in_order() {
    let mut house = House::open(loopback()).await;
    let (ann, ben) = (house.admit("ann").await, house.admit("ben").await);

    let (ann_pub, mut ann_out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &ann_pub).await;
    let ann_flow = ann_out.remove(0).flow(SOUND.to_vec());
    let joined = house.expect(Some(&ann), MediaEventKind::ParticipantJoined).await;
    let started = house.expect(Some(&ann), MediaEventKind::AudioStarted).await;
    assert_eq!(joined.session, started.session);
    assert_eq!(joined.generation, Some(GENERATION));
    assert!(joined.at_ms < started.at_ms);

    let (ben_pub, mut ben_out) = Client::publishing(&[Audio]).await;
    house.publish(&ben, &ben_pub).await;
    let _ben_flow = ben_out.remove(0).flow(SOUND.to_vec());
    house.expect(Some(&ben), MediaEventKind::ParticipantJoined).await;
    house.expect(Some(&ben), MediaEventKind::AudioStarted).await;

    let mut ben_sub = Client::subscribing(&[Audio]).await;
    let answer = house.subscribe(&ben, &ben_sub).await;
    assert_eq!((answer.tracks.len(), &*answer.tracks[0].peer, answer.missing.len()), (1, "ann", 0));
    let heard = ben_sub.track().await;
    assert_eq!(packet(&heard).await.payload[..], SOUND);

    let mut ann_sub = Client::subscribing(&[Audio]).await;
    assert_eq!(&*house.subscribe(&ann, &ann_sub).await.tracks[0].peer, "ben");
    let heard = ann_sub.track().await;
    let (first, second) = (packet(&heard).await, packet(&heard).await);
    assert_eq!(first.header.sequence_number.wrapping_add(1), second.header.sequence_number);

    let participants = house.sfu.participants(&house.room).await.unwrap();
    assert!(participants.iter().all(|it| it.connected && it.audible && it.publishing == [Audio]));

    drop(ann_flow);
    house.expect(Some(&ann), MediaEventKind::AudioStopped).await;
    ann_pub.close().await;
    ann_sub.close().await;
    let exited = house.expect(Some(&ann), MediaEventKind::RoomExited { reason: ExitReason::Closed }).await;
    assert_eq!(exited.session, joined.session);

    house.sfu.end_router(&house.room, GENERATION);
    house.expect(Some(&ben), MediaEventKind::AudioStopped).await;
    house.expect(Some(&ben), MediaEventKind::RoomExited { reason: ExitReason::RoomClosed }).await;
    house.expect(None, MediaEventKind::RoomFinished).await;
    house.sfu.shutdown().await;
    let stats = house.sfu.stats();
    assert_eq!((stats.rooms, stats.connections, stats.events_dropped), (0, 0, 0), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_subscriber_begins_with_a_key_frame() {
    let mut house = House::open(loopback()).await;
    let (ann, ben) = (house.admit("ann").await, house.admit("ben").await);
    let (ann_pub, mut out) = Client::publishing(&[Video]).await;
    house.publish(&ann, &ann_pub).await;
    house.expect(Some(&ann), MediaEventKind::ParticipantJoined).await;

    let mut ben_sub = Client::subscribing(&[Video]).await;
    house.subscribe(&ben, &ben_sub).await;
    house.expect(Some(&ben), MediaEventKind::ParticipantJoined).await;
    let mut camera = out.remove(0);
    until("a key frame is asked for", async || {
        camera.send(DELTA_FRAME.to_vec()).await;
        house.sfu.stats().keyframes_requested > 0
    })
    .await;
    assert_eq!(house.sfu.stats().packets_forwarded, 0, "nothing before the key frame");
    camera.send(KEY_FRAME.to_vec()).await;
    let _flow = camera.flow(DELTA_FRAME.to_vec());
    let seen = ben_sub.track().await;
    assert_eq!(packet(&seen).await.payload[..], KEY_FRAME);
    assert_eq!(packet(&seen).await.payload[..], DELTA_FRAME);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_are_told_of_changes_and_renegotiate() {
    let mut house = House::open(loopback()).await;
    let (ann, ben) = (house.admit("ann").await, house.admit("ben").await);
    let cat = house.admit("cat").await;

    let (ann_pub, mut ann_out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &ann_pub).await;
    assert_eq!(house.tracks_changed().await, [ben.clone(), cat.clone()]);
    let mut ben_sub = Client::subscribing(&[Audio]).await;
    house.subscribe(&ben, &ben_sub).await;
    let _ann_flow = ann_out.remove(0).flow(SOUND.to_vec());
    packet(&ben_sub.track().await).await;

    let (cat_pub, mut cat_out) = Client::publishing(&[Audio]).await;
    house.publish(&cat, &cat_pub).await;
    assert_eq!(house.tracks_changed().await, [ann.clone(), ben.clone()]);
    let answer = house.subscribe(&ben, &ben_sub).await;
    assert_eq!((answer.tracks.len(), answer.missing.len()), (1, 1), "one section, two tracks");
    ben_sub.want(Audio).await;
    let answer = house.subscribe(&ben, &ben_sub).await;
    assert_eq!(answer.tracks.iter().map(|it| &*it.peer).collect::<Vec<_>>(), ["ann", "cat"]);
    let _cat_flow = cat_out.remove(0).flow(SOUND.to_vec());
    packet(&ben_sub.track().await).await;

    house.sfu.remove(&house.room, &ann).await.unwrap();
    assert_eq!(house.tracks_changed().await, [ben.clone(), cat.clone()]);
    let answer = house.subscribe(&ben, &ben_sub).await;
    assert_eq!(answer.tracks.iter().map(|it| &*it.peer).collect::<Vec<_>>(), ["cat"]);

    let dan = house.admit("dan").await;
    let (dan_pub, mut dan_out) = Client::publishing(&[Audio]).await;
    house.publish(&dan, &dan_pub).await;
    let answer = house.subscribe(&ben, &ben_sub).await;
    assert_eq!(answer.tracks.iter().map(|it| &*it.peer).collect::<Vec<_>>(), ["dan", "cat"]);
    assert!(answer.missing.is_empty(), "the freed section is used again");
    let _dan_flow = dan_out.remove(0).flow(SOUND.to_vec());
    let before = house.sfu.stats().packets_forwarded;
    until("dan is heard", async || house.sfu.stats().packets_forwarded >= before + 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audio_starts_with_sound_not_with_a_track_and_muting_ends_it() {
    let mut house = House::open(loopback()).await;
    let ann = house.admit("ann").await;
    let (ann_pub, mut out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &ann_pub).await;
    house.expect(Some(&ann), MediaEventKind::ParticipantJoined).await;
    let mut microphone = out.remove(0);
    until("packets arrive", async || {
        microphone.send(DTX.to_vec()).await;
        house.sfu.stats().packets_received > 0
    })
    .await;
    assert!(!house.sfu.participants(&house.room).await.unwrap()[0].audible);
    let _flow = microphone.flow(SOUND.to_vec());
    house.expect(Some(&ann), MediaEventKind::AudioStarted).await;

    house.sfu.permit(&house.room, &ann, Permissions::LISTEN).await.unwrap();
    house.expect(Some(&ann), MediaEventKind::AudioStopped).await;
    let refused = house.sfu.stats().packets_refused;
    until("packets are refused", async || house.sfu.stats().packets_refused >= refused + 5).await;
    house.sfu.permit(&house.room, &ann, Permissions::ALL).await.unwrap();
    house.expect(Some(&ann), MediaEventKind::AudioStarted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_of_a_peer_replaces_the_old_one() {
    let mut house = House::open(loopback()).await;
    let ann = house.admit("ann").await;
    let (first, _out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &first).await;
    let before = house.expect(Some(&ann), MediaEventKind::ParticipantJoined).await;
    let (second, mut out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &second).await;
    let _flow = out.remove(0).flow(SOUND.to_vec());
    let started = house.expect(Some(&ann), MediaEventKind::AudioStarted).await;
    assert_eq!(started.session, before.session, "one participant, not two");
    assert_eq!(house.sfu.stats().connections, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_connects_or_vanishes_is_let_go() {
    let config = EmbeddedConfig { connect_deadline_ms: 300, failed_after_ms: 900, ..loopback() };
    let mut house = House::open(config).await;
    let (ann, ben) = (house.admit("ann").await, house.admit("ben").await);
    let (absent, _out) = Client::publishing(&[Audio]).await;
    let offer = absent.offer().await;
    drop(absent);
    house.sfu.publish(&house.room, &ann, &offer).await.unwrap();
    house.expect(Some(&ann), MediaEventKind::RoomExited { reason: ExitReason::NeverConnected }).await;

    let ben_pub = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, offer) = ben_pub
        .spawn(async {
            let (client, out) = Client::publishing(&[Audio]).await;
            let offer = client.offer().await;
            ((client, out), offer)
        })
        .await
        .unwrap();
    let answer = house.sfu.publish(&house.room, &ben, &offer).await.unwrap();
    let (client, _out) = client;
    let client = ben_pub
        .spawn(async move {
            client.accept(answer).await;
            client
        })
        .await
        .unwrap();
    house.expect(Some(&ben), MediaEventKind::ParticipantJoined).await;
    ben_pub.shutdown_background();
    house.expect(Some(&ben), MediaEventKind::RoomExited { reason: ExitReason::Failed }).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_at_n_and_name_themselves_at_n_and_one() {
    let config = EmbeddedConfig {
        max_rooms: 1,
        max_peers_per_room: 2,
        max_tracks_per_peer: 1,
        max_subscriptions_per_peer: 1,
        ..loopback()
    };
    let house = House::open(config).await;
    let too_many = |limit, max| Err(MediaError::TooMany { limit, max });

    let other = RoomRef::new("app", "other");
    assert_eq!(house.sfu.open_router(&other, GENERATION), too_many("max_rooms", 1));
    let (ann, _ben) = (house.admit("ann").await, house.admit("ben").await);
    let cat = PeerRef::new("cat", "cat");
    let third = house.sfu.admit(&house.room, &cat, Permissions::ALL).await.map(drop);
    assert_eq!(third, too_many("max_peers_per_room", 2));
    house.sfu.admit(&house.room, &ann, Permissions::ALL).await.unwrap();

    let (one, _out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &one).await;
    let (two, _out) = Client::publishing(&[Audio, Video]).await;
    let answer = house.sfu.publish(&house.room, &ann, &two.offer().await).await.map(drop);
    assert_eq!(answer, too_many("max_tracks_per_peer", 1));
    let two = Client::subscribing(&[Audio, Audio]).await;
    let answer = house.sfu.subscribe(&house.room, &ann, &two.offer().await).await.map(drop);
    assert_eq!(answer, too_many("max_subscriptions_per_peer", 1));
    assert_eq!(house.sfu.stats().connections, 1, "a refused offer leaves what there was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_cut_to_the_peers_budget() {
    let config = EmbeddedConfig { max_packets_per_second: 50, ..loopback() };
    let mut house = House::open(config).await;
    let ann = house.admit("ann").await;
    let (client, mut out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &client).await;
    house.expect(Some(&ann), MediaEventKind::ParticipantJoined).await;
    until("packets are dropped", async || {
        for _ in 0..100 {
            out[0].send(SOUND.to_vec()).await;
        }
        house.sfu.stats().datagrams_over_budget >= 100
    })
    .await;
    house.expect(Some(&ann), MediaEventKind::AudioStarted).await;
    assert_eq!(house.sfu.participants(&house.room).await.unwrap().len(), 1, "the room goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_and_permissions_are_kept() {
    let mut house = House::open(loopback()).await;
    let ann = house.admit("ann").await;
    let (client, _out) = Client::publishing(&[Audio]).await;
    let offer = client.offer().await;

    let stranger = PeerRef::new("nobody", "nobody");
    let refused = house.sfu.publish(&house.room, &stranger, &offer).await;
    assert_eq!(refused, Err(MediaError::NotFound { what: "participant" }));
    house.sfu.permit(&house.room, &ann, Permissions::LISTEN).await.unwrap();
    let refused = house.sfu.publish(&house.room, &ann, &offer).await;
    assert_eq!(refused, Err(MediaError::NotPermitted { action: "publish audio" }));

    let older = Generation(GENERATION.0 - 1);
    assert_eq!(
        house.sfu.open_router(&house.room, older),
        Err(MediaError::StaleGeneration { current: GENERATION.0, asked: older.0 }),
    );
    house.sfu.end_router(&house.room, older);
    house.sfu.open_router(&house.room, GENERATION).unwrap();
    assert!(house.sfu.tracks_for(&house.room, &ann).await.is_ok(), "the same router");

    let newer = Generation(GENERATION.0 + 1);
    house.sfu.open_router(&house.room, newer).unwrap();
    let finished = house.expect(None, MediaEventKind::RoomFinished).await;
    assert_eq!(finished.generation, Some(GENERATION));
    let gone = house.sfu.tracks_for(&house.room, &ann).await.map(drop);
    assert_eq!(gone, Err(MediaError::NotFound { what: "participant" }), "a new router knows nobody");
    house.sfu.remove(&house.room, &ann).await.unwrap();

    house.sfu.end_router(&house.room, newer);
    house.sfu.open_router(&house.room, newer).unwrap();
    assert_eq!(house.sfu.admit(&house.room, &ann, Permissions::ALL).await.unwrap().generation, newer);
    house.sfu.shutdown().await;
    assert!(matches!(house.sfu.open_router(&house.room, newer), Err(MediaError::Unavailable { .. })));
    assert!(media_bridge::MediaServer::health(&house.sfu).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_what_the_protocol_says() {
    let mut house = House::open(loopback()).await;
    let (ann, ben) = (house.admit("ann").await, house.admit("ben").await);
    let (client, _out) = Client::publishing(&[Audio]).await;
    house.publish(&ann, &client).await;
    assert_eq!(house.tracks_changed().await, std::slice::from_ref(&ben));
    let grant = house.sfu.tracks_for(&house.room, &ben).await.unwrap();
    assert_eq!(
        serde_json::to_value(&grant).unwrap(),
        serde_json::json!({
            "kind": "embedded", "generation": 3, "iceServers": [],
            "tracks": [{ "user": "user-ann", "peer": "ann", "kind": "audio" }],
        }),
    );
    assert_eq!(
        serde_json::from_value::<media_bridge::Grant>(serde_json::to_value(&grant).unwrap()).unwrap(),
        grant
    );
    assert!(house.sfu.tracks_for(&house.room, &ann).await.unwrap().tracks().is_empty(), "not one's own");
}
