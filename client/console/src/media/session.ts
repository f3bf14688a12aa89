import type { Grant, Requests, Track } from "@dais/sdk/protocol";

export type Kind = Track["kind"];
export type May = Record<Kind, boolean>;

/** Something that is received. */
export interface Received {
  /** Who sends it: a user, or their name at an external media server. `null`: a mix of everybody. */
  from: { user: string } | { name: string } | null;
  kind: Kind;
  track: MediaStreamTrack;
  receiver: RTCRtpReceiver;
}

/** What a session has of the page. */
export interface Port {
  /** What is to be sent; {@link Session.send} says that it changed. */
  readonly local: MediaStream;
  /** How connections are made with a grant. */
  configuration(grant: Grant): RTCConfiguration;
  /** Asks the coordinator. */
  signal<Name extends "media:publish" | "media:subscribe">(
    name: Name,
    sdp: string,
  ): Promise<Requests[Name]["answer"]>;
  /** States, or what is received, are others now. */
  changed(): void;
  /** Something did not work, and the session goes on. */
  failed(of: string, error: unknown): void;
  /** The session is of no more use; a {@link Refusal} if the media server will have nothing of its grant. */
  ended(error: unknown): void;
}

/** The connections to one room of one media server, from when they are opened until they end or are closed. */
export interface Session {
  /** A fresh grant for the same, and what may be sent by now. */
  update(grant: Grant, may: May): void;
  /** Sends what there is to be sent by now. */
  send(): void;
  close(): void;
  /** The media server has let the page in, and each connection that there has to be is there. */
  readonly isOpen: boolean;
  /** States as `RTCPeerConnection` has them, or `none`. */
  readonly publish: string;
  readonly subscribe: string;
  readonly received: Received[];
  readonly senders: RTCRtpSender[];
  /** Names at the media server of who speaks, where it tells its clients. */
  readonly speaking: Iterable<string>;
}

export type Open<Of extends Grant = Grant> = (grant: Of, may: May, port: Port) => Session;

/** The media server said no. */
export class Refusal extends Error {}

/** The page's track of a kind that may be sent. */
export function wanted(local: MediaStream, may: May, kind: Kind): MediaStreamTrack | null {
  return (may[kind] && local.getTracks().find((track) => track.kind === kind)) || null;
}
