//! Key frames: recognising them, and asking for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rtc::interceptor::{Attribute, Interceptor, Packet, StreamInfo, TaggedPacket};
use rtc::rtcp;
use rtc::rtcp::payload_feedbacks::full_intra_request::FullIntraRequest;
use rtc::rtcp::payload_feedbacks::picture_loss_indication::PictureLossIndication;
use rtc::sansio::Protocol;
use rtc::shared::error::Error;

/// Between two requests to one publisher, however many subscribers ask.
const INTERVAL: Duration = Duration::from_millis(500);

/// Whether an RTP payload begins a VP8 key frame (RFC 7741, sections 4.2 and 4.3).
pub(super) fn begins_vp8_key_frame(payload: &[u8]) -> bool {
    let Some(&descriptor) = payload.first() else { return false };
    let starts_first_partition = descriptor & 0x10 != 0 && descriptor & 0x07 == 0;
    let mut at = 1;
    if descriptor & 0x80 != 0 {
        let Some(&extension) = payload.get(at) else { return false };
        at += 1;
        if extension & 0x80 != 0 {
            let Some(&picture) = payload.get(at) else { return false };
            at += if picture & 0x80 != 0 { 2 } else { 1 };
        }
        at += usize::from(extension & 0x40 != 0) + usize::from(extension & 0x30 != 0);
    }
    starts_first_partition && payload.get(at).is_some_and(|header| header & 0x01 == 0)
}

/// The key frames wanted of one track.
#[derive(Debug, Default)]
pub(super) struct KeyframeRequests {
    wanted: bool,
    sent: Option<Instant>,
}

impl KeyframeRequests {
    pub(super) fn ask(&mut self) {
        self.wanted = true;
    }

    /// When the next request may go out, if one is wanted.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        self.wanted.then(|| self.sent.map_or(now, |sent| sent + INTERVAL))
    }

    /// True if a request is to be sent now; it then counts as sent.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let due = self.deadline(now).is_some_and(|at| at <= now);
        if due {
            (self.wanted, self.sent) = (false, Some(now));
        }
        due
    }
}

/// The streams a batch of RTCP asks key frames of.
pub(super) fn requested_ssrcs(packets: &[Box<dyn rtcp::Packet>]) -> Vec<u32> {
    let mut ssrcs = Vec::new();
    for packet in packets {
        if let Some(pli) = packet.as_any().downcast_ref::<PictureLossIndication>() {
            ssrcs.push(pli.media_ssrc);
        } else if let Some(fir) = packet.as_any().downcast_ref::<FullIntraRequest>() {
            ssrcs.extend(fir.fir.iter().map(|entry| entry.ssrc));
        }
    }
    ssrcs
}

/// Lets key frame requests through to the room. All other RTCP has been acted on by then, and ends here.
#[derive(Default)]
pub(super) struct KeyframeRequestsPass {
    inbound: VecDeque<TaggedPacket>,
    outbound: VecDeque<TaggedPacket>,
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for KeyframeRequestsPass {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, mut tagged: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtcp(packets) = &mut tagged.message.packet {
            packets.retain(|packet| {
                packet.as_any().is::<PictureLossIndication>() || packet.as_any().is::<FullIntraRequest>()
            });
            if packets.is_empty() {
                return Ok(());
            }
            tagged.message.add(Attribute::DeliverToApplication);
        }
        self.inbound.push_back(tagged);
        Ok(())
    }

    fn poll_read(&mut self) -> Option<TaggedPacket> {
        self.inbound.pop_front()
    }

    fn handle_write(&mut self, tagged: TaggedPacket) -> Result<(), Error> {
        self.outbound.push_back(tagged);
        Ok(())
    }

    fn poll_write(&mut self) -> Option<TaggedPacket> {
        self.outbound.pop_front()
    }
}

impl Interceptor for KeyframeRequestsPass {
    fn bind_local_stream(&mut self, _stream: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _stream: &StreamInfo) {}
    fn bind_remote_stream(&mut self, _stream: &StreamInfo) {}
    fn unbind_remote_stream(&mut self, _stream: &StreamInfo) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_frames_are_recognised_behind_every_descriptor() {
        for (payload, key) in [
            (&[0x10, 0x00][..], true),
            (&[0x10, 0x01], false),
            (&[0x00, 0x00], false),
            (&[0x11, 0x00], false),
            (&[0x90, 0x80, 0x05, 0x00], true),
            (&[0x90, 0x80, 0x85, 0x10, 0x00], true),
            (&[0x90, 0xe0, 0x85, 0x10, 0x01, 0x20, 0x00], true),
            (&[0x90, 0xe0, 0x85, 0x10, 0x01, 0x20, 0x01], false),
            (&[0x90, 0x80, 0x85], false),
            (&[0x10], false),
            (&[], false),
        ] {
            assert_eq!(begins_vp8_key_frame(payload), key, "{payload:02x?}");
        }
    }

    #[test]
    fn requests_are_merged_and_rate_limited() {
        let (mut requests, t0) = (KeyframeRequests::default(), Instant::now());
        assert!(!requests.take(t0));
        requests.ask();
        requests.ask();
        assert!(requests.take(t0));
        assert!(!requests.take(t0));
        requests.ask();
        assert!(!requests.take(t0 + INTERVAL / 2));
        assert_eq!(requests.deadline(t0 + INTERVAL / 2), Some(t0 + INTERVAL));
        assert!(requests.take(t0 + INTERVAL));
    }
}
