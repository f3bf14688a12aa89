import { Connection, type Surroundings } from "./connection.ts";

/** What a room has of a connection; the others may have it too. */
export interface Hold {
  connection: Connection;
  /** Gives it back: with its last room the connection closes. */
  release(): void;
}

/** At most one connection to each instance, for all rooms there. */
export class Connections {
  readonly #around: Surroundings;
  readonly #byUrl = new Map<string, { connection: Connection; rooms: Set<symbol>; lost: Set<() => void> }>();

  constructor(around: Surroundings) {
    this.#around = around;
  }

  get canRenew(): boolean {
    return this.#around.tokens.canRenew;
  }

  async renew(): Promise<void> {
    await this.#around.tokens.renew();
  }

  /** `lost` is told when the connection ends before it is given back. */
  hold(url: string, lost: () => void): Hold {
    const { href } = new URL(url);
    const entry = this.#byUrl.get(href) ?? this.#open(href);
    const room = Symbol(href);
    entry.rooms.add(room);
    entry.lost.add(lost);
    return {
      connection: entry.connection,
      release: () => {
        entry.lost.delete(lost);
        if (entry.rooms.delete(room) && entry.rooms.size === 0) entry.connection.close();
      },
    };
  }

  #open(href: string) {
    const lost = new Set<() => void>();
    const connection = new Connection(href, this.#around, () => {
      if (this.#byUrl.get(href)?.connection === connection) this.#byUrl.delete(href);
      for (const tell of [...lost]) tell();
    });
    const entry = { connection, rooms: new Set<symbol>(), lost };
    this.#byUrl.set(href, entry);
    return entry;
  }
}
