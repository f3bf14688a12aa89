// Whether somebody's audio arrives, without the flicker of a bad network.

/** How long packets must be missing before audio counts as stopped, in milliseconds. */
const GRACE = 2_000;

export class AudioGate {
  #open = false;
  #closing: NodeJS.Timeout | undefined;
  readonly #turned: (open: boolean, reason?: string) => void;

  /** `turned` hears of every change, and of nothing else: started and stopped alternate. */
  constructor(turned: (open: boolean, reason?: string) => void) {
    this.#turned = turned;
  }

  get isOpen(): boolean {
    return this.#open;
  }

  /** Packets arrive: audio starts at once, or goes on. */
  open(): void {
    clearTimeout(this.#closing);
    this.#closing = undefined;
    this.#turn(true);
  }

  /** Packets are missing: audio stops if that lasts. */
  fade(reason: string): void {
    if (this.#open) this.#closing ??= setTimeout(() => this.close(reason), GRACE);
  }

  /** Audio stops at once: it is muted, or the track has ended. */
  close(reason?: string): void {
    clearTimeout(this.#closing);
    this.#closing = undefined;
    this.#turn(false, reason);
  }

  #turn(open: boolean, reason?: string): void {
    if (this.#open === open) return;
    this.#open = open;
    this.#turned(open, reason);
  }
}
