import { type Clock, SYSTEM_CLOCK } from "./clock.ts";
import { newId } from "./commands.ts";
import { type OpenSocket, openSocket } from "./connection.ts";
import { Connections } from "./connections.ts";
import { DaisError } from "./error.ts";
import { Room } from "./room.ts";
import type { JoinOptions } from "./stay.ts";
import { type TokenSource, Tokens } from "./tokens.ts";

export interface DaisOptions {
  /** Where to enter; of several the next one is taken when one fails. */
  url: string | string[];
  /** A function is asked again when a token is about to expire, or was refused. */
  token: TokenSource;
  /** The same device joining again replaces its earlier peer; a new one for each `Dais` if missing. */
  device?: string;
  platform?: string;
}

/** The client: rooms, over as few connections as there are instances that own them. */
export class Dais {
  readonly #entries: string[];
  readonly #clock: Clock;
  readonly #connections: Connections;
  readonly #rooms = new Map<string, Room>();
  #closed = false;

  /** `clock` and `open` are for tests. */
  constructor(options: DaisOptions, clock: Clock = SYSTEM_CLOCK, open: OpenSocket = openSocket) {
    const { url, token, device = newId(), platform } = options;
    this.#entries = [url].flat();
    this.#clock = clock;
    this.#connections = new Connections({ clock, open, tokens: new Tokens(token), device, platform });
  }

  /** Joins a room wherever it is, within a minute; a room can be joined once at a time. */
  async join(id: string, options: JoinOptions = {}): Promise<Room> {
    if (this.#closed) throw new DaisError("ENDED", "this client was closed");
    if (this.#rooms.has(id)) throw new DaisError("BAD_REQUEST", `${id} is joined already`);
    const over = () => this.#rooms.delete(id);
    const room = new Room(id, options, this.#entries, this.#connections, this.#clock, over);
    this.#rooms.set(id, room);
    return room.enter();
  }

  /** Ends every room without leaving it, and every connection. */
  close(): void {
    this.#closed = true;
    for (const room of [...this.#rooms.values()]) room.abandon();
  }
}
