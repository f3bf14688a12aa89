//! Somebody who publishes audio by WHIP, which LiveKit takes with the token of a grant.

use std::sync::Arc;
use std::time::Duration;

use e2e::http::{self, Response};
use rtc::media_stream::MediaStreamTrack;
use rtc::rtp;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use tokio::task::JoinHandle;
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::peer_connection::{
    MediaEngine, PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCSessionDescription,
    SettingEngineBuilder,
};

const SSRC: u32 = 7_000;

struct Deaf;

#[async_trait::async_trait]
impl PeerConnectionEventHandler for Deaf {}

/// A peer connection that sends one track of Opus until it is dropped.
pub(crate) struct Publisher {
    _connection: Arc<dyn PeerConnection>,
    flow: JoinHandle<()>,
}

impl Publisher {
    /// Joins and publishes.
    ///
    /// # Errors
    /// The answer of who would not have it.
    pub(crate) async fn start(livekit: &str, token: &str) -> Result<Self, Response> {
        let mut media = MediaEngine::default();
        media.register_default_codecs().expect("codecs");
        let settings = SettingEngineBuilder::new()
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        let connection = PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_handler(Arc::new(Deaf))
            .with_udp_addrs(vec!["127.0.0.1:0"])
            .build()
            .await
            .expect("a peer connection");
        let coding = RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(SSRC), ..Default::default() },
            codec: RTCRtpCodec {
                mime_type: "audio/opus".to_owned(),
                clock_rate: 48_000,
                channels: 2,
                ..Default::default()
            },
            ..Default::default()
        };
        let names = ("stream".to_owned(), "track".to_owned());
        let track = MediaStreamTrack::new(names.0, names.1, String::new(), RtpCodecKind::Audio, vec![coding]);
        let track = Arc::new(TrackLocalStaticRTP::new(track));
        connection.add_track(Arc::clone(&track) as Arc<dyn TrackLocal>).await.expect("a track");
        let offer = connection.create_offer(None).await.expect("an offer");
        connection.set_local_description(offer.clone()).await.expect("an offer");
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", &*authorization), ("content-type", "application/sdp")];
        let answer = http::request("POST", &format!("{livekit}/whip/v1"), &headers, &offer.sdp)
            .await
            .expect("an answer");
        if answer.status != 201 {
            return Err(answer);
        }
        let answer = RTCSessionDescription::answer(answer.body).expect("an answer in SDP");
        connection.set_remote_description(answer).await.expect("an answer that fits");
        Ok(Self { _connection: Arc::new(connection), flow: tokio::spawn(flow(track)) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.flow.abort();
    }
}

async fn flow(track: Arc<TrackLocalStaticRTP>) {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    for sequence_number in 0_u16.. {
        tick.tick().await;
        let header = rtp::Header {
            version: 2,
            payload_type: 111,
            sequence_number,
            timestamp: u32::from(sequence_number) * 960,
            ssrc: SSRC,
            ..Default::default()
        };
        // Before the connection is up the packet is lost, as it would be on a network.
        _ = track.write_rtp(rtp::Packet { header, payload: vec![0xF8, 0xFF, 0xFE].into() }).await;
    }
}
