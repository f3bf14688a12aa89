import { type Clock, Pauses } from "./clock.ts";
import type { Connection } from "./connection.ts";
import type { Connections, Hold } from "./connections.ts";
import { DaisError } from "./error.ts";
import type { Events, JoinAnswer, JsonObject, Role } from "./protocol.ts";
import { MAX_HOPS, pauseMs } from "./retry.ts";

export interface JoinOptions {
  role?: Role;
  attributes?: JsonObject;
}

/** Why a room is over for this client. */
export interface End {
  by: "left" | "closed" | "kicked" | "evicted" | "refused";
  reason?: string;
  error: DaisError;
}

export interface Follower {
  /** The room is joined, again perhaps; called before anything that comes after it. */
  joined(answer: JoinAnswer): void;
  interrupted(): void;
  heard(name: keyof Events, body: Events[keyof Events]): void;
  ended(end: End): void;
}

/** Why a joined room must be joined again, where, and how soon; with `end` it is over then instead. */
interface Disturbance {
  url?: string;
  hops: number;
  afterMs: number;
  end?: End;
}

interface Waiter {
  resolve(connection: Connection): void;
  reject(error: DaisError): void;
}

const AT_ONCE: Disturbance = { hops: 0, afterMs: 0 };
/** What says why may come after what says that. */
const REASON_WAIT_MS = 500;

/** Keeps one room joined, wherever its owner is: one loop, so that there are never two joins at once. */
export class Stay {
  readonly #room: string;
  readonly #options: JoinOptions;
  readonly #entries: string[];
  readonly #connections: Connections;
  readonly #clock: Clock;
  readonly #follower: Follower;
  readonly #pauses: Pauses;
  readonly #waiters = new Set<Waiter>();
  #hold: (Hold & { url: string }) | null = null;
  #stopHearing: () => void = () => {};
  #disturb: (disturbance: Disturbance) => void = () => {};
  #entriesTried = 0;
  #resume: string | undefined;
  #joined: Connection | null = null;
  #end: End | null = null;
  #lastError: DaisError | null = null;

  constructor(
    room: string,
    options: JoinOptions,
    entries: string[],
    connections: Connections,
    clock: Clock,
    follower: Follower,
  ) {
    this.#room = room;
    this.#options = options;
    this.#entries = entries;
    this.#connections = connections;
    this.#clock = clock;
    this.#follower = follower;
    this.#pauses = new Pauses(clock);
  }

  get end(): End | null {
    return this.#end;
  }

