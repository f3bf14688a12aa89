/**
 * The wire protocol of Dais over Socket.IO. Ids are strings of 1–128 bytes without control characters; times
 * are Unix milliseconds by Redis's clock; names ending in `Ms` are milliseconds.
 */

import type { ERRORS } from "./errors.generated.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Role = "host" | "guest" | "monitor";

export type ErrorCode = keyof typeof ERRORS;

export interface ApiError {
  code: ErrorCode;
  message: string;
  retryable: boolean;
  requestId: string;
  retryAfterMs?: number;
  redirectInstance?: string;
  redirectUrl?: string;
  /** Fence token of the owner that a redirect names. */
  token?: number;
}

export type Ack<Answer = object> = ({ ok: true } & Answer) | { ok: false; error: ApiError };

/** Sent in the handshake. A refusal is a `connect_error` whose `message` is an {@link ApiError} as JSON text. */
export interface Auth {
  token: string;
  /** The same device joining again replaces its earlier peer. */
  device?: string;
  platform?: string;
  protocol?: 1;
}

export interface Settings {
  autoTransitionEnabled: boolean;
  vad: { threshold: number; prefixPaddingMs: number; silenceDurationMs: number };
  noiseReduction: "off" | "near_field" | "far_field";
  realtimeModelVersion: string;
  custom: JsonObject;
}

export interface GuestState {
  handRaised?: boolean;
  /** Whether this guest may publish sound; true if never set. Hosts always may. */
  micAllowed?: boolean;
  /** The same for pictures. */
  videoAllowed?: boolean;
  stage?: boolean;
  custom?: JsonObject;
}

export interface Versions {
  settings: number;
  cell: number;
}

export interface Peer {
  user: string;
  name?: string;
  avatar?: string;
  role: Role;
  attributes?: JsonObject;
  /** How many devices the user is here with. */
  devices: number;
  joinedAt: number;
  /** What the user's devices are called at an external media server. */
  media?: string[];
}

export interface Seat {
  /** Its number, from 1 on. */
  seat: number;
  state: "idle" | "locked" | "pending_publish" | "publishing";
  user?: string;
  /** This use of the seat, from `mic:up` to its end; a move keeps it. */
  micSession?: string;
  /** Whether its user should be silent; to keep to it is the client's part. */
  muted?: boolean;
  /** When a pending seat is freed unless sound of its user arrives. */
  deadline?: number;
}

/** A request for a seat, or an invitation to one. */
export interface Asked {
  /** Which seat, where one was named. */
  seat?: number;
  at: number;
}

/** The newest call in a room, whatever became of it. */
export interface Call {
  id: string;
  state: "started" | "accepted" | "finished" | "disconnected" | "missed" | "declined";
  from: string;
  to: string[];
  acceptedBy?: string;
  declinedBy?: string[];
  /** Since when it is in this state. */
  at: number;
  /** When it is missed, as long as it rings. */
  deadline?: number;
  reason?: "cancelled" | "timeout" | "party_left" | "room_closed";
}

export interface Snapshot {
  app: string;
  id: string;
  status: "creating" | "active" | "closing" | "closed";
  /** Who made the room; no host can kick or demote them. */
  creator?: string;
  hosts: string[];
  /** Whether guests are kept out. */
  locked: boolean;
  owner: { instance: string; token: number };
  version: Versions;
  settings: Settings;
  guests: Record<string, GuestState>;
  seats: Seat[];
  /** Who asks for a seat, by user. */
  requests: Record<string, Asked>;
  /** Who was invited to one, by user. */
  invites: Record<string, Asked>;
  /** At most 200; `peersCursor` then says where the rest begins. */
  peers: Peer[];
  peersCursor?: string;
  peerCount: number;
  call?: Call;
}

export interface Track {
  user: string;
  peer: string;
  kind: "audio" | "video";
}

/** A STUN or TURN server, as `RTCPeerConnection` takes it. */
export interface IceServer {
  urls: string[];
  username?: string;
  credential?: string;
}

export type Grant = EmbeddedGrant | JanusGrant | LivekitGrant | TrtcGrant | AgoraGrant | GenericGrant;

interface GrantBase {
  /**
   * Grows when the room's media object is made anew; media connections of an older one are worthless. A grant of the
   * same generation leaves them as they are: it is for the next connection.
   */
  generation: number;
  iceServers: IceServer[];
}

export interface EmbeddedGrant extends GrantBase {
  kind: "embedded";
  /** What this peer can receive. */
  tracks: Track[];
}

