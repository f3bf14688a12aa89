import type {
  Ack,
  ApiError,
  Asked,
  CellChange,
  ErrorCode,
  Events,
  Grant,
  JoinAnswer,
  Requests,
  Role,
  SettingsChange,
  Snapshot,
  Versions,
} from "@dais/sdk/protocol";
import type { Socket } from "socket.io-client";
import { merge } from "./patch.ts";
import { connect, HOME } from "./server.ts";

const MAX_HOPS = 2;
const REQUEST_TIMEOUT_MS = 8000;
const FAILURES_BEFORE_MOVING = 2;
const EVENTS_KEPT = 50;
/** What says why may come after what says that. */
const REASON_WAIT_MS = 500;

export interface Wish {
  user: string;
  room: string;
  role: Role;
}

export interface RoomState {
  phase: "idle" | "connecting" | "joining" | "joined" | "reconnecting" | "ended";
  url: string;
  /** Redirects followed in a row, and in all. */
  hops: number;
  redirects: number;
  joins: number;
  self: JoinAnswer["self"] | null;
  room: Snapshot | null;
  grant: Grant | null;
  /** What was not done, or how the stay ended; with a code where the server gave one. */
  error: { of: string; code?: ErrorCode; message: string } | null;
  log: { at: number; name: string; text: string }[];
}

export class Refused extends Error {
  constructor(readonly error: ApiError) {
    super(`${error.code}: ${error.message}`);
  }
}

type Change = { of: keyof Versions; from: number; to: number } & SettingsChange & CellChange;

/** Words for how the server ends a stay. */
const ENDINGS = {
  "room:closed": "the room was closed",
  "room:kicked": "a host sent you out",
  "session:evicted": "this session was ended",
};

/** One room on one instance at a time, wherever its owner is. */
export class Room {
  readonly state: RoomState = {
    phase: "idle",
    url: HOME,
    hops: 0,
    redirects: 0,
    joins: 0,
    self: null,
    room: null,
    grant: null,
    error: null,
    log: [],
  };
  readonly #wish: Wish;
  #token: string;
  readonly #others: string[];
  readonly #renew: () => Promise<string | null>;
  readonly #changed: (joined: boolean) => void;
  readonly #heard: (levels: Events["room:speakers"]["levels"]) => void;
  #socket: Socket | null = null;
  #timer = 0;
  #resyncing = false;

  /**
   * `others` are base URLs to turn to when an instance cannot be reached. `changed` is told whether there may be another
   * grant, `heard` who is how loud.
   */
  constructor(
    wish: Wish,
    token: string,
    others: string[],
    renew: () => Promise<string | null>,
    changed: (joined: boolean) => void,
    heard: (levels: Events["room:speakers"]["levels"]) => void,
  ) {
    this.#wish = wish;
    this.#token = token;
    this.#others = [HOME, ...others];
    this.#renew = renew;
    this.#changed = changed;
    this.#heard = heard;
  }

