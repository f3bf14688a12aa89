import type { JanusGrant } from "@dais/sdk/protocol";
import { type May, type Port, type Received, Refusal, type Session, wanted } from "../session.ts";
import { Leg } from "./leg.ts";
import { type Handle, type Json, Link } from "./link.ts";
import { Turns } from "./turns.ts";

/** One connection to a Janus AudioBridge: the page's sound goes out, the mix of all others comes in. */
export class AudioBridge implements Session {
  readonly #grant: JanusGrant;
  readonly #port: Port;
  readonly #turns: Turns;
  readonly #talking = new Set<string>();
  #may: May;
  #link: Link | null = null;
  #handle: Handle | null = null;
  #leg: Leg | null = null;
  #muted = true;
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
    this.#turns.take(this.#follow);
  }

  close(): void {
    this.#isClosed = true;
    this.#turns.end();
    this.#leg?.close();
    this.#link?.close();
  }

  get isOpen(): boolean {
    return this.publish === "connected";
  }

  get publish(): string {
    return this.#leg?.connection.connectionState ?? "none";
  }

  get subscribe(): string {
    return this.publish;
  }

  get received(): Received[] {
    const receivers = this.#leg?.connection.getReceivers() ?? [];
    return receivers.map((receiver) => ({ from: null, kind: "audio", track: receiver.track, receiver }));
  }

  get senders(): RTCRtpSender[] {
    return this.#leg?.connection.getSenders() ?? [];
  }

  get speaking(): Iterable<string> {
    return this.#talking;
  }

  async #start(): Promise<void> {
    const { url, apiToken, plugin, opaqueId, room, id, token } = this.#grant;
    const link = await Link.open(url, apiToken, (error) => this.#end(error));
    this.#link = link;
    if (this.#isClosed) return link.close();
    const handle = await link.attach(plugin, opaqueId);
    this.#handle = handle;
    handle.onsaid = ({ data }) => this.#hear(data);
    // Muted until there is something to be heard.
    await handle.ask({ request: "join", room, id, token, muted: true });
    if (this.#isClosed) return;
    const leg = new Leg(
      handle,
      this.#port.configuration(this.#grant),
      () => this.#port.changed(),
      (error) => this.#end(error),
    );
    this.#leg = leg;
    const track = wanted(this.#port.local, this.#may, "audio");
    const { sender } = leg.connection.addTransceiver("audio", { direction: "sendrecv" });
    if (track) await sender.replaceTrack(track);
    this.#muted = !track;
    await leg.offer({ request: "configure", muted: this.#muted });
    this.#port.changed();
  }

  /** Brings what is sent to what is there to be sent. */
  readonly #follow = async (): Promise<void> => {
    const [sender] = this.senders;
    const track = wanted(this.#port.local, this.#may, "audio");
    if (sender && sender.track !== track) await sender.replaceTrack(track);
    if (!this.#handle || this.#muted === !track) return;
    await this.#handle.ask({ request: "configure", muted: !track });
    this.#muted = !track;
  };

  #hear(data: Json): void {
    const { audiobridge, id, kicked } = data;
    if (audiobridge === "talking") this.#talking.add(`${id}`);
    else if (audiobridge === "stopped-talking") this.#talking.delete(`${id}`);
    else if (audiobridge === "destroyed") this.#end(new Refusal("Janus closed the room"));
    else if (kicked === this.#grant.id) this.#end(new Refusal("Janus was told to put us out"));
    if (data.leaving) this.#talking.delete(`${data.leaving}`);
    for (const { id, muted } of (data.participants ?? []) as { id: string; muted: boolean }[]) {
      if (muted) this.#talking.delete(id);
    }
  }

  #end(error: unknown): void {
    if (this.#isClosed) return;
    this.close();
    this.#port.ended(error);
  }
}
