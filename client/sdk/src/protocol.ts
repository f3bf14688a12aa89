/**
 * The wire protocol of Dais over Socket.IO. Ids are strings of 1–128 bytes without control characters; times
 * are Unix milliseconds by Redis's clock; names ending in `Ms` are milliseconds.
 */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Role = "host" | "guest" | "monitor";

export type ErrorCode =
  | "BAD_REQUEST"
  | "UNAUTHENTICATED"
  | "FORBIDDEN"
  | "ROOM_NOT_FOUND"
  | "ROOM_CLOSED"
  | "ROOM_FULL"
  | "ROOM_LOCKED"
  | "BANNED"
  | "WRONG_INSTANCE"
  | "NOT_IN_ROOM"
  | "SEAT_TAKEN"
  | "SEAT_LOCKED"
  | "NO_FREE_SEAT"
  | "NOT_ON_SEAT"
  | "STALE_SESSION"
  | "VERSION_CONFLICT"
  | "RATE_LIMITED"
  | "MESSAGE_REJECTED"
  | "PAYLOAD_TOO_LARGE"
  | "TIMEOUT"
  | "DRAINING"
  | "LEASE_LOST"
  | "NOT_SUPPORTED"
  | "STORE_UNAVAILABLE"
  | "LEDGER_UNAVAILABLE"
  | "MEDIA_UNAVAILABLE"
  | "INTERNAL";

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
}

export interface Seat {
  seat: number;
  state: "idle" | "locked" | "pending_publish" | "publishing";
  user?: string;
  micSession?: string;
  muted?: boolean;
  deadline?: number;
}

export interface Snapshot {
  app: string;
  id: string;
  status: "creating" | "active" | "closing" | "closed";
  creator?: string;
  hosts: string[];
  locked: boolean;
  owner: { instance: string; token: number };
  version: Versions;
  settings: Settings;
  guests: Record<string, GuestState>;
  seats: Seat[];
  /** At most 200; `peersCursor` then says where the rest begins. */
  peers: Peer[];
  peersCursor?: string;
  peerCount: number;
  call?: Json;
}

export interface Track {
  user: string;
  peer: string;
  kind: "audio" | "video";
}

export type Grant = EmbeddedGrant | ExternalGrant;

interface GrantBase {
  /** Grows when the room's media object is made anew; media connections of an older one are worthless. */
  generation: number;
  iceServers: { urls: string | string[]; username?: string; credential?: string }[];
}

export interface EmbeddedGrant extends GrantBase {
  kind: "embedded";
  /** What this peer can receive. */
  tracks: Track[];
}

export interface ExternalGrant extends GrantBase {
  kind: "janus" | "livekit" | "trtc" | "agora" | "generic";
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
  "room:leave": Request<InRoom>;
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
  "auth:refresh": Request<{ token: string }>;
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
}

/** A change of one counter of the room, from the version before to the one after. */
interface StateEvent {
  room: string;
  of: keyof Versions;
  from: number;
  to: number;
}

/** What the server sends, by event name. */
export interface Events {
  "room:update": StateEvent & {
    settings?: MergePatch<Settings>;
    guests?: MergePatch<Record<string, GuestState>>;
    by?: string;
  };
  "room:presence": StateEvent & {
    joined: Peer[];
    left: { user: string; reason: "left" | "stale_left" }[];
    peerCount: number;
  };
  "mic:update": StateEvent & { seats: Seat[] };
  /** For watched rooms, what members get as `room:update` and `room:presence`, or a whole new `snapshot`. */
  "card:update": StateEvent & Partial<Pick<Snapshot, "settings" | "guests">> & { snapshot?: Snapshot };
  /** For who listed rooms, at most once a second. */
  "rooms:update": { added: RoomCard[]; changed: RoomCard[]; removed: string[] };
  "room:moved": {
    room: string;
    reason: "drain" | "lease_lost" | "rebalance";
    redirectInstance?: string;
    redirectUrl?: string;
    afterMs: number;
  };
  "room:closed": { room: string; reason: string };
  "room:kicked": { room: string; reason: string };
  "media:update": { room: string; media: Grant };
  "session:evicted": { room?: string; reason: "kicked" | "replaced" | "signed_out" | "token_expired" };
  "auth:expiring": { expiresInMs: number };
}
