import type { EmbeddedGrant, Requests, Track } from "@dais/sdk/protocol";
import { Refused } from "./room.ts";

type Signal = <Name extends "media:publish" | "media:subscribe">(
  name: Name,
  sdp: string,
) => Promise<Requests[Name]["answer"]>;
export interface Received extends Track {
  track: MediaStreamTrack;
  receiver: RTCRtpReceiver;
}
export interface InboundStats {
  user: string;
  kind: string;
  totalAudioEnergy: number;
  framesDecoded: number;
  bytesReceived: number;
}

const ATTEMPTS = 4;
const RETRY_MS = 700;
/** Offers in a row while the server names tracks for which there was no section. */
const MAX_ROUNDS = 3;

/**
 * The two media connections to the embedded SFU: one that sends, one that receives what the grant lists. An
 * offer goes out without candidates: the SFU's own, in its answer, are enough.
 */
export class Media {
  readonly #signal: Signal;
  readonly #changed: () => void;
  readonly #failed: (of: string, error: unknown) => void;
  readonly #local: MediaStream;
  #grant: EmbeddedGrant | null = null;
  #key = "";
  #may: Record<Track["kind"], boolean> = { audio: false, video: false };
  #publisher: RTCPeerConnection | null = null;
  #subscriber: RTCPeerConnection | null = null;
  #byMid = new Map<string, Track>();
  readonly #work = new Map<string, Promise<void>>();
  readonly #waiting = new Set<string>();

  /** `local` holds what is to be sent; whoever changes it says so with {@link send}. */
  constructor(
    local: MediaStream,
    signal: Signal,
    changed: () => void,
    failed: (of: string, error: unknown) => void,
  ) {
    this.#local = local;
    this.#signal = signal;
    this.#changed = changed;
    this.#failed = failed;
  }

  /**
   * Follows a grant; another `key` (generation, owner, peer) means that both connections are made anew. An offer
   * with something that this peer may not publish would be refused as a whole, so `may` says what it may.
   */
  update(grant: EmbeddedGrant, key: string, may: Record<Track["kind"], boolean>): void {
    this.#may = may;
    if (key !== this.#key) this.#drop();
    this.#key = key;
    this.#grant = grant;
    this.send();
    this.#queue("media:subscribe", () => this.#subscribe());
  }

  /** Sends what there is to be sent by now. */
  send(): void {
    if (this.#grant) this.#queue("media:publish", () => this.#publish());
  }

  close(): void {
    this.#drop();
    this.#grant = null;
  }

  get state(): { publish: string; subscribe: string } {
    return {
      publish: this.#publisher?.connectionState ?? "none",
      subscribe: this.#subscriber?.connectionState ?? "none",
    };
  }

  get received(): Received[] {
    return (this.#subscriber?.getTransceivers() ?? []).flatMap(({ mid, receiver }) => {
      const track = mid === null ? undefined : this.#byMid.get(mid);
      return track ? [{ ...track, track: receiver.track, receiver }] : [];
    });
  }

  async stats(): Promise<InboundStats[]> {
    const report = await this.#subscriber?.getStats();
    return [...(report?.values() ?? [])].flatMap((entry) => {
      const track = entry.type === "inbound-rtp" ? this.#byMid.get(entry.mid) : undefined;
      if (!track) return [];
      const { totalAudioEnergy = 0, framesDecoded = 0, bytesReceived = 0 } = entry;
      return [{ user: track.user, kind: track.kind, totalAudioEnergy, framesDecoded, bytesReceived }];
    });
  }

  /**
   * One negotiation at a time on each connection; what fails is tried again on a new connection. A job takes the
   * latest grant when it begins, so that one waiting job stands for all that are asked for meanwhile.
   */
  #queue(of: string, job: () => Promise<void>): void {
    if (this.#waiting.has(of)) return;
    this.#waiting.add(of);
    const before = this.#work.get(of) ?? Promise.resolve();
    this.#work.set(
      of,
      before.then(() => {
        this.#waiting.delete(of);
        return this.#attempt(of, job);
      }),
    );
  }

