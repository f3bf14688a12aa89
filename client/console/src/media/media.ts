import type { Grant, JanusGrant, LivekitGrant } from "@dais/sdk/protocol";
import { Embedded } from "./embedded.ts";
import { type May, type Open, type Port, type Received, Refusal, type Session } from "./session.ts";
import { inbound, outbound, type Stats } from "./stats.ts";

const PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 10_000;
/** What was there for so long was good: the next pause is a short one. */
const GOOD_AFTER_MS = 15_000;

/** How a grant's server is reached; what is not needed is not loaded. */
const OPEN: { [Kind in Grant["kind"]]?: () => Promise<Open<Extract<Grant, { kind: Kind }>>> } = {
  embedded: async () => (grant, may, port) => new Embedded(grant, may, port),
  janus: async () => (await import("./janus/open.ts")).open as Open<JanusGrant>,
  livekit: async () => (await import("./livekit.ts")).open as Open<LivekitGrant>,
};

/** What is received, with the user who sends it; `null`: a mix of everybody. */
export type Heard = Omit<Received, "from"> & { user: string | null };

/** What the media has of the page. */
export interface Page extends Omit<Port, "configuration" | "ended"> {
  /** A fresh grant. */
  renew(): Promise<Grant>;
  /** Whose name at the media server this is, as far as that is known. */
  userOf(name: string): string | undefined;
}

/**
 * The page's media, wherever its grants lead: one session at a time, kept while grants are for the same. A session that
 * ends is followed by another one, after pauses that grow.
 */
export class Media {
  readonly #page: Page;
  readonly #policy: RTCIceTransportPolicy;
  #grant: Grant | null = null;
  #key = "";
  #may: May = { audio: false, video: false };
  #session: Session | null = null;
  /** Grows with each session, so that nothing of an older one counts. */
  #epoch = 0;
  #opened = 0;
  /** Since when everything is there; 0 while it is not. */
  #openSince = 0;
  #failures = 0;
  #timer = 0;

  /** `relayed`: packets go through a TURN server or not at all. */
  constructor(page: Page, relayed: boolean) {
    this.#page = page;
    this.#policy = relayed ? "relay" : "all";
  }

  /**
   * Follows a grant, and what may be sent. Another `key` means that everything is made anew; `null` that there is no
   * other grant than the last one.
   */
  follow(grant: Grant | null, key: string, may: May): void {
    this.#may = may;
    if (grant && key !== this.#key) {
      this.#drop();
      this.#key = key;
      this.#failures = 0;
      this.#grant = grant;
      this.#open();
      return;
    }
    this.#grant = grant ?? this.#grant;
    if (this.#grant) this.#session?.update(this.#grant, may);
  }

  /** Sends what there is to be sent by now. */
  send(): void {
    this.#session?.send();
  }

  close(): void {
    this.#drop();
    this.#grant = null;
    this.#key = "";
  }

  get isOpen(): boolean {
    return this.#session?.isOpen ?? false;
  }

  get state() {
    return {
      kind: this.#grant?.kind ?? null,
      generation: this.#grant?.generation ?? null,
      isOpen: this.isOpen,
      publish: this.#session?.publish ?? "none",
      subscribe: this.#session?.subscribe ?? "none",
      /** Sessions so far. */
      opened: this.#opened,
      /** Those that failed since one was good. */
      failures: this.#failures,
    };
  }

  get received(): Heard[] {
    return (this.#session?.received ?? []).map(({ from, ...rest }) => ({
      ...rest,
      user: this.#userOf(from),
    }));
  }

  /** Users who speak, where the media server tells its clients. */
  get speaking(): string[] {
    return [...(this.#session?.speaking ?? [])].map((name) => this.#page.userOf(name) ?? name);
  }

  async stats(): Promise<Stats> {
    const coming = this.received.map(({ user, kind, receiver }) => inbound(user, kind, receiver));
    const going = (this.#session?.senders ?? []).map((sender) => outbound(sender));
    return { in: (await Promise.all(coming)).flat(), out: (await Promise.all(going)).flat() };
  }

  #userOf(from: Received["from"]): string | null {
    if (!from) return null;
    return "user" in from ? from.user : (this.#page.userOf(from.name) ?? from.name);
  }

  async #open(): Promise<void> {
    const epoch = ++this.#epoch;
    const isCurrent = () => epoch === this.#epoch;
    const port: Port = {
      local: this.#page.local,
      signal: (name, sdp) => this.#page.signal(name, sdp),
      configuration: ({ iceServers }) => ({ iceServers, iceTransportPolicy: this.#policy }),
      changed: () => isCurrent() && this.#changed(),
      failed: (of, error) => isCurrent() && this.#page.failed(of, error),
      ended: (error) => isCurrent() && this.#ended(error),
    };
    try {
      const grant = this.#grant as Grant;
      const load = OPEN[grant.kind] as (() => Promise<Open>) | undefined;
      if (!load) return this.#page.failed("media", new Error(`this page has no client for ${grant.kind}`));
      const open = await load();
      if (!isCurrent()) return;
      this.#opened += 1;
      // Grants may have come while its client was loaded.
      this.#session = open(this.#grant ?? grant, this.#may, port);
      this.#changed();
    } catch (error) {
      if (isCurrent()) this.#ended(error);
    }
  }

  #changed(): void {
    if (this.isOpen) this.#openSince ||= Date.now();
    else if (this.#openSince) {
      if (Date.now() - this.#openSince > GOOD_AFTER_MS) this.#failures = 0;
      this.#openSince = 0;
    }
    this.#page.changed();
  }

  #ended(error: unknown): void {
    this.#drop();
    this.#page.failed("media", error);
    const pause = Math.min(PAUSE_MS * 2 ** this.#failures, LONGEST_PAUSE_MS);
    this.#failures += 1;
    // Not everybody at once, when a server has failed.
    const ms = pause * (0.75 + Math.random() / 2);
    // What has failed again may have been the grant's fault, or that of its credentials for TURN.
    const isFresh = error instanceof Refusal || this.#failures > 1;
    this.#timer = setTimeout(() => (isFresh ? this.#renew() : this.#open()), ms);
  }

  async #renew(): Promise<void> {
    const epoch = this.#epoch;
    // Without one the newest that there is must do.
    const grant = await this.#page.renew().catch(() => null);
    // One that leads elsewhere comes to everybody, as `media:update`.
    if (epoch !== this.#epoch) return;
    if (grant && grant.kind === this.#grant?.kind && grant.generation === this.#grant.generation)
      this.#grant = grant;
    this.#open();
  }

  #drop(): void {
    clearTimeout(this.#timer);
    this.#epoch += 1;
    const session = this.#session;
    this.#session = null;
    session?.close();
    this.#changed();
  }
}

/** What a grant is for: with another key the media is made anew. `peer` and `owner` matter to the embedded SFU only. */
export function keyOf(grant: Grant, owner: string, peer: string): string {
  const { kind, generation } = grant;
  const place = {
    embedded: () => [owner, peer],
    janus: ({ url, room, id }: JanusGrant) => [url, room, id],
    livekit: ({ url, room, identity }: LivekitGrant) => [url, room, identity],
  };
  const of = place[kind as keyof typeof place] as ((grant: Grant) => string[]) | undefined;
  return JSON.stringify([kind, generation, ...(of?.(grant) ?? [])]);
}
