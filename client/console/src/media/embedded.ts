import type { EmbeddedGrant, Track } from "@dais/sdk/protocol";
import { Refused } from "../room.ts";
import type { May, Port, Received, Session } from "./session.ts";

const ATTEMPTS = 4;
const RETRY_MS = 700;
/** Offers in a row while the server names tracks for which there was no section. */
const MAX_ROUNDS = 3;

/**
 * The two media connections to the embedded SFU: one that sends, one that receives what the grant lists. An
 * offer goes out without candidates: the SFU's own, in its answer, are enough. They are mended one by one, so that
 * the session never ends by itself.
 */
export class Embedded implements Session {
  readonly #port: Port;
  #grant: EmbeddedGrant;
  #may: May;
  #isClosed = false;
  #publisher: RTCPeerConnection | null = null;
  #subscriber: RTCPeerConnection | null = null;
  #byMid = new Map<string, Track>();
  readonly #work = new Map<string, Promise<void>>();
  readonly #waiting = new Set<string>();

  constructor(grant: EmbeddedGrant, may: May, port: Port) {
    this.#port = port;
    this.#grant = grant;
    this.#may = may;
    this.update(grant, may);
  }

  /** An offer with something that this peer may not publish would be refused as a whole. */
  update(grant: EmbeddedGrant, may: May): void {
    this.#may = may;
    this.#grant = grant;
    this.send();
    this.#queue("media:subscribe", () => this.#subscribe());
  }

  send(): void {
    this.#queue("media:publish", () => this.#publish());
  }

  close(): void {
    this.#isClosed = true;
    this.#publisher = retire(this.#publisher);
    this.#unsubscribe();
  }

  readonly isOpen = true;

  get publish(): string {
    return this.#publisher?.connectionState ?? "none";
  }

  get subscribe(): string {
    return this.#subscriber?.connectionState ?? "none";
  }

  get received(): Received[] {
    return (this.#subscriber?.getTransceivers() ?? []).flatMap(({ mid, receiver }) => {
      const track = mid === null ? undefined : this.#byMid.get(mid);
      return track ? [{ from: track, kind: track.kind, track: receiver.track, receiver }] : [];
    });
  }

  get senders(): RTCRtpSender[] {
    return this.#publisher?.getSenders() ?? [];
  }

  readonly speaking = [];

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
    for (let attempt = 1; !this.#isClosed; attempt++) {
      try {
        return await job();
      } catch (error) {
        if (this.#isClosed) return;
        if (of === "media:publish") this.#publisher = retire(this.#publisher);
        else this.#unsubscribe();
        if (attempt === ATTEMPTS || isFinal(error)) return this.#port.failed(of, error);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS * attempt));
      }
    }
  }

  async #publish(): Promise<void> {
    const { local } = this.#port;
    const tracks = local.getTracks().filter(({ kind }) => this.#may[kind as Track["kind"]]);
    const senders = this.senders;
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
    const publisher = this.#connection("media:publish", () => this.#publish());
    this.#publisher = publisher;
    for (const track of tracks) {
      publisher.addTransceiver(track, { direction: "sendonly", streams: [local] });
    }
    await publisher.setLocalDescription();
    const { sdp } = await this.#port.signal("media:publish", publisher.localDescription?.sdp ?? "");
    await publisher.setRemoteDescription({ type: "answer", sdp });
  }

  async #subscribe(): Promise<void> {
    let wanted: Track[] = this.#grant.tracks;
    if (wanted.length === 0 && !this.#subscriber) return;
    this.#subscriber ??= this.#connection("media:subscribe", () => this.#subscribe());
    const subscriber = this.#subscriber;
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      for (const kind of ["audio", "video"] as const) {
        const have = subscriber.getTransceivers().filter(({ receiver }) => receiver.track.kind === kind);
        const want = wanted.filter((track) => track.kind === kind);
        for (let n = have.length; n < want.length; n++)
          subscriber.addTransceiver(kind, { direction: "recvonly" });
      }
      await subscriber.setLocalDescription();
      const answer = await this.#port.signal("media:subscribe", subscriber.localDescription?.sdp ?? "");
      await subscriber.setRemoteDescription({ type: "answer", sdp: answer.sdp });
      if (subscriber !== this.#subscriber) return;
      this.#byMid = new Map(answer.tracks.map((track) => [track.mid, track]));
      this.#port.changed();
      if (!answer.missing?.length) return;
      wanted = [...answer.tracks, ...answer.missing];
    }
  }

  #connection(of: string, again: () => Promise<void>): RTCPeerConnection {
    const connection = new RTCPeerConnection(this.#port.configuration(this.#grant));
    connection.onconnectionstatechange = () => {
      this.#port.changed();
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
}

/** Whether a new connection would be refused just the same; a bad offer is not that. */
function isFinal(error: unknown): boolean {
  return error instanceof Refused && !error.error.retryable && error.error.code !== "BAD_REQUEST";
}

function retire(connection: RTCPeerConnection | null): null {
  connection?.close();
  return null;
}