  enter(url = HOME, hops = 0): void {
    clearTimeout(this.#timer);
    this.#disconnect();
    this.#resyncing = false;
    Object.assign(this.state, { url, hops, phase: this.state.room ? "reconnecting" : "connecting" });
    const auth = () => ({
      token: this.#token,
      device: deviceOf(this.#wish),
      platform: "web",
      protocol: 1 as const,
    });
    const socket = connect(url, auth);
    this.#socket = socket;
    this.#listen(socket);
    this.#changed(false);
  }

  async request<Name extends keyof Requests>(
    name: Name,
    body: Requests[Name]["body"],
  ): Promise<Requests[Name]["answer"]> {
    const socket = this.#socket;
    if (!socket?.connected) throw new Error("not connected");
    const ack: Ack<Requests[Name]["answer"]> = await socket
      .timeout(REQUEST_TIMEOUT_MS)
      .emitWithAck(name, body);
    if (!ack.ok) throw new Refused(ack.error);
    if (this.state.error?.of === name) this.state.error = null;
    return ack;
  }

  /** Asks for something of this room, and shows why if it is not done. */
  async ask<Name extends keyof Requests>(
    name: Name,
    body: Omit<Requests[Name]["body"], "room">,
  ): Promise<Requests[Name]["answer"] | null> {
    this.state.error = null;
    try {
      return await this.request(name, { ...body, room: this.#wish.room } as Requests[Name]["body"]);
    } catch (error) {
      // A stay that has ended says so already.
      if (this.#socket) this.fail(name, error);
      return null;
    } finally {
      this.#changed(false);
    }
  }

  async leave(): Promise<void> {
    const { room } = this.#wish;
    await this.request("room:leave", { room }).catch((error) => this.note("room:leave", String(error)));
    this.#end();
    this.state.phase = "idle";
    this.#changed(false);
  }

  fail(of: string, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.state.error =
      error instanceof Refused
        ? { of, code: error.error.code, message: error.error.message }
        : { of, message };
    this.note(of, message);
    this.#changed(false);
  }

  note(name: string, text: string): void {
    this.state.log.unshift({ at: Date.now(), name, text });
    this.state.log.length = Math.min(this.state.log.length, EVENTS_KEPT);
  }

  #listen(socket: Socket): void {
    let failures = 0;
    socket.on("connect", () => {
      failures = 0;
      this.#join(socket);
    });
    socket.on("disconnect", (reason) => {
      if (socket !== this.#socket) return;
      this.note("disconnect", reason);
      this.state.phase = "reconnecting";
      if (reason === "io server disconnect") this.#again(500);
      this.#changed(false);
    });
    socket.on("connect_error", (error) => {
      if (socket !== this.#socket) return;
      const refusal = refusalOf(error);
      this.note("connect_error", refusal ? `${refusal.code}: ${refusal.message}` : error.message);
      if (refusal?.retryable) {
        this.#again(refusal.retryAfterMs ?? 1000);
      } else if (refusal) {
        this.#finish("connect", new Refused(refusal));
      } else if (++failures >= FAILURES_BEFORE_MOVING) {
        this.enter(this.#elsewhere());
      }
      this.#changed(false);
    });
    socket.onAny((name: keyof Events, body) => {
      if (socket !== this.#socket) return;
      if (name === "room:speakers") {
        if (body.room === this.#wish.room) this.#heard(body.levels);
        return;
      }
      this.note(name, JSON.stringify(body, hideSecrets));
      this.#receive(name, body);
      this.#changed(false);
    });
  }

  async #join(socket: Socket): Promise<void> {
    if (socket !== this.#socket) return;
    this.state.phase = this.state.room ? "reconnecting" : "joining";
    this.#changed(false);
    const { room, role } = this.#wish;
    const { hops } = this.state;
    try {
      // Loaded anew there is no secret: what this page sends to the media server goes on only under its own name.
      const resume = this.state.self?.resume;
      const answer = await this.request("room:join", { room, role, hops, ...(resume && { resume }) });
      if (socket !== this.#socket) return;
      this.#resyncing = false;
      Object.assign(this.state, { phase: "joined", hops: 0, error: null, joins: this.state.joins + 1 });
      // A grant that the answer does not have comes as an event, also before it.
      const grant = answer.media ?? this.state.grant;
      Object.assign(this.state, { self: answer.self, room: answer.room, grant });
      this.note("joined", `${answer.room.owner.instance}, redirects: ${hops}`);
      this.#changed(true);
    } catch (error) {
      if (socket === this.#socket) this.#refused(socket, error);
    }
  }

  #refused(socket: Socket, error: unknown): void {
    // Without a connection or an answer: a reconnection joins again by itself, a silent server is asked again.
    if (!(error instanceof Refused)) {
      if (socket.connected) this.#again(500);
      return;
    }
    const { code, retryable, retryAfterMs, redirectUrl } = error.error;
    this.note("room:join", redirectUrl ? `${code}, go to ${redirectUrl}` : `${code}: ${error.error.message}`);
    if (code === "WRONG_INSTANCE" && redirectUrl && this.state.hops < MAX_HOPS) {
      this.state.redirects += 1;
      this.enter(redirectUrl, this.state.hops + 1);
    } else if (code === "WRONG_INSTANCE" || retryable) {
      this.state.hops = 0;
      if (code === "DRAINING") this.#later(retryAfterMs ?? 500, () => this.enter(this.#elsewhere()));
      else this.#again(retryAfterMs ?? 1000);
    } else {
      this.#finish("room:join", error);
    }
  }

  #receive(name: keyof Events, body: Events[typeof name]): void {
    if ("room" in body && body.room !== this.#wish.room) return;
    switch (name) {
      case "room:update":
      case "room:presence":
      case "mic:update":
      case "call:update":
        this.#apply(body as Events["room:update"]);
        break;
      case "media:update":
        this.state.grant = (body as Events["media:update"]).media;
        this.#changed(true);
        break;
      case "room:moved": {
        const { redirectUrl, afterMs, reason } = body as Events["room:moved"];
        this.state.phase = "reconnecting";
        const target = redirectUrl ?? (reason === "drain" ? this.#elsewhere() : this.state.url);
        this.#later(afterMs, () => this.enter(target, redirectUrl ? 1 : 0));
        break;
      }
      case "room:closed":
      case "room:kicked":
      case "session:evicted": {
        const { reason } = body as Events["room:closed"];
        const end = () =>
          this.#finish(name, new Error(reason ? `${ENDINGS[name]}: ${reason}` : ENDINGS[name]));
        if (name === "session:evicted" && reason === "kicked") this.#later(REASON_WAIT_MS, end);
        else end();
        break;
      }
      case "auth:expiring":
        this.#refresh();
        break;
    }
  }

  /** Applies a state event if it is the next one; after a gap the room is joined again. */
  #apply(event: Change): void {
    const { room } = this.state;
    if (!room || this.#resyncing) return;
    const known = room.version[event.of];
    if (event.to <= known) return;
    if (event.from > known) {
      this.#resyncing = true;
      this.note("gap", `${event.of}: have ${known}, got ${event.from} to ${event.to}`);
      if (this.#socket) this.#join(this.#socket);
      return;
    }
    room.version[event.of] = event.to;
    if (event.settings) room.settings = merge(room.settings, event.settings);
    if (event.guests) room.guests = merge(room.guests, event.guests);
    if (event.of === "cell") this.#applyCell(room, event);
  }

  #applyCell(room: Snapshot, change: CellChange): void {
    const now = [...(change.joined ?? []), ...(change.peers ?? [])];
    const gone = new Set([...(change.left ?? []), ...now].map(({ user }) => user));
    if (gone.size > 0) room.peers = [...room.peers.filter(({ user }) => !gone.has(user)), ...now];
    const me = room.peers.find(({ user }) => user === this.state.self?.user);
    if (this.state.self && me) this.state.self.role = me.role;
    const seats = new Map(room.seats.map((seat) => [seat.seat, seat]));
    if (change.seatCount !== undefined) seats.clear();
    for (const seat of change.seats ?? []) seats.set(seat.seat, seat);
    room.seats = [...seats.values()];
    room.peerCount = change.peerCount ?? room.peerCount;
    room.hosts = change.hosts ?? room.hosts;
    room.locked = change.locked ?? room.locked;
    room.status = change.status ?? room.status;
    room.requests = asked(room.requests, change.requests);
    room.invites = asked(room.invites, change.invites);
    if (change.call) room.call = change.call;
  }

  async #refresh(): Promise<void> {
    try {
      const token = await this.#renew();
      if (!token) return;
      this.#token = token;
      await this.request("auth:refresh", { token });
    } catch (error) {
      this.fail("auth:refresh", error);
    }
  }

  #again(ms: number): void {
    this.#later(ms, () => {
      if (this.#socket?.connected) this.#join(this.#socket);
      else this.enter(this.state.url);
    });
  }

  #later(ms: number, act: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(act, ms);
  }

  #elsewhere(): string {
    const at = this.#others.findIndex((url) => new URL(url).href === new URL(this.state.url).href);
    return this.#others[(at + 1) % this.#others.length] ?? HOME;
  }

  #finish(of: string, error: Error): void {
    this.#end();
    this.state.phase = "ended";
    this.fail(of, error);
  }

  #end(): void {
    clearTimeout(this.#timer);
    this.#disconnect();
    this.state.grant = null;
  }

  /** The old connection is forgotten first: what it still reports is nobody's concern. */
  #disconnect(): void {
    const socket = this.#socket;
    this.#socket = null;
    socket?.disconnect();
  }
}

/** A grant lets whoever reads it into the media server. */
function hideSecrets(key: string, value: unknown): unknown {
  return ["token", "apiToken", "credential", "userSig", "privateMapKey"].includes(key) &&
    typeof value === "string"
    ? "…"
    : value;
}

/** Users are keys here: none of them is an object to be merged into. */
function asked(now: Record<string, Asked>, change: CellChange["requests"] = {}): Record<string, Asked> {
  const all = Object.entries({ ...now, ...change });
  return Object.fromEntries(all.filter((entry): entry is [string, Asked] => entry[1] !== null));
}

/** Why the handshake was refused, or `null` if the instance was not reached at all. */
function refusalOf({ message }: Error): ApiError | null {
  try {
    return JSON.parse(message);
  } catch {
    return null;
  }
}

/** One device for each tab and user, so that a reload replaces its own earlier connection only. */
function deviceOf({ user }: Wish): string {
  const key = `dais.device.${user}`;
  let device = sessionStorage.getItem(key);
  if (!device) {
    device = Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");
    sessionStorage.setItem(key, device);
  }
  return device;
}
