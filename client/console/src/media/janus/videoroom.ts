import type { JanusGrant } from "@dais/sdk/protocol";
import { type Kind, type May, type Port, type Received, Refusal, type Session, wanted } from "../session.ts";
import { Leg } from "./leg.ts";
import { type Handle, type Json, Link, type Said } from "./link.ts";
import { Turns } from "./turns.ts";

/** A stream that somebody publishes. */
interface Stream {
  type: Kind | "data";
  mid: string;
  disabled?: boolean;
}
interface Publisher {
  id: string;
  streams?: Stream[];
}
/** One that was subscribed to. */
interface Subscribed {
  type: Kind | "data";
  mid: string;
  active?: boolean;
  feed_id?: string;
  feed_mid?: string;
}
interface Feed {
  feed: string;
  mid: string;
}

/** Audio goes first: the coordinator takes the first section for it. */
const KINDS = ["audio", "video"] as const;
const AGAIN_MS = 1000;

/**
 * Two connections to a Janus VideoRoom: one publishes, made when there is something to be published, and one
 * receives what all others publish.
 */
export class VideoRoom implements Session {
  readonly #grant: JanusGrant;
  readonly #port: Port;
  readonly #turns: Turns;
  readonly #talking = new Set<string>();
  /** What can be subscribed to, by publisher. */
  readonly #feeds = new Map<string, Stream[]>();
  #may: May;
  #link: Link | null = null;
  #own: Handle | null = null;
  #privateId: unknown;
  #publisher: Leg | null = null;
  #others: Handle | null = null;
  #subscriber: Leg | null = null;
  #hasSubscribed = false;
  #subscribed: Subscribed[] = [];
  #again = 0;
  #isClosed = false;

  constructor(grant: JanusGrant, may: May, port: Port) {
    this.#grant = grant;
    this.#may = may;
    this.#port = port;
    this.#turns = new Turns((error) => this.#end(error));
    this.#turns.take(() => this.#start());
  }

  update(_: JanusGrant, may: May): void {
    this.#may = may;
    this.send();
  }

  send(): void {
    this.#turns.take(this.#publish);
  }

  close(): void {
    this.#isClosed = true;
    this.#turns.end();
    clearTimeout(this.#again);
    this.#publisher?.close();
    this.#subscriber?.close();
    this.#link?.close();
  }

  get isOpen(): boolean {
    const isThere = (state: string) => state === "none" || state === "connected";
    return this.#own !== null && isThere(this.publish) && isThere(this.subscribe);
  }

  get publish(): string {
    return this.#publisher?.connection.connectionState ?? "none";
  }

  get subscribe(): string {
    return this.#subscriber?.connection.connectionState ?? "none";
  }

  get received(): Received[] {
    return (this.#subscriber?.connection.getTransceivers() ?? []).flatMap(({ mid, receiver }) => {
      const stream = this.#subscribed.find((each) => each.mid === mid && each.active !== false);
      if (!stream?.feed_id || stream.type === "data") return [];
      return [{ from: { name: stream.feed_id }, kind: stream.type, track: receiver.track, receiver }];
    });
  }

  get senders(): RTCRtpSender[] {
    return this.#publisher?.connection.getSenders() ?? [];
  }

  get speaking(): Iterable<string> {
    return this.#talking;
  }

