//! One peer connection: the WebRTC stack's state machine, and what the room knows of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rtc::ice::mdns::MulticastDnsMode;
use rtc::interceptor::{Registry, Slot};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::certificate::RTCCertificate;
use rtc::peer_connection::configuration::RTCConfigurationBuilder;
use rtc::peer_connection::configuration::interceptor_registry::{
    configure_nack, configure_rtcp_reports, configure_twcc_receiver_only,
};
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MIME_TYPE_VP8, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::RTCPeerConnectionEvent;
use rtc::peer_connection::message::RTCMessage;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCDtlsTransportState, RTCIceCandidate,
};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtcp::payload_feedbacks::picture_loss_indication::PictureLossIndication;
use rtc::rtp;
use rtc::rtp_transceiver::rtp_sender::{
    RTCPFeedback, RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RTCRtpHeaderExtensionCapability, RtpCodecKind,
};
use rtc::rtp_transceiver::{RTCRtpReceiverId, RTCRtpSenderId};
use rtc::sansio::Protocol;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};

use super::answer;
use super::budget::Budget;
use super::config::EmbeddedConfig;
use super::keyframe::{KeyframeRequestsPass, requested_ssrcs};
use super::offer::{Offer, Role};
use crate::{ExitReason, MediaError, PeerRef, TrackKind};

/// Where the key frame requests leave the interceptor chain: after everything that acts on RTCP.
const APPLICATION_MOST: usize = 20_000;

/// What came out of a connection.
pub(super) enum Output {
    Connected,
    Ended(ExitReason),
    Rtp(rtp::Packet),
    KeyframesWanted(Vec<u32>),
}

/// One peer connection.
pub(super) struct Connection {
    pub(super) owner: PeerRef,
    pub(super) role: Role,
    /// [`Offer::connection`] of the offers it answers.
    pub(super) identity: String,
    pub(super) connected: bool,
    answered: bool,
    /// Work may have come up: datagrams to send, events to see.
    pub(super) dirty: bool,
    pub(super) next_timeout: Option<Instant>,
    pub(super) opened: Instant,
    /// Under this number its packets say how loud they are.
    pub(super) audio_level: Option<u8>,
    budget: Budget,
    pc: RTCPeerConnection,
}

impl Connection {
    /// A connection for a client that has not been answered yet.
    pub(super) fn open(
        owner: PeerRef,
        role: Role,
        config: &EmbeddedConfig,
        certificate: &RTCCertificate,
        now: Instant,
    ) -> Result<Self, rtc::shared::error::Error> {
        let mut media = MediaEngine::default();
        media.register_codec(opus(), RtpCodecKind::Audio)?;
        media.register_codec(vp8(), RtpCodecKind::Video)?;
        let mut registry = configure_rtcp_reports(configure_nack(Registry::new(), &mut media));
        registry = match role {
            Role::Publish => {
                let level = RTCRtpHeaderExtensionCapability { uri: answer::AUDIO_LEVEL.to_owned() };
                media.register_header_extension(level, RtpCodecKind::Audio, None)?;
                configure_twcc_receiver_only(registry, &mut media)?
            }
            Role::Subscribe => registry.with(Slot::from(APPLICATION_MOST), KeyframeRequestsPass::default()),
        };
        let failed = Duration::from_millis(config.failed_after_ms);
        let settings = SettingEngineBuilder::new()
            .with_multicast_dns_mode(MulticastDnsMode::Disabled)
            .with_ice_timeouts(
                Some(failed / 3),
                Some(failed - failed / 3),
                Some(failed.min(MAX_KEEPALIVE) / 3),
            )
            .build();
        let configuration =
            RTCConfigurationBuilder::new().with_certificates(vec![certificate.clone()]).build();
        let pc = RTCPeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_interceptor_registry(registry)
            .build(now)?;
        Ok(Self {
            owner,
            role,
            identity: String::new(),
            connected: false,
            answered: false,
            dirty: true,
            next_timeout: None,
            audio_level: None,
            opened: now,
            budget: Budget::new(now, config.max_bitrate_bps, config.max_packets_per_second),
            pc,
        })
    }