/** The Janus API over WebSocket (subprotocol `janus-protocol`). */
export interface JanusGrant extends GrantBase {
  kind: "janus";
  url: string;
  plugin: "audiobridge" | "videoroom";
  /** Room, participant and token of the plugin's `join`. */
  room: string;
  id: string;
  token: string;
  /** `token` of the Janus API itself, where it asks for one. */
  apiToken?: string;
  /** `opaque_id` of the handle that joins: ties what the server reports to the participant. */
  opaqueId: string;
}

export interface LivekitGrant extends GrantBase {
  kind: "livekit";
  url: string;
  room: string;
  identity: string;
  /** The access token. */
  token: string;
}

export interface TrtcGrant extends GrantBase {
  kind: "trtc";
  sdkAppId: number;
  strRoomId: string;
  userId: string;
  userSig: string;
  privateMapKey?: string;
}

export interface AgoraGrant extends GrantBase {
  kind: "agora";
  appId: string;
  channel: string;
  account: string;
  token: string;
}

/** A server attached by signed HTTP. */
export interface GenericGrant extends GrantBase {
  kind: "generic";
  room: string;
  id: string;
  /** What that server says its clients need. */
  data: Json;
}

/** RFC 7396: objects are merged, `null` removes, anything else replaces. */
export type MergePatch<T> = T extends Json[]
  ? T
  : T extends object
    ? { [K in keyof T]?: MergePatch<T[K]> | null }
    : T;

export interface JoinAnswer {
  /** `resume` lets a later `room:join` take over this very peer; monitors, who are no peers, get none. */
  self: { peer: string; user: string; role: Role; resume?: string };
  room: Snapshot;
  /** `null`: there is none, or it follows as `media:update`. */
  media: Grant | null;
  messages: { lastSeq: number };
  serverTime: number;
  /** How often the server notes that this peer is here; an app may ask for it with `room:heartbeat`. */
  heartbeatMs: number;
}

/** Where a change of settings or guest states left the room. */
export interface Updated {
  version: Pick<Versions, "settings">;
}

/** Where a command left the room, with the seat or call that it was about. */
export interface Commanded {
  version: Pick<Versions, "cell">;
  seat?: Seat;
  call?: Call;
}

export interface RoomCard {
  id: string;
  status: Snapshot["status"];
  peerCount: number;
  version: Versions;
}

interface Request<Body, Answer = object> {
  /** `id` is the idempotency key, at most 64 characters. */
  body: Body & { id?: string };
  answer: Answer;
}
type InRoom<More = object> = { room: string } & More;
/** A command for the room's cell, repeatable under its `id`. */
type Command<More = object> = Request<InRoom<More>, Commanded>;

/** Requests of this version, by event name. */
export interface Requests {
  "room:join": Request<
    InRoom<{
      role?: Role;
      attributes?: JsonObject;
      since?: number;
      resume?: string;
      /** Redirects followed in a row, 0 to 2. */
      hops?: number;
    }>,
    JoinAnswer
  >;
  "room:leave": Request<InRoom, Commanded>;
  "room:heartbeat": Request<InRoom, { serverTime: number }>;
  /** Pages the peers beyond those of a snapshot, from its `peersCursor` on. */
  "room:peers": Request<InRoom<{ cursor?: string; limit?: number }>, { peers: Peer[]; peersCursor?: string }>;
  "room:update": Request<InRoom<{ settings: MergePatch<Settings>; ifVersion?: number }>, Updated>;
  "guest:update": Request<
    InRoom<{ user?: string; state: MergePatch<GuestState>; ifVersion?: number }>,
    Updated
  >;
  "room:watch": Request<
    { rooms: string[] },
    { rooms: (Snapshot | { id: string; error: "ROOM_NOT_FOUND" })[] }
  >;
  "room:unwatch": Request<{ rooms: string[] }>;
  "rooms:list": Request<
    { cursor?: string; limit?: number; prefix?: string; status?: Snapshot["status"] },
    { rooms: RoomCard[]; cursor: string | null }
  >;
  "auth:refresh": Request<{ token: string }, { expiresAt: number }>;
  "peer:update": Command<{ attributes: MergePatch<JsonObject> }>;
  /** Bans too: for good, or for `banSeconds`. */
  "room:kick": Command<{ user: string; reason?: string; banSeconds?: number }>;
  "room:unban": Command<{ user: string }>;
  "room:role": Command<{ user: string; role: "host" | "guest" }>;
  "room:lock": Command<{ locked: boolean }>;
  "room:close": Command<{ reason?: string }>;
  /** Takes a seat, the first free one where none is named. Only a host may name another `user`, here and below. */
  "mic:up": Command<{ seat?: number; user?: string }>;
  "mic:down": Command<{ user?: string; micSession?: string }>;
  "mic:move": Command<{ seat: number; user?: string }>;
  /** Says that sound flows, where the media server does not say so itself. */
  "mic:confirm": Command<{ micSession: string }>;
  /** With `force` whoever sits there is taken down. */
  "mic:lock": Command<{ seat: number; locked: boolean; force?: boolean }>;
  "mic:mute": Command<{ user?: string; muted: boolean }>;
  "mic:muteAll": Command<{ muted: boolean; except?: string[] }>;
  "mic:seats": Command<{ count: number }>;
  "mic:request": Command<{ seat?: number; withdraw?: boolean }>;
  "mic:invite": Command<{ user: string; seat?: number }>;
  /** Answers the request of `user`, or without one the invitation of oneself. */
  "mic:respond": Command<{ user?: string; accept: boolean }>;
  "call:invite": Command<{ to: string[] }>;
  "call:accept": Command<{ call?: string }>;
  "call:decline": Command<{ call?: string }>;
  "call:hangup": Command<{ call?: string }>;
  "media:publish": Request<InRoom<{ sdp: string }>, { sdp: string }>;
  "media:subscribe": Request<
    InRoom<{ sdp: string }>,
    {
      sdp: string;
      tracks: (Track & { mid: string })[];
      /** Tracks for which the offer had no free section: add transceivers and offer again. */
      missing: Track[];
    }
  >;
  /** A fresh grant for an external media server that refuses the one at hand. */
  "media:grant": Request<InRoom, { media: Grant }>;
}

