// One participant: from what mediasoup reports of transports and producers to what Dais wants to know of people.

import { randomUUID } from "node:crypto";
import type { types } from "mediasoup";
import { AudioGate } from "./audio.ts";
import type { Participant, Permissions } from "./engine.ts";
import type { Fact, Outbox } from "./events.ts";
import { Refusal } from "./http.ts";

/** Transports of one client: one to send, one to receive, and both again while it reconnects. */
const MOST_TRANSPORTS = 4;
/** Producers of one client: a microphone, a camera and a screen, and again. */
const MOST_PRODUCERS = 6;
/** A client that cannot be reached for so many seconds is gone. */
const CONSENT_TIMEOUT = 10;

export interface GuestOptions {
  router: types.Router;
  observer: types.AudioLevelObserver;
  webRtcServer: types.WebRtcServer;
  outbox: Outbox;
  routerName: string;
  participant: string;
  token: string;
  permissions: Permissions;
}

export class Guest {
  readonly routerName: string;
  readonly participant: string;
  readonly token: string;
  readonly #options: GuestOptions;
  #permissions: Permissions;
  #hasLeft = false;
  readonly #transports = new Map<string, types.WebRtcTransport>();
  readonly #connected = new Set<string>();
  readonly #producers = new Map<string, types.Producer>();
  readonly #consumers = new Map<string, types.Consumer>();
  readonly #gate = new AudioGate((open, reason) =>
    this.#tell(open ? "audio_started" : "audio_stopped", reason),
  );
  /** From the first transport that connects to the end of the last. */
  #session: string | undefined;
  #sequence = 0;

  constructor(options: GuestOptions) {
    this.#options = options;
    this.routerName = options.routerName;
    this.participant = options.participant;
    this.token = options.token;
    this.#permissions = options.permissions;
  }

  /** How Dais sees them; nothing while they are not connected. */
  seen(): Participant | undefined {
    if (this.#session === undefined) return undefined;
    return {
      participant: this.participant,
      incarnation: this.#session,
      audible: this.#gate.isOpen,
      mayPublishAudio: this.#permissions.publishAudio,
    };
  }

  producers(): types.Producer[] {
    return [...this.#producers.values()];
  }

  get rtpCapabilities(): types.RtpCapabilities {
    return this.#options.router.rtpCapabilities;
  }

  async createTransport(): Promise<types.WebRtcTransport> {
    if (this.#transports.size >= MOST_TRANSPORTS) throw new Refusal(429, { error: "too many transports" });
    const { router, webRtcServer } = this.#options;
    const transport = await router.createWebRtcTransport({
      webRtcServer,
      iceConsentTimeout: CONSENT_TIMEOUT,
    });
    // They may have been removed while mediasoup was at work.
    if (this.#hasLeft) {
      transport.close();
      throw new Refusal(403);
    }
    this.#transports.set(transport.id, transport);
    transport.on("dtlsstatechange", (state) => {
      if (state === "connected") this.#came(transport.id);
      if (state === "closed" || state === "failed") transport.close();
    });
    transport.on("icestatechange", (state) => {
      if (state === "disconnected" || state === "closed") transport.close();
    });
    transport.observer.on("close", () => {
      this.#transports.delete(transport.id);
      this.#connected.delete(transport.id);
      if (this.#connected.size === 0) this.#went("disconnected");
    });
    return transport;
  }

  transport(id: string): types.WebRtcTransport {
    const transport = this.#transports.get(id);
    if (!transport) throw new Refusal(404);
    return transport;
  }

  async produce(transport: types.WebRtcTransport, kind: types.MediaKind, rtpParameters: types.RtpParameters) {
    if (!this.#mayPublish(kind)) throw new Refusal(403, { error: `may not publish ${kind}` });
    if (this.#producers.size >= MOST_PRODUCERS) throw new Refusal(429, { error: "too many producers" });
    const appData = { participant: this.participant };
    const producer = await transport.produce({ kind, rtpParameters, appData });
    this.#producers.set(producer.id, producer);
    producer.observer.on("close", () => {
      this.#producers.delete(producer.id);
      this.#listen("closed");
    });
    if (kind === "audio") {
      producer.observer.on("score", () => this.#listen("no packets"));
      producer.observer.on("pause", () => this.#listen("muted"));
      producer.observer.on("resume", () => this.#listen());
      // Packets may have come before anybody listened.
      this.#listen();
      await this.#options.observer.addProducer({ producerId: producer.id });
    }
    // What was allowed a moment ago may not be any more.
    await this.permit(this.#permissions);
    return producer;
  }

  /**
   * Compares what arrives with what Dais was told. mediasoup scores a stream by its losses: above 0 packets arrive, 0
   * means that for some seconds none did. A short gap is forgiven; a mute or an end is not one.
   */
  #listen(reason?: string): void {
    const audio = this.producers().filter((producer) => producer.kind === "audio" && !producer.paused);
    if (audio.some((producer) => producer.score.some(({ score }) => score > 0))) this.#gate.open();
    else if (audio.length > 0) this.#gate.fade(reason ?? "no packets");
    else this.#gate.close(reason);
  }

  async consume(
    transport: types.WebRtcTransport,
    producerId: string,
    rtpCapabilities: types.RtpCapabilities,
  ) {
    if (!this.#permissions.subscribe) throw new Refusal(403, { error: "may not subscribe" });
    if (!this.#options.router.canConsume({ producerId, rtpCapabilities })) throw new Refusal(404);
    // Paused, until the client is ready: it would miss the key frame that a video begins with.
    const consumer = await transport.consume({ producerId, rtpCapabilities, paused: true });
    this.#consumers.set(consumer.id, consumer);
    consumer.observer.on("close", () => this.#consumers.delete(consumer.id));
    if (!this.#permissions.subscribe) consumer.close();
    return consumer;
  }

  async resume(consumerId: string): Promise<void> {
    const consumer = this.#consumers.get(consumerId);
    if (!consumer) throw new Refusal(404);
    await consumer.resume();
  }

  /** Muting somebody is pausing their producers: the tracks stay, and carry nothing. */
  async permit(permissions: Permissions): Promise<void> {
    this.#permissions = permissions;
    for (const producer of this.producers()) {
      if (this.#mayPublish(producer.kind)) await producer.resume();
      else await producer.pause();
    }
    if (permissions.subscribe) return;
    for (const consumer of [...this.#consumers.values()]) consumer.close();
  }

  /** Ends their connections. mediasoup closes what belongs to a transport with it. */
  leave(reason: string): void {
    this.#hasLeft = true;
    this.#went(reason);
    for (const transport of [...this.#transports.values()]) transport.close();
  }

  #mayPublish(kind: types.MediaKind): boolean {
    return kind === "audio" ? this.#permissions.publishAudio : this.#permissions.publishVideo;
  }

  #came(transport: string): void {
    this.#connected.add(transport);
    if (this.#session !== undefined) return;
    this.#session = randomUUID();
    this.#sequence = 0;
    this.#tell("participant_joined");
  }

  /** Audio that has not stopped by now stops with them. */
  #went(reason: string): void {
    if (this.#session === undefined) return;
    this.#gate.close(reason);
    this.#tell("room_exited", reason);
    this.#session = undefined;
  }

  #tell(type: Fact["type"], reason?: string): void {
    if (this.#session === undefined) return;
    this.#options.outbox.tell({
      type,
      router: this.routerName,
      participant: this.participant,
      session: this.#session,
      sequence: ++this.#sequence,
      ...(reason === undefined ? {} : { reason }),
    });
  }
}
