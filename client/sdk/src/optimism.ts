import type { SettingsChange, Snapshot } from "./protocol.ts";
import { withSettings } from "./state.ts";

interface Hope {
  change: SettingsChange;
  /** The version of the settings that has it, once the server said so. */
  version?: number;
}

/** Changes that are shown before the server has confirmed them, oldest first. */
export class Optimism {
  readonly #hopes = new Map<string, Hope>();

  /** `id` is that of the command. */
  add(id: string, change: SettingsChange): void {
    this.#hopes.set(id, { change });
  }

  /** It was done: shown until the room has reached that version by itself. */
  confirm(id: string, version: number): void {
    const hope = this.#hopes.get(id);
    if (hope) hope.version = version;
  }

  /** It was refused, or nobody knows. */
  withdraw(id: string): void {
    this.#hopes.delete(id);
  }

  /** Forgets what `room` has. */
  settle(room: Snapshot): void {
    for (const [id, { version }] of this.#hopes) {
      if (version !== undefined && version <= room.version.settings) this.#hopes.delete(id);
    }
  }

  over(room: Snapshot): Snapshot {
    return [...this.#hopes.values()].reduce((shown, { change }) => withSettings(shown, change), room);
  }
}