    /// First half of a negotiation: applies the offer. After an error the connection is of no further use.
    pub(super) fn apply(
        &mut self,
        offer: &Offer,
        candidates: impl Iterator<Item = SocketAddr>,
        now: Instant,
    ) -> Result<(), MediaError> {
        let first = !self.answered;
        self.dirty = true;
        RTCSessionDescription::offer(offer.text.clone())
            .and_then(|offer| self.pc.set_remote_description(now, offer))
            .map_err(|error| MediaError::bad_sdp(error.to_string()))?;
        if first {
            for address in candidates {
                self.add_candidate(address).map_err(|error| MediaError::unavailable(error.to_string()))?;
            }
        }
        self.identity.clone_from(&offer.connection);
        Ok(())
    }

    /// Second half: the stack's answer. After an error the connection is of no further use.
    pub(super) fn answer(&mut self, now: Instant) -> Result<String, MediaError> {
        let answer = self.pc.create_answer(None).map_err(|error| MediaError::bad_sdp(error.to_string()))?;
        let text = answer.sdp.clone();
        self.pc.set_local_description(now, answer).map_err(|error| MediaError::bad_sdp(error.to_string()))?;
        if answer::local_ufrag(&text).is_none() {
            return Err(MediaError::unavailable("the stack's answer has no credentials"));
        }
        self.answered = true;
        Ok(text)
    }

    /// Whether it has not answered anything yet.
    pub(super) fn is_fresh(&self) -> bool {
        !self.answered
    }