/** A change of one counter of the room, from the version before to the one after. */
interface StateEvent {
  room: string;
  of: keyof Versions;
  from: number;
  to: number;
}

/**
 * What changed in a cell. A change of several parts comes as one body under the name of each of them: a client
 * that follows the versions takes the first and drops the rest.
 */
export interface CellChange {
  joined?: Peer[];
  left?: { user: string; reason: LeaveReason }[];
  peerCount?: number;
  /** Those that changed, or with `seatCount` all. */
  seats?: Seat[];
  seatCount?: number;
  /** Users of whom something else changed than whether they are here. */
  peers?: Peer[];
  hosts?: string[];
  locked?: boolean;
  /** `null`: answered, withdrawn or void. */
  requests?: Record<string, Asked | null>;
  invites?: Record<string, Asked | null>;
  call?: Call;
  status?: Snapshot["status"];
}

export type LeaveReason = "left" | "stale_left" | "instance_lost" | "kicked" | "closed_left";

/** What changed in settings and guest states, as merge patches. */
export interface SettingsChange {
  settings?: MergePatch<Settings>;
  guests?: MergePatch<Record<string, GuestState>>;
  by?: string;
}

type With<Change, Part extends keyof Change> = StateEvent & Change & Required<Pick<Change, Part>>;

/** What the server sends, by event name. */
export interface Events {
  "room:update": StateEvent & SettingsChange & CellChange;
  "room:presence": With<CellChange, "joined" | "left" | "peerCount">;
  "mic:update": With<CellChange, "seats">;
  "call:update": With<CellChange, "call">;
  /** For watched rooms, all that members get, or a whole new `snapshot`. */
  "card:update": StateEvent & SettingsChange & CellChange & { snapshot?: Snapshot };
  /** For who listed rooms, at most once a second. */
  "rooms:update": { added: RoomCard[]; changed: RoomCard[]; removed: string[] };
  "room:moved": {
    room: string;
    reason: "drain" | "lease_lost" | "rebalance";
    redirectInstance?: string;
    redirectUrl?: string;
    afterMs: number;
  };
  "room:closed": { room: string; reason: string | null };
  /** To all sessions of the user, in the room or not. */
  "room:kicked": { room: string; reason: string | null };
  /** To all sessions of who is called, in the room or not. */
  "call:incoming": { room: string; call: Call };
  /** The call was answered, or ended, without this session. */
  "call:ended_elsewhere": { room: string; call: Call };
  "media:update": { room: string; media: Grant };
  /** How loud people are, from 0 (silence) to 1; lossy, and only where the media server says so. */
  "room:speakers": { room: string; levels: { user: string; level: number }[] };
  "session:evicted": { room?: string; reason: "kicked" | "replaced" | "signed_out" | "token_expired" };
  "auth:expiring": { expiresInMs: number };
}