  async #attempt(of: string, job: () => Promise<void>): Promise<void> {
    const key = this.#key;
    for (let attempt = 1; this.#grant && key === this.#key; attempt++) {
      try {
        return await job();
      } catch (error) {
        if (key !== this.#key) return;
        if (of === "media:publish") this.#publisher = retire(this.#publisher);
        else this.#unsubscribe();
        if (attempt === ATTEMPTS || isFinal(error)) return this.#failed(of, error);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS * attempt));
      }
    }
  }

  async #publish(): Promise<void> {
    if (!this.#grant) return;
    const local = this.#local;
    const tracks = local.getTracks().filter(({ kind }) => this.#may[kind as Track["kind"]]);
    const senders = this.#publisher?.getSenders() ?? [];
    // What is no longer allowed may go on being sent: the server lets it through no more.
    const fresh = tracks.filter((track) => senders.every((sender) => sender.track !== track));
    if (fresh.length === 0) return;
    // A sender whose track has ended takes the next one without another offer.
    const heirs = fresh.flatMap((track) => {
      const sender = senders.find(({ track: old }) => old?.kind === track.kind && old.readyState === "ended");
      return sender ? [{ sender, track }] : [];
    });
    if (heirs.length === fresh.length) {
      await Promise.all(heirs.map(({ sender, track }) => sender.replaceTrack(track)));
      return;
    }
    retire(this.#publisher);
    const publisher = this.#connection(this.#grant, "media:publish", () => this.#publish());
    this.#publisher = publisher;
    for (const track of tracks) {
      publisher.addTransceiver(track, { direction: "sendonly", streams: [local] });
    }
    await publisher.setLocalDescription();
    const { sdp } = await this.#signal("media:publish", publisher.localDescription?.sdp ?? "");
    await publisher.setRemoteDescription({ type: "answer", sdp });
  }

  async #subscribe(): Promise<void> {
    if (!this.#grant) return;
    let wanted: Track[] = this.#grant.tracks;
    if (wanted.length === 0 && !this.#subscriber) return;
    this.#subscriber ??= this.#connection(this.#grant, "media:subscribe", () => this.#subscribe());
    const subscriber = this.#subscriber;
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      for (const kind of ["audio", "video"] as const) {
        const have = subscriber.getTransceivers().filter(({ receiver }) => receiver.track.kind === kind);
        const want = wanted.filter((track) => track.kind === kind);
        for (let n = have.length; n < want.length; n++)
          subscriber.addTransceiver(kind, { direction: "recvonly" });
      }
      await subscriber.setLocalDescription();
      const answer = await this.#signal("media:subscribe", subscriber.localDescription?.sdp ?? "");
      await subscriber.setRemoteDescription({ type: "answer", sdp: answer.sdp });
      if (subscriber !== this.#subscriber) return;
      this.#byMid = new Map(answer.tracks.map((track) => [track.mid, track]));
      this.#changed();
      if (!answer.missing?.length) return;
      wanted = [...answer.tracks, ...answer.missing];
    }
  }

  #connection(grant: EmbeddedGrant, of: string, again: () => Promise<void>): RTCPeerConnection {
    const connection = new RTCPeerConnection({ iceServers: grant.iceServers });
    connection.onconnectionstatechange = () => {
      this.#changed();
      if (connection.connectionState !== "failed") return;
      if (connection === this.#publisher) this.#publisher = retire(connection);
      else if (connection === this.#subscriber) this.#unsubscribe();
      else return;
      this.#queue(of, again);
    };
    return connection;
  }

  /** A section's id means something on its own connection only. */
  #unsubscribe(): void {
    this.#subscriber = retire(this.#subscriber);
    this.#byMid.clear();
  }

  #drop(): void {
    this.#publisher = retire(this.#publisher);
    this.#unsubscribe();
    this.#key = "";
    this.#changed();
  }
}

/** Whether a new connection would be refused just the same; a bad offer is not that. */
function isFinal(error: unknown): boolean {
  return error instanceof Refused && !error.error.retryable && error.error.code !== "BAD_REQUEST";
}

function retire(connection: RTCPeerConnection | null): null {
  connection?.close();
  return null;
}