    /// Takes a datagram; false if it is over the peer's budget.
    pub(super) fn receive(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> bool {
        if !self.budget.admit(now, datagram.len()) {
            return false;
        }
        self.dirty = true;
        let transport = TransportContext {
            local_addr: to,
            peer_addr: from,
            transport_protocol: TransportProtocol::UDP,
            ecn: None,
        };
        let message = BytesMut::from(datagram);
        if let Err(error) = self.pc.handle_read(TaggedBytesMut { now, transport, message }) {
            tracing::debug!(%error, "datagram refused by the stack");
        }
        true
    }

    /// Lets timers run that are due.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.next_timeout.is_some_and(|at| at <= now) {
            self.dirty = true;
            if let Err(error) = self.pc.handle_timeout(now) {
                tracing::debug!(%error, "timer failed in the stack");
            }
        }
    }

    /// The next thing that came out; `None` when there is no more.
    pub(super) fn poll(&mut self) -> Option<Output> {
        while let Some(tagged) = self.pc.poll_read() {
            match tagged.message {
                RTCMessage::RtpPacket(_, packet) => return Some(Output::Rtp(packet)),
                RTCMessage::RtcpPacket(_, packets) => {
                    return Some(Output::KeyframesWanted(requested_ssrcs(&packets)));
                }
                _ => {}
            }
        }
        while let Some(event) = self.pc.poll_event() {
            if let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event {
                match state {
                    RTCPeerConnectionState::Connected if !self.connected => {
                        self.connected = true;
                        return Some(Output::Connected);
                    }
                    RTCPeerConnectionState::Failed => return Some(Output::Ended(ExitReason::Failed)),
                    RTCPeerConnectionState::Closed => return Some(Output::Ended(ExitReason::Closed)),
                    _ => {}
                }
            }
        }
        self.closed_by_client().then_some(Output::Ended(ExitReason::Closed))
    }

    /// The next datagram to send: from, to, content.
    pub(super) fn transmit(&mut self) -> Option<(SocketAddr, SocketAddr, BytesMut)> {
        let tagged = self.pc.poll_write()?;
        Some((tagged.transport.local_addr, tagged.transport.peer_addr, tagged.message))
    }

    /// Notes when it wants to be woken, once everything has been polled.
    pub(super) fn settle(&mut self) {
        self.next_timeout = self.pc.poll_timeout();
        self.dirty = false;
    }

    /// Says goodbye; what is to be sent is polled afterwards.
    pub(super) fn close(&mut self) {
        if let Err(error) = self.pc.close() {
            tracing::debug!(%error, "closing failed in the stack");
        }
    }

    /// What receives the section's stream.
    pub(super) fn receiver(&mut self, mid: &str) -> Option<RTCRtpReceiverId> {
        let count = self.pc.get_transceivers().count();
        (0..count).find_map(|id| {
            let transceiver = self.pc.rtp_transceiver(id)?;
            (transceiver.mid().as_deref() == Some(mid)).then(|| transceiver.receiver()).flatten()
        })
    }

    /// Asks the client for a key frame of one of its streams.
    pub(super) fn request_keyframe(&mut self, receiver: RTCRtpReceiverId, ssrc: u32, now: Instant) {
        self.dirty = true;
        let request = PictureLossIndication { sender_ssrc: 0, media_ssrc: ssrc };
        if let Some(mut receiver) = self.pc.rtp_receiver(receiver)
            && let Err(error) = receiver.write_rtcp(now, vec![Box::new(request)])
        {
            tracing::debug!(%error, "key frame request not sent");
        }
    }

    /// Attaches a stream to the first section of its kind that has none, and says to which. Between
    /// [`apply`](Self::apply) and [`answer`](Self::answer) only.
    pub(super) fn attach(
        &mut self,
        kind: TrackKind,
        stream: &str,
        ssrc: u32,
    ) -> Result<(RTCRtpSenderId, String), MediaError> {
        let (codec, kind) = match kind {
            TrackKind::Audio => (opus().rtp_codec, RtpCodecKind::Audio),
            TrackKind::Video => (vp8().rtp_codec, RtpCodecKind::Video),
        };
        let coding = RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..Default::default() },
            codec,
            ..Default::default()
        };
        let track = MediaStreamTrack::new(
            stream.to_owned(),
            format!("{stream}-{kind}"),
            String::new(),
            kind,
            vec![coding],
        );
        let sender = self.pc.add_track(track).map_err(|error| MediaError::bad_sdp(error.to_string()))?;
        let mid = self.pc.rtp_transceiver(sender.into()).and_then(|transceiver| transceiver.mid().clone());
        let mid = mid.ok_or_else(|| MediaError::unavailable("a track has no section"))?;
        Ok((sender, mid))
    }

    /// Frees a section. Followed by a negotiation.
    pub(super) fn detach(&mut self, sender: RTCRtpSenderId) -> Result<(), MediaError> {
        self.pc.remove_track(sender).map_err(|error| MediaError::unavailable(error.to_string()))
    }

    /// Sends a packet on an attached stream; false if the stack refuses it.
    pub(super) fn send(&mut self, sender: RTCRtpSenderId, packet: rtp::Packet, now: Instant) -> bool {
        self.dirty = true;
        self.pc.rtp_sender(sender).is_some_and(|mut sender| sender.write_rtp(now, packet).is_ok())
    }

    fn add_candidate(&mut self, address: SocketAddr) -> Result<(), rtc::shared::error::Error> {
        let base_config = CandidateConfig {
            network: "udp".to_owned(),
            address: address.ip().to_string(),
            port: address.port(),
            component: 1,
            ..Default::default()
        };
        let candidate = CandidateHostConfig { base_config, ..Default::default() }.new_candidate_host()?;
        self.pc.add_local_candidate(RTCIceCandidate::from(&candidate).to_json()?)
    }

    /// A client that closes says so over DTLS; the stack notes it, and reports no change of state.
    fn closed_by_client(&mut self) -> bool {
        if !self.connected || self.pc.get_transceivers().next().is_none() {
            return false;
        }
        let state = match self.role {
            Role::Publish => {
                let receiver = self.pc.get_receivers().next();
                receiver
                    .and_then(|id| self.pc.rtp_receiver(id)?.transport().map(|transport| transport.state()))
            }
            Role::Subscribe => {
                let sender = self.pc.get_senders().next();
                sender.and_then(|id| self.pc.rtp_sender(id)?.transport().map(|transport| transport.state()))
            }
        };
        state == Some(RTCDtlsTransportState::Closed)
    }
}

const MAX_KEEPALIVE: Duration = Duration::from_secs(6);

fn opus() -> RTCRtpCodecParameters {
    RTCRtpCodecParameters {
        rtp_codec: RTCRtpCodec {
            mime_type: MIME_TYPE_OPUS.to_owned(),
            clock_rate: 48_000,
            channels: 2,
            sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
            rtcp_feedback: Vec::new(),
        },
        payload_type: 111,
    }
}

fn vp8() -> RTCRtpCodecParameters {
    let feedback =
        |typ: &str, parameter: &str| RTCPFeedback { typ: typ.to_owned(), parameter: parameter.to_owned() };
    RTCRtpCodecParameters {
        rtp_codec: RTCRtpCodec {
            mime_type: MIME_TYPE_VP8.to_owned(),
            clock_rate: 90_000,
            channels: 0,
            sdp_fmtp_line: String::new(),
            rtcp_feedback: vec![feedback("ccm", "fir"), feedback("nack", ""), feedback("nack", "pli")],
        },
        payload_type: 96,
    }
}
