import type { LivekitGrant } from "@dais/sdk/protocol";
import {
  ConnectionError,
  ConnectionErrorReason,
  ConnectionState,
  DisconnectReason,
  Room,
  RoomEvent,
  Track,
} from "livekit-client";
import {
  type Kind,
  type May,
  type Open,
  type Port,
  type Received,
  Refusal,
  type Session,
  wanted,
} from "./session.ts";

const SOURCES = { audio: Track.Source.Microphone, video: Track.Source.Camera };
/** Events after which something else is received, or may be sent. */
const RECEIVED = [RoomEvent.TrackSubscribed, RoomEvent.TrackUnsubscribed] as const;
const SENT = [
  RoomEvent.ParticipantPermissionsChanged,
  RoomEvent.LocalTrackUnpublished,
  RoomEvent.Reconnected,
] as const;
/** After these the same grant would do no good. */
const FINAL: (DisconnectReason | undefined)[] = [
  DisconnectReason.PARTICIPANT_REMOVED,
  DisconnectReason.ROOM_DELETED,
  DisconnectReason.ROOM_CLOSED,
  DisconnectReason.DUPLICATE_IDENTITY,
];

/** A LiveKit room. What the server permits changes while it lasts, and the page follows. */
class Livekit implements Session {
  readonly #port: Port;
  readonly #room = new Room({ adaptiveStream: false, dynacast: false, stopLocalTrackOnUnpublish: false });
  #may: May;
  #wasConnected = false;
  #isClosed = false;
  #isFollowing = false;
  #isStale = false;

  constructor(grant: LivekitGrant, may: May, port: Port) {
    this.#port = port;
    this.#may = may;
    const room = this.#room;
    for (const event of RECEIVED) room.on(event, () => port.changed());
    for (const event of SENT) room.on(event, () => this.send());
    room.on(RoomEvent.ConnectionStateChanged, () => port.changed());
    room.on(RoomEvent.Disconnected, (reason) => {
      // The attempt to connect tells by itself.
      if (!this.#wasConnected) return;
      const error = `LiveKit ended the connection: ${DisconnectReason[reason ?? 0]}`;
      this.#end(FINAL.includes(reason) ? new Refusal(error) : new Error(error));
    });
    this.#start(grant);
  }

  /** The client has its own ways to a fresh token while it is connected. */
  update(_: LivekitGrant, may: May): void {
    this.#may = may;
    this.send();
  }

  /** Brings what is published to what is there to be sent, once more if that changes meanwhile. */
  async send(): Promise<void> {
    this.#isStale = true;
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    try {
      while (this.#isStale && !this.#isClosed && this.#room.state === ConnectionState.Connected) {
        this.#isStale = false;
        await this.#follow("audio");
        await this.#follow("video");
      }
    } catch (error) {
      if (!this.#isClosed) this.#port.failed("media", error);
    } finally {
      this.#isFollowing = false;
      this.#port.changed();
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#room.disconnect(false);
  }

  get isOpen(): boolean {
    return this.subscribe === "connected";
  }

  get publish(): string {
    return this.subscribe;
  }

  get subscribe(): string {
    const { state } = this.#room;
    if (state === ConnectionState.SignalReconnecting) return "connected";
    return state === ConnectionState.Reconnecting ? "disconnected" : state;
  }

  get received(): Received[] {
    return [...this.#room.remoteParticipants.values()].flatMap(({ identity, trackPublications }) =>
      [...trackPublications.values()].flatMap(({ track }) => {
        const receiver = track?.receiver;
        if (!track || !receiver) return [];
        const kind = track.kind as Track.Kind & Kind;
        return [{ from: { name: identity }, kind, track: track.mediaStreamTrack, receiver }];
      }),
    );
  }

  get senders(): RTCRtpSender[] {
    const publications = [...this.#room.localParticipant.trackPublications.values()];
    return publications.flatMap(({ track }) => track?.sender ?? []);
  }

  get speaking(): Iterable<string> {
    return this.#room.activeSpeakers.map(({ identity }) => identity);
  }

  async #start(grant: LivekitGrant): Promise<void> {
    const { iceServers, ...policy } = this.#port.configuration(grant);
    // Without servers of the grant's the room brings its own.
    const rtcConfig = iceServers?.length ? { iceServers, ...policy } : policy;
    try {
      await this.#room.connect(grant.url, grant.token, { rtcConfig, maxRetries: 0 });
      this.#wasConnected = true;
      await this.send();
    } catch (error) {
      const isRefused = error instanceof ConnectionError && error.reason === ConnectionErrorReason.NotAllowed;
      this.#end(isRefused ? new Refusal(error.message) : error);
    }
  }

  async #follow(kind: Kind): Promise<void> {
    const source = SOURCES[kind];
    const me = this.#room.localParticipant;
    const track = this.#isPermitted(source) ? wanted(this.#port.local, this.#may, kind) : null;
    const published = me.getTrackPublication(source)?.track;
    if (published?.mediaStreamTrack === (track ?? undefined)) return;
    if (published) await me.unpublishTrack(published, false);
    // Packets keep coming in silence, so that silence can be told from loss.
    if (track) await me.publishTrack(track, { source, dtx: false, simulcast: false });
  }

  #isPermitted(source: Track.Source): boolean {
    const { canPublish = false, canPublishSources = [] } = this.#room.localParticipant.permissions ?? {};
    const sources = canPublishSources.map((each) => Track.sourceFromProto(each));
    return canPublish && (sources.length === 0 || sources.includes(source));
  }

  #end(error: unknown): void {
    if (this.#isClosed) return;
    this.close();
    this.#port.ended(error);
  }
}

export const open: Open<LivekitGrant> = (grant, may, port) => new Livekit(grant, may, port);