  /** Runs until the room ends, and never rejects. */
  async run(): Promise<void> {
    let url = this.#nextEntry();
    let hops = 0;
    let attempt = 0;
    let renewed = false;
    while (!this.#end) {
      try {
        const disturbed = new Promise<Disturbance>((resolve) => {
          this.#disturb = resolve;
        });
        await this.#join(url, hops);
        attempt = 0;
        renewed = false;
        const disturbance = await disturbed;
        this.#interrupt();
        await this.#pauses.pause(pauseMs(0, disturbance.afterMs, this.#clock.random()));
        if (disturbance.end) this.finish(disturbance.end);
        url = disturbance.url ?? url;
        hops = disturbance.hops;
      } catch (thrown) {
        const error = asDaisError(thrown);
        this.#lastError = error;
        if (error.code === "WRONG_INSTANCE" && error.redirectUrl && hops < MAX_HOPS) {
          url = error.redirectUrl;
          hops += 1;
        } else if (error.code === "UNAUTHENTICATED" && !renewed) {
          renewed = true;
          await this.#renew(error);
        } else if (error.isHidden) {
          await this.wait(pauseMs(attempt, error.retryAfterMs, this.#clock.random())).catch(() => {});
          attempt += 1;
          hops = 0;
          if (error.code !== "RATE_LIMITED") url = this.#nextEntry();
        } else {
          this.finish({ by: "refused", error });
        }
      }
    }
  }

  /** The connection that the room is joined over, as soon as it is; within `withinMs` or not at all. */
  async joined(withinMs: number): Promise<Connection> {
    if (this.#end) throw this.#end.error;
    if (this.#joined) return this.#joined;
    return new Promise((resolve, reject) => {
      const settle = () => {
        cancel();
        this.#waiters.delete(waiter);
      };
      const waiter: Waiter = {
        resolve(connection) {
          settle();
          resolve(connection);
        },
        reject(error) {
          settle();
          reject(error);
        },
      };
      this.#waiters.add(waiter);
      const cancel = this.#clock.after(withinMs, () => waiter.reject(this.#lastError ?? notInTime()));
    });
  }

  /** Waits, unless the room ends before. */
  wait(ms: number): Promise<void> {
    return this.#pauses.pause(ms);
  }

  /** Something of `connection` showed that the room must be read again. */
  again(connection: Connection | null = this.#joined): void {
    if (connection && connection === this.#joined) this.#disturb(AT_ONCE);
  }

  finish(end: End): void {
    if (this.#end) return;
    this.#end = end;
    this.#joined = null;
    this.#release();
    this.#pauses.end(end.error);
    for (const waiter of [...this.#waiters]) waiter.reject(end.error);
    this.#disturb(AT_ONCE);
    this.#follower.ended(end);
  }

  async #join(url: string, hops: number): Promise<void> {
    const connection = this.#at(url);
    await connection.opened;
    const resume = this.#resume && { resume: this.#resume };
    const body = { ...this.#options, room: this.#room, hops, ...resume };
    await connection.request("room:join", body, (answer) => this.#answered(connection, answer));
  }

  /** In the step that brought the answer: what comes after it is of the room as it is then. */
  #answered(connection: Connection, answer: JoinAnswer): void {
    if (this.#end) return;
    this.#resume = answer.self.resume;
    this.#joined = connection;
    this.#lastError = null;
    this.#follower.joined(answer);
    for (const waiter of [...this.#waiters]) waiter.resolve(connection);
  }

  #at(url: string): Connection {
    if (this.#end) throw this.#end.error;
    if (this.#hold?.url === url && !this.#hold.connection.isOver) return this.#hold.connection;
    const before = this.#hold;
    this.#stopHearing();
    const hold = this.#connections.hold(url, () => {
      if (this.#hold?.connection !== hold.connection) return;
      this.#joined = null;
      this.#disturb(AT_ONCE);
    });
    this.#hold = { ...hold, url };
    this.#stopHearing = hold.connection.hear((name, body) => this.#hear(name, body));
    before?.release();
    return hold.connection;
  }

  #hear(name: keyof Events, body: Events[keyof Events]): void {
    if ("room" in body && body.room !== undefined && body.room !== this.#room) return;
    if (name === "room:moved") {
      const { redirectUrl, afterMs } = body as Events["room:moved"];
      this.#disturb({ ...(redirectUrl && { url: redirectUrl }), hops: redirectUrl ? 1 : 0, afterMs });
    } else if (name === "room:closed" || name === "room:kicked") {
      const { reason } = body as Events["room:closed"];
      this.finish(ending(name === "room:closed" ? "closed" : "kicked", reason));
    } else if (name === "session:evicted") {
      this.#evicted((body as Events["session:evicted"]).reason);
    } else {
      this.#follower.heard(name, body);
    }
  }

  #evicted(reason: Events["session:evicted"]["reason"]): void {
    // The next handshake is refused then, and that asks the app for another token.
    if (reason === "token_expired" && this.#connections.canRenew) return;
    if (reason !== "kicked") this.finish(ending("evicted", reason));
    else this.#disturb({ hops: 0, afterMs: REASON_WAIT_MS, end: ending("kicked", null) });
  }

  /** One other token, for a connection that has none that counts. */
  async #renew(refused: DaisError): Promise<void> {
    if (!this.#connections.canRenew) return this.finish({ by: "refused", error: refused });
    this.#release();
    try {
      await this.#connections.renew();
    } catch (error) {
      this.finish({ by: "refused", error: asDaisError(error) });
    }
  }

  #interrupt(): void {
    this.#joined = null;
    if (!this.#end) this.#follower.interrupted();
  }

  #release(): void {
    const hold = this.#hold;
    this.#hold = null;
    this.#stopHearing();
    hold?.release();
  }

  #nextEntry(): string {
    const entry = this.#entries[this.#entriesTried % this.#entries.length];
    this.#entriesTried += 1;
    if (entry === undefined) throw new TypeError("no url to enter by");
    return entry;
  }
}

function notInTime(): DaisError {
  return new DaisError("TIMEOUT", "the room could not be joined in time", { retryable: true });
}

function ending(by: End["by"], reason: string | null): End {
  const error = new DaisError("ENDED", reason ? `${by}: ${reason}` : by);
  return { by, ...(reason && { reason }), error };
}

export function asDaisError(error: unknown): DaisError {
  return error instanceof DaisError ? error : new DaisError("UNAUTHENTICATED", String(error));
}
