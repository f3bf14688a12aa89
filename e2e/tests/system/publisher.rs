//! Somebody who publishes audio over WebRTC.

#![expect(clippy::unwrap_used, reason = "what helps tests fails as they do")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rtc::media_stream::MediaStreamTrack;
use rtc::rtp;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use tokio::sync::watch;
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

/// A peer connection with one track of Opus, which flows while it speaks.
pub(crate) struct Publisher {
    _connection: Arc<dyn PeerConnection>,
    speaks: watch::Sender<bool>,
    flow: JoinHandle<()>,
}

impl Publisher {
    /// Publishes from this address, and speaks; `exchange` has the media server answer the offer.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub(crate) async fn start<E>(
        address: IpAddr,
        exchange: impl AsyncFnOnce(String) -> Result<String, E>,
    ) -> Result<Self, E> {
        let mut media = MediaEngine::default();
        media.register_default_codecs().unwrap();
        let settings = SettingEngineBuilder::new()
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        let connection = PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_handler(Arc::new(Deaf))
            .with_udp_addrs(vec![(address, 0)])
            .build()
            .await
            .unwrap();
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
        connection.add_track(Arc::clone(&track) as Arc<dyn TrackLocal>).await.unwrap();
        let offer = connection.create_offer(None).await.unwrap();
        connection.set_local_description(offer.clone()).await.unwrap();
        let sdp = exchange(offer.sdp).await?;
        connection.set_remote_description(RTCSessionDescription::answer(sdp).unwrap()).await.unwrap();
        let (speaks, listens) = watch::channel(true);
        let flow = tokio::spawn(flow(track, listens));
        Ok(Self { _connection: Arc::new(connection), speaks, flow })
    }

    /// Sends nothing.
    pub(crate) fn hush(&mut self) {
        self.speaks.send_replace(false);
    }

    /// Sends again.
    pub(crate) fn speak(&mut self) {
        self.speaks.send_replace(true);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.flow.abort();
    }
}

async fn flow(track: Arc<TrackLocalStaticRTP>, mut speaks: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    for sequence_number in 0_u16.. {
        if speaks.wait_for(|speaks| *speaks).await.is_err() {
            return;
        }
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
