import type { Clock } from "../src/clock.ts";

/** A clock that moves when a test says so. */
export class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Map<symbol, { at: number; act: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, act: () => void): () => void {
    const timer = Symbol();
    this.#timers.set(timer, { at: this.#now + ms, act });
    return () => this.#timers.delete(timer);
  }

  random(): number {
    return 0;
  }

  /** How many timers are left. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves on, timer by timer, with what each of them leads to. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settled();
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.#now = due[1].at;
      due[1].act();
    }
    this.#now = end;
  }
}

/** What waits for promises only has happened. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
