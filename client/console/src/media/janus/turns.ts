/** Jobs one after another. The first that fails is the last. */
export class Turns {
  readonly #failed: (error: unknown) => void;
  #last: Promise<void> = Promise.resolve();
  readonly #waiting = new Set<() => Promise<void>>();
  #isOver = false;

  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** Does a job when those before it are done; one that is waiting already is done once. */
  take(job: () => Promise<void>): void {
    if (this.#waiting.has(job)) return;
    this.#waiting.add(job);
    this.#last = this.#last.then(async () => {
      this.#waiting.delete(job);
      if (this.#isOver) return;
      try {
        await job();
      } catch (error) {
        if (this.#isOver) return;
        this.end();
        this.#failed(error);
      }
    });
  }

  /** Does nothing more, and reports nothing. */
  end(): void {
    this.#isOver = true;
  }
}
