import type { Clock } from "./clock.ts";
import type { Connection } from "./connection.ts";
import type { DaisError } from "./error.ts";
import type { Requests } from "./protocol.ts";
import { BUDGET_MS, retryIn } from "./retry.ts";
import { asDaisError, type Stay } from "./stay.ts";

type Name = keyof Requests;
export type BodyOf<N extends Name> = Omit<Requests[N]["body"], "room" | "id">;

/** Sends what a room is asked, under one id until it is answered: over however many connections that takes. */
export class Commands {
  readonly #room: string;
  readonly #stay: Stay;
  readonly #clock: Clock;

  constructor(room: string, stay: Stay, clock: Clock) {
    this.#room = room;
    this.#stay = stay;
    this.#clock = clock;
  }

  async send<N extends Name>(name: N, body: BodyOf<N>, id: string = newId()): Promise<Requests[N]["answer"]> {
    const deadline = this.#clock.now() + BUDGET_MS;
    const whole = { ...body, room: this.#room, id } as Requests[N]["body"];
    let renewed = false;
    for (let attempt = 0; ; attempt += 1) {
      const connection = await this.#stay.joined(deadline - this.#clock.now());
      try {
        return await connection.request(name, whole);
      } catch (thrown) {
        const error = asDaisError(thrown);
        if (this.#stay.end) throw this.#stay.end.error;
        if (error.code === "UNAUTHENTICATED" && !renewed) {
          renewed = true;
          await connection.refresh();
        } else {
          await this.#waitAfter(error, attempt, deadline, connection);
        }
      }
    }
  }

  async #waitAfter(error: DaisError, attempt: number, deadline: number, connection: Connection) {
    const pause = retryIn(error, attempt, deadline - this.#clock.now(), this.#clock.random());
    if (pause === null) throw error;
    if (error.code === "WRONG_INSTANCE" || error.code === "TIMEOUT") this.#stay.again(connection);
    await this.#stay.wait(pause);
  }
}

export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("");
}
