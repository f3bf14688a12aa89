import type { Clock } from "./clock.ts";
import { type BodyOf, Commands, newId } from "./commands.ts";
import type { Connections } from "./connections.ts";
import { DaisError } from "./error.ts";
import { Listeners } from "./listeners.ts";
import { Optimism } from "./optimism.ts";
import type {
  Commanded,
  Events,
  Grant,
  GuestState,
  JoinAnswer,
  MergePatch,
  Peer,
  Requests,
  Settings,
  SettingsChange,
  Snapshot,
  Updated,
} from "./protocol.ts";
import { BUDGET_MS } from "./retry.ts";
import { type Change, reduce } from "./state.ts";
import { type End, type JoinOptions, Stay } from "./stay.ts";

/** What a room tells, by name. */
export interface RoomEvents {
  /** Anything in `room.state` changed. */
  state: Snapshot;
  settings: Settings;
  guests: Snapshot["guests"];
  seats: Snapshot["seats"];
  peers: Peer[];
  call: NonNullable<Snapshot["call"]>;
  media: Grant;
  speakers: Events["room:speakers"]["levels"];
  /** `interrupted`: the room is being joined again, and commands wait. */
  connection: "joined" | "interrupted";
  ended: End;
}

export interface UpdateOptions {
  /** Refused with `VERSION_CONFLICT` unless the settings are at this version. */
  ifVersion?: number;
}

/** One room. Its state is what the server acknowledged, and over it what this client has asked for. */
export class Room {
  readonly id: string;
  readonly #listeners = new Listeners<RoomEvents>();
  readonly #optimism = new Optimism();
  readonly #stay: Stay;
  readonly #commands: Commands;
  #acknowledged: Snapshot | null = null;
  #shown: Snapshot | null = null;
  #self: JoinAnswer["self"] | null = null;
  #media: Grant | null = null;

