import type { Kind } from "./session.ts";

/** What came in of one track; numbers grow from when its connection was made. */
export interface InboundStats {
  /** `null`: a mix of everybody. */
  user: string | null;
  kind: Kind;
  packetsReceived: number;
  packetsLost: number;
  bytesReceived: number;
  framesDecoded: number;
  /** How loud it is now, 0 to 1. */
  audioLevel: number;
  totalAudioEnergy: number;
  totalSamplesReceived: number;
  concealedSamples: number;
  /** Our end of the way that packets take: `host`, `srflx`, `prflx` or `relay`. */
  path: string;
}

export interface OutboundStats {
  kind: Kind;
  packetsSent: number;
  bytesSent: number;
  path: string;
}

export interface Stats {
  in: InboundStats[];
  out: OutboundStats[];
}

export async function inbound(
  user: string | null,
  kind: Kind,
  receiver: RTCRtpReceiver,
): Promise<InboundStats[]> {
  const report = [...(await receiver.getStats()).values()];
  const {
    packetsReceived = 0,
    packetsLost = 0,
    bytesReceived = 0,
    framesDecoded = 0,
    ...sound
  } = report.find(({ type }) => type === "inbound-rtp") ?? {};
  const { audioLevel = 0, totalAudioEnergy = 0, totalSamplesReceived = 0, concealedSamples = 0 } = sound;
  const packets = { packetsReceived, packetsLost, bytesReceived, framesDecoded };
  const samples = { audioLevel, totalAudioEnergy, totalSamplesReceived, concealedSamples };
  return [{ user, kind, ...packets, ...samples, path: path(report) }];
}

export async function outbound(sender: RTCRtpSender): Promise<OutboundStats[]> {
  if (!sender.track) return [];
  const kind = sender.track.kind as Kind;
  const report = [...(await sender.getStats()).values()];
  const { packetsSent = 0, bytesSent = 0 } = report.find(({ type }) => type === "outbound-rtp") ?? {};
  return [{ kind, packetsSent, bytesSent, path: path(report) }];
}

// biome-ignore lint/suspicious/noExplicitAny: the fields of a report depend on its type, and have no types here
function path(report: any[]): string {
  const { selectedCandidatePairId } = report.find(({ type }) => type === "transport") ?? {};
  const { localCandidateId } = report.find(({ id }) => id === selectedCandidatePairId) ?? {};
  return report.find(({ id }) => id === localCandidateId)?.candidateType ?? "none";
}
