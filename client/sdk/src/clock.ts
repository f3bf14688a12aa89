/** Time and chance, handed in so that tests decide both. */
export interface Clock {
  now(): number;
  /** Runs `act` after `ms`, unless the returned function is called before. */
  after(ms: number, act: () => void): () => void;
  /** At least 0, below 1. */
  random(): number;
}

export const SYSTEM_CLOCK: Clock = {
  now: () => performance.now(),
  after(ms, act) {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
  random: Math.random,
};

/** Waits that end together: what still waits then is rejected, and no timer is left. */
export class Pauses {
  readonly #clock: Clock;
  readonly #waiting = new Map<() => void, (error: Error) => void>();
  #ended: Error | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  pause(ms: number): Promise<void> {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(ms, () => {
        this.#waiting.delete(cancel);
        resolve();
      });
      this.#waiting.set(cancel, reject);
    });
  }

  end(error: Error): void {
    this.#ended = error;
    for (const [cancel, reject] of this.#waiting) {
      cancel();
      reject(error);
    }
    this.#waiting.clear();
  }
}