  constructor(
    id: string,
    options: JoinOptions,
    entries: string[],
    connections: Connections,
    clock: Clock,
    over: () => void,
  ) {
    this.id = id;
    this.#stay = new Stay(id, options, entries, connections, clock, {
      joined: (answer) => this.#joined(answer),
      interrupted: () => this.#listeners.tell("connection", "interrupted"),
      heard: (name, body) => this.#heard(name, body),
      ended: (end) => {
        over();
        this.#listeners.tell("ended", end);
        this.#listeners.clear();
      },
    });
    this.#commands = new Commands(id, this.#stay, clock);
  }

  /** Joins; for {@link Dais.join}. */
  async enter(): Promise<this> {
    void this.#stay.run();
    try {
      await this.#stay.joined(BUDGET_MS);
    } catch (error) {
      this.#stay.finish({ by: "refused", error: error as DaisError });
      throw error;
    }
    return this;
  }

  get state(): Snapshot {
    return present(this.#shown);
  }

  get self(): JoinAnswer["self"] {
    return present(this.#self);
  }

  /** What reaches the room's media server; the event `media` tells of another one. */
  get media(): Grant | null {
    return this.#media;
  }

  /** Why the room is over, or `null`. */
  get ended(): End | null {
    return this.#stay.end;
  }

  /** Listens until the returned function is called, or the room is over. */
  on<Name extends keyof RoomEvents>(name: Name, listener: (body: RoomEvents[Name]) => void): () => void {
    return this.#listeners.on(name, listener);
  }

  readonly settings = {
    update: (settings: MergePatch<Settings>, options: UpdateOptions = {}) =>
      this.#change("room:update", { settings, ...options }, { settings }),
  };

  readonly guests = {
    update: (user: string, state: MergePatch<GuestState>, options: UpdateOptions = {}) =>
      this.#change("guest:update", { user, state, ...options }, { guests: { [user]: state } }),
    me: {
      update: (state: MergePatch<GuestState>, options: UpdateOptions = {}) =>
        this.#change("guest:update", { state, ...options }, { guests: { [this.self.user]: state } }),
    },
  };

  readonly seats = {
    up: (body: BodyOf<"mic:up"> = {}) => this.#commands.send("mic:up", body),
    down: (body: BodyOf<"mic:down"> = {}) => this.#commands.send("mic:down", body),
    move: (seat: number, body: { user?: string } = {}) => this.#commands.send("mic:move", { ...body, seat }),
    lock: (seat: number, locked: boolean, body: { force?: boolean } = {}) =>
      this.#commands.send("mic:lock", { ...body, seat, locked }),
    mute: (muted: boolean, body: { user?: string } = {}) =>
      this.#commands.send("mic:mute", { ...body, muted }),
    muteAll: (muted: boolean, body: { except?: string[] } = {}) =>
      this.#commands.send("mic:muteAll", { ...body, muted }),
    resize: (count: number) => this.#commands.send("mic:seats", { count }),
    request: (body: BodyOf<"mic:request"> = {}) => this.#commands.send("mic:request", body),
    invite: (user: string, body: { seat?: number } = {}) =>
      this.#commands.send("mic:invite", { ...body, user }),
    respond: (accept: boolean, body: { user?: string } = {}) =>
      this.#commands.send("mic:respond", { ...body, accept }),
    confirm: (micSession: string) => this.#commands.send("mic:confirm", { micSession }),
  };

  readonly calls = {
    invite: (to: string[]) => this.#commands.send("call:invite", { to }),
    accept: (call?: string) => this.#commands.send("call:accept", named(call)),
    decline: (call?: string) => this.#commands.send("call:decline", named(call)),
    hangup: (call?: string) => this.#commands.send("call:hangup", named(call)),
  };

  readonly peers = {
    /** Those that the state holds, by user. */
    map: (): ReadonlyMap<string, Peer> => new Map(this.state.peers.map((peer) => [peer.user, peer])),
    count: () => this.state.peerCount,
    /** Those beyond the state's, from its `peersCursor` on. */
    page: (body: BodyOf<"room:peers"> = {}) => this.#commands.send("room:peers", body),
  };

  kick(user: string, body: { reason?: string; banSeconds?: number } = {}): Promise<Commanded> {
    return this.#commands.send("room:kick", { ...body, user });
  }

  unban(user: string): Promise<Commanded> {
    return this.#commands.send("room:unban", { user });
  }

  setRole(user: string, role: "host" | "guest"): Promise<Commanded> {
    return this.#commands.send("room:role", { user, role });
  }

  lock(locked = true): Promise<Commanded> {
    return this.#commands.send("room:lock", { locked });
  }

  /** Ends the room for everybody. */
  close(reason?: string): Promise<Commanded> {
    return this.#commands.send("room:close", reason === undefined ? {} : { reason });
  }

  /** Leaves; whether the server can be told or not, the room is over for this client. */
  async leave(): Promise<void> {
    if (this.#stay.end) return;
    await this.#stay
      .joined(0)
      .then((connection) => connection.request("room:leave", { room: this.id }))
      .catch(() => {});
    this.abandon();
  }

  /** Ends without telling the server, which keeps the place for the grace period. */
  abandon(): void {
    this.#stay.finish({ by: "left", error: new DaisError("ENDED", "the room was left") });
  }

  async #change<Name extends "room:update" | "guest:update">(
    name: Name,
    body: BodyOf<Name>,
    change: SettingsChange,
  ): Promise<Updated> {
    const id = newId();
    this.#optimism.add(id, change);
    this.#show();
    try {
      const answer: Requests["room:update"]["answer"] = await this.#commands.send(name, body, id);
      this.#optimism.confirm(id, answer.version.settings);
      return answer;
    } catch (error) {
      this.#optimism.withdraw(id);
      throw error;
    } finally {
      this.#show();
    }
  }

  #joined({ self, room, media }: JoinAnswer): void {
    this.#self = self;
    this.#acknowledged = room;
    this.#show();
    this.#listeners.tell("connection", "joined");
    if (media) this.#granted(media);
  }

  #heard(name: keyof Events, body: Events[keyof Events]): void {
    switch (name) {
      case "room:update":
      case "room:presence":
      case "mic:update":
      case "call:update":
        this.#apply(body as Events["room:update"]);
        break;
      case "media:update":
        this.#granted((body as Events["media:update"]).media);
        break;
      case "room:speakers":
        this.#listeners.tell("speakers", (body as Events["room:speakers"]).levels);
        break;
    }
  }

  #apply(change: Change): void {
    if (!this.#acknowledged) return;
    const reduced = reduce(this.#acknowledged, change);
    if (reduced.kind === "gap") this.#stay.again();
    if (reduced.kind !== "applied") return;
    this.#acknowledged = reduced.room;
    this.#show();
  }

  #granted(media: Grant): void {
    this.#media = media;
    this.#listeners.tell("media", media);
  }

  /** Tells what differs from what was shown before. */
  #show(): void {
    if (!this.#acknowledged) return;
    this.#optimism.settle(this.#acknowledged);
    const before = this.#shown;
    const now = this.#optimism.over(this.#acknowledged);
    this.#shown = now;
    if (now === before) return;
    const me = now.peers.find(({ user }) => user === this.#self?.user);
    if (this.#self && me) this.#self = { ...this.#self, role: me.role };
    for (const part of ["settings", "guests", "seats", "peers"] as const) {
      if (now[part] !== before?.[part]) this.#listeners.tell(part, now[part]);
    }
    if (now.call && now.call !== before?.call) this.#listeners.tell("call", now.call);
    this.#listeners.tell("state", now);
  }
}

const named = (call: string | undefined) => (call === undefined ? {} : { call });

function present<T>(value: T | null): T {
  if (value === null) throw new DaisError("NOT_IN_ROOM", "the room is not joined yet");
  return value;
}