  async #start(): Promise<void> {
    const { url, apiToken, plugin, opaqueId, room, id, token } = this.#grant;
    const link = await Link.open(url, apiToken, (error) => this.#end(error));
    this.#link = link;
    if (this.#isClosed) return link.close();
    const own = await link.attach(plugin, opaqueId);
    own.onsaid = ({ data }) => this.#hear(data);
    const { data } = await own.ask({ request: "join", ptype: "publisher", room, id, token });
    this.#own = own;
    this.#privateId = data.private_id;
    this.#port.changed();
    this.#hear(data);
    this.send();
  }

  readonly #publish = async (): Promise<void> => {
    const own = this.#own;
    if (!own) return;
    const tracks = KINDS.map((kind) => wanted(this.#port.local, this.#may, kind));
    const isFirst = !this.#publisher;
    if (isFirst && tracks.every((track) => !track)) return;
    this.#publisher ??= this.#leg(own);
    const { connection } = this.#publisher;
    let isNew = false;
    for (const [at, kind] of KINDS.entries()) {
      const track = tracks[at] ?? null;
      let transceiver = connection.getTransceivers()[at];
      if (!transceiver && (track || kind === "audio"))
        transceiver = connection.addTransceiver(kind, { direction: "inactive", streams: [this.#port.local] });
      if (!transceiver) continue;
      if (transceiver.sender.track !== track) await transceiver.sender.replaceTrack(track);
      const direction = track ? "sendonly" : "inactive";
      isNew ||= transceiver.direction !== direction;
      transceiver.direction = direction;
    }
    if (!isNew) return;
    await this.#publisher.offer({ request: isFirst ? "publish" : "configure" });
    this.#port.changed();
  };

  readonly #subscribe = async (): Promise<void> => {
    const link = this.#link;
    if (!link) return;
    const have = this.#subscribed.filter(({ active, feed_id }) => active !== false && feed_id);
    const subscribed = have.map(({ feed_id: feed = "", feed_mid: mid = "" }) => ({ feed, mid }));
    const offered = [...this.#feeds].flatMap(([feed, streams]) =>
      streams.filter(({ disabled }) => !disabled).map(({ mid }) => ({ feed, mid })),
    );
    const fresh = without(offered, subscribed);
    const old = without(subscribed, offered);
    if (fresh.length === 0 && old.length === 0) return;
    this.#others ??= await this.#attach(link);
    try {
      await this.#take(await this.#others.ask(this.#request(fresh, old)));
      this.#hasSubscribed = true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      // Somebody left just now; if so that is told as well.
      this.#again = setTimeout(() => this.#turns.take(this.#subscribe), AGAIN_MS);
    }
  };

  async #attach(link: Link): Promise<Handle> {
    const others = await link.attach(this.#grant.plugin);
    others.onsaid = (said) => this.#turns.take(() => this.#take(said));
    return others;
  }

  #request(fresh: Feed[], old: Feed[]): Json {
    const { room } = this.#grant;
    if (!this.#hasSubscribed)
      return { request: "join", ptype: "subscriber", room, private_id: this.#privateId, streams: fresh };
    const subscribe = fresh.length > 0 && { subscribe: fresh };
    const unsubscribe = old.length > 0 && { unsubscribe: old };
    return { request: "update", ...subscribe, ...unsubscribe };
  }

  /** Takes what Janus has to say of what is subscribed to. */
  async #take({ data, jsep }: Said): Promise<void> {
    if (data.streams) this.#subscribed = data.streams as Subscribed[];
    if (jsep && this.#others) {
      this.#subscriber ??= this.#leg(this.#others);
      await this.#subscriber.answer(jsep, { request: "start", room: this.#grant.room });
    }
    this.#port.changed();
  }

  #leg(handle: Handle): Leg {
    return new Leg(
      handle,
      this.#port.configuration(this.#grant),
      () => this.#port.changed(),
      (error) => this.#end(error),
    );
  }

  #hear(data: Json): void {
    const { videoroom, id, leaving, unpublished, kicked } = data;
    if (videoroom === "talking") this.#talking.add(`${id}`);
    else if (videoroom === "stopped-talking") this.#talking.delete(`${id}`);
    else if (videoroom === "destroyed") this.#end(new Refusal("Janus closed the room"));
    else if (leaving === "ok" || kicked === this.#grant.id)
      this.#end(new Refusal("Janus was told to put us out"));
    for (const { id, streams = [] } of (data.publishers ?? []) as Publisher[]) this.#feeds.set(id, streams);
    for (const gone of [leaving, unpublished, kicked]) {
      if (!gone) continue;
      this.#feeds.delete(`${gone}`);
      this.#talking.delete(`${gone}`);
    }
    this.#turns.take(this.#subscribe);
  }

  #end(error: unknown): void {
    if (this.#isClosed) return;
    this.close();
    this.#port.ended(error);
  }
}

function without(these: Feed[], those: Feed[]): Feed[] {
  return these.filter(({ feed, mid }) => !those.some((each) => each.feed === feed && each.mid === mid));
}
