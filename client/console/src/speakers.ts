/** From this the server's word of how loud somebody is makes a speaker; it goes by decibels. */
const LOUD = 2 / 3;
/** The same of what is measured here. */
const LOUD_HERE = 0.35;
/** How long somebody counts as speaking who was last heard to: between words, and where word of it may be lost. */
const HOLD_MS = { told: 1500, here: 400 };

/** Who speaks: by what the coordinator tells, by what the media server tells, and by what is measured here. */
export class Speakers {
  readonly #until = new Map<string, number>();
  #now: string[] = [];

  get now(): readonly string[] {
    return this.#now;
  }

  /** Takes `room:speakers`. */
  told(levels: { user: string; level: number }[]): void {
    for (const { user, level } of levels) {
      if (level >= LOUD) this.#heard(user, HOLD_MS.told);
      else this.#until.delete(user);
    }
  }

  /** Takes how loud somebody is here. */
  measured(user: string, level: number): void {
    if (level >= LOUD_HERE) this.#heard(user, HOLD_MS.here);
  }

  /** Who speaks just now, with whom the media server names; `true` if these are others than before. */
  follow(named: string[]): boolean {
    const now = performance.now();
    for (const [user, until] of this.#until) if (until <= now) this.#until.delete(user);
    const speaking = [...new Set([...this.#until.keys(), ...named])].sort();
    const isNew = speaking.join("\n") !== this.#now.join("\n");
    this.#now = speaking;
    return isNew;
  }

  #heard(user: string, ms: number): void {
    this.#until.set(user, Math.max(this.#until.get(user) ?? 0, performance.now() + ms));
  }
}
