// What happened, on its way to Dais: in order, and again until Dais has it.

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { signed } from "./signature.ts";

/** Events in one request, at most. */
const BATCH = 100;
/** Events that wait for Dais, at most. What is lost beyond that, Dais finds in the list of participants. */
const WAITING = 10_000;
/** Pause after a failure, in milliseconds: doubled each time, up to the second. */
const PAUSES = [250, 10_000] as const;
/** Dais answers within a second; what takes longer is repeated. */
const DEADLINE = 10_000;

/** The facts that a room is decided by. */
export interface Fact {
  type: "participant_joined" | "audio_started" | "audio_stopped" | "room_exited" | "room_finished";
  router: string;
  participant?: string;
  session?: string;
  sequence?: number;
  reason?: string;
}

/** How loud somebody is, from 0 to 1. */
export interface Level {
  router: string;
  participant: string;
  level: number;
}

/** Tells one app's events. */
export class Outbox {
  readonly #url: string;
  readonly #secret: string;
  readonly #waiting: object[] = [];
  #draining = false;

  /** `url` is `https://dais.example/rtc/generic/{app}`, of any coordinator or what stands before them. */
  constructor(url: string, secret: string) {
    this.#url = url;
    this.#secret = secret;
  }

  /** Tells a fact. Its id stays the same when it is repeated, so that it counts once. */
  tell(fact: Fact): void {
    if (this.#waiting.length >= WAITING) this.#waiting.shift();
    this.#waiting.push({ id: randomUUID(), at: Date.now(), ...fact });
    if (!this.#draining) void this.#drain();
  }

  /** Tells levels once: by the time that a repeat arrived they would be wrong. */
  levels(levels: Level[]): void {
    for (let from = 0; from < levels.length; from += BATCH) {
      const batch = levels.slice(from, from + BATCH);
      void this.#post(batch.map((level) => ({ type: "level", ...level })));
    }
  }

  async #drain(): Promise<void> {
    this.#draining = true;
    let wait: number = PAUSES[0];
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, BATCH);
      if (await this.#post(batch)) {
        const sent = new Set(batch);
        while (this.#waiting[0] !== undefined && sent.has(this.#waiting[0])) this.#waiting.shift();
        wait = PAUSES[0];
      } else {
        await pause(wait);
        wait = Math.min(wait * 2, PAUSES[1]);
      }
    }
    this.#draining = false;
  }

  /** Whether there is no use in sending these events again. */
  async #post(events: object[]): Promise<boolean> {
    const body = JSON.stringify(events);
    try {
      const response = await fetch(this.#url, {
        method: "POST",
        headers: { "content-type": "application/json", ...signed(this.#secret, body) },
        body,
        signal: AbortSignal.timeout(DEADLINE),
      });
      const said = await response.text();
      if (!response.ok) console.error(`events: ${response.status} ${said}`);
      return response.ok || response.status === 400 || response.status === 404;
    } catch (error) {
      console.error("events:", error);
      return false;
    }
  }
}
