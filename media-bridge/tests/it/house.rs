//! A room of real WebRTC clients around one SFU.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use media_bridge::{
    ClockMs, EmbeddedConfig, EmbeddedSfu, Generation, MediaAddress, MediaEvent, MediaEventKind, MediaSignal,
    PeerRef, Permissions, RoomRef, SubscribeAnswer, TrackKind,
};
use rtc::media_stream::MediaStreamTrack;
use rtc::rtp;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use rtc::rtp_transceiver::{RTCRtpTransceiverDirection, RTCRtpTransceiverInit};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};
use webrtc::peer_connection::{
    MediaEngine, PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCSessionDescription,
    SettingEngineBuilder,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const GENERATION: Generation = Generation(3);

pub(crate) fn loopback() -> EmbeddedConfig {
    EmbeddedConfig {
        addresses: vec![MediaAddress::direct([127, 0, 0, 1].into())],
        silence_after_ms: 500,
        ..EmbeddedConfig::default()
    }
}

/// An SFU with one room, and a clock that counts its readings.
pub(crate) struct House {
    pub(crate) sfu: EmbeddedSfu,
    pub(crate) room: RoomRef,
    pub(crate) signals: mpsc::Receiver<MediaSignal>,
}

impl House {
    pub(crate) async fn open(config: EmbeddedConfig) -> Self {
        let (sender, signals) = mpsc::channel(256);
        let readings = AtomicI64::new(1000);
        let clock: ClockMs = Arc::new(move || readings.fetch_add(1, Ordering::Relaxed));
        let sfu = EmbeddedSfu::new(config, clock, sender).unwrap();
        let room = RoomRef::new("app", "room");
        sfu.open_router(&room, GENERATION).unwrap();
        Self { sfu, room, signals }
    }

    pub(crate) async fn admit(&self, name: &str) -> PeerRef {
        let peer = PeerRef::new(format!("user-{name}"), name);
        self.sfu.admit(&self.room, &peer, Permissions::ALL).await.unwrap();
        peer
    }

    pub(crate) async fn publish(&self, peer: &PeerRef, client: &Client) {
        let answer = self.sfu.publish(&self.room, peer, &client.offer().await).await.unwrap();
        client.accept(answer).await;
    }

    pub(crate) async fn subscribe(&self, peer: &PeerRef, client: &Client) -> SubscribeAnswer {
        let answer = self.sfu.subscribe(&self.room, peer, &client.offer().await).await.unwrap();
        client.accept(answer.sdp.clone()).await;
        answer
    }

    /// The next business event; notices of changed tracks are passed over.
    pub(crate) async fn event(&mut self) -> MediaEvent {
        loop {
            let signal = tokio::time::timeout(PATIENCE, self.signals.recv()).await.expect("an event in time");
            if let MediaSignal::Event(event) = signal.expect("the channel is open") {
                return event;
            }
        }
    }

    pub(crate) async fn expect(&mut self, peer: Option<&PeerRef>, kind: MediaEventKind) -> MediaEvent {
        let event = self.event().await;
        assert_eq!((event.peer.as_ref(), &event.kind), (peer, &kind), "{event:?}");
        event
    }

    /// Who is told next that tracks changed; business events are passed over.
    pub(crate) async fn tracks_changed(&mut self) -> Vec<PeerRef> {
        loop {
            let signal = tokio::time::timeout(PATIENCE, self.signals.recv()).await.expect("a notice in time");
            if let MediaSignal::TracksChanged { subscribers, .. } = signal.expect("the channel is open") {
                return subscribers;
            }
        }
    }
}

struct Handler {
    tracks: mpsc::UnboundedSender<Arc<dyn TrackRemote>>,
}

#[async_trait::async_trait]
impl PeerConnectionEventHandler for Handler {
    async fn on_track(&self, track: Arc<dyn TrackRemote>) {
        let _ = self.tracks.send(track);
    }
}

/// One peer connection of a client.
pub(crate) struct Client {
    pc: Arc<dyn PeerConnection>,
    tracks: mpsc::UnboundedReceiver<Arc<dyn TrackRemote>>,
}

impl Client {
    pub(crate) async fn open() -> Self {
        let mut media = MediaEngine::default();
        media.register_default_codecs().unwrap();
        let (sender, tracks) = mpsc::unbounded_channel();
        let settings = SettingEngineBuilder::new()
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        let pc = PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_handler(Arc::new(Handler { tracks: sender }))
            .with_udp_addrs(vec!["127.0.0.1:0"])
            .build()
            .await
            .unwrap();
        Self { pc: Arc::new(pc), tracks }
    }

    /// A publishing connection with tracks of these kinds, and the tracks.
    pub(crate) async fn publishing(kinds: &[TrackKind]) -> (Self, Vec<Outgoing>) {
        let client = Self::open().await;
        let mut outgoing = Vec::new();
        for kind in kinds {
            outgoing.push(client.add(*kind).await);
        }
        (client, outgoing)
    }

    pub(crate) async fn add(&self, kind: TrackKind) -> Outgoing {
        let ssrc = 7000 + u32::try_from(self.pc.get_transceivers().await.len()).unwrap();
        let (mime_type, clock_rate, channels, payload_type, codec_kind) = match kind {
            TrackKind::Audio => ("audio/opus", 48_000, 2, 111, RtpCodecKind::Audio),
            TrackKind::Video => ("video/VP8", 90_000, 0, 96, RtpCodecKind::Video),
        };
        let coding = RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..Default::default() },
            codec: RTCRtpCodec {
                mime_type: mime_type.to_owned(),
                clock_rate,
                channels,
                ..Default::default()
            },
            ..Default::default()
        };
        let names = (format!("stream{ssrc}"), format!("track{ssrc}"));
        let track = MediaStreamTrack::new(names.0, names.1, String::new(), codec_kind, vec![coding]);
        let track = Arc::new(TrackLocalStaticRTP::new(track));
        self.pc.add_track(Arc::clone(&track) as Arc<dyn TrackLocal>).await.unwrap();
        Outgoing { track, ssrc, payload_type, sequence: 100 }
    }

    /// A subscribing connection with a section for each of these.
    pub(crate) async fn subscribing(kinds: &[TrackKind]) -> Self {
        let client = Self::open().await;
        for kind in kinds {
            client.want(*kind).await;
        }
        client
    }

    pub(crate) async fn want(&self, kind: TrackKind) {
        let kind = match kind {
            TrackKind::Audio => RtpCodecKind::Audio,
            TrackKind::Video => RtpCodecKind::Video,
        };
        let init =
            RTCRtpTransceiverInit { direction: RTCRtpTransceiverDirection::Recvonly, ..Default::default() };
        self.pc.add_transceiver_from_kind(kind, Some(init)).await.unwrap();
    }

    pub(crate) async fn offer(&self) -> String {
        let offer = self.pc.create_offer(None).await.unwrap();
        self.pc.set_local_description(offer.clone()).await.unwrap();
        offer.sdp
    }

    pub(crate) async fn accept(&self, sdp: String) {
        self.pc.set_remote_description(RTCSessionDescription::answer(sdp).unwrap()).await.unwrap();
    }

    /// The next track that packets arrive on.
    pub(crate) async fn track(&mut self) -> Arc<dyn TrackRemote> {
        tokio::time::timeout(PATIENCE, self.tracks.recv()).await.expect("a track in time").unwrap()
    }

    pub(crate) async fn close(&self) {
        self.pc.close().await.unwrap();
    }
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let looking = async {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while !so().await {
            tick.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// The next packet of a track.
pub(crate) async fn packet(track: &Arc<dyn TrackRemote>) -> rtp::Packet {
    let next = async {
        loop {
            match track.poll().await.expect("the track goes on") {
                TrackRemoteEvent::OnRtpPacket(packet) => return packet,
                _ => continue,
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.expect("a packet in time")
}

/// A track a client sends.
pub(crate) struct Outgoing {
    track: Arc<TrackLocalStaticRTP>,
    pub(crate) ssrc: u32,
    payload_type: u8,
    sequence: u16,
}

impl Outgoing {
    pub(crate) async fn send(&mut self, payload: Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1);
        let header = rtp::Header {
            version: 2,
            payload_type: self.payload_type,
            sequence_number: self.sequence,
            timestamp: u32::from(self.sequence) * 960,
            ssrc: self.ssrc,
            ..Default::default()
        };
        // Before the connection is up the packet is lost, as it would be on a network.
        let _ = self.track.write_rtp(rtp::Packet { header, payload: payload.into() }).await;
    }

    /// Sends one payload every 20 ms until the task is aborted.
    pub(crate) fn flow(mut self, payload: Vec<u8>) -> Flow {
        Flow(tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(20));
            loop {
                tick.tick().await;
                self.send(payload.clone()).await;
            }
        }))
    }
}

/// Packets being sent until this is dropped.
pub(crate) struct Flow(JoinHandle<()>);

impl Drop for Flow {
    fn drop(&mut self) {
        self.0.abort();
    }
}
