import type { RoomState } from "./room.ts";
import type { Ask } from "./voice.ts";

/** What hosts do to the room as a whole: its door, how many seats it has, silence for all, its end. */
export class Hosting {
  readonly #door: HTMLInputElement;
  readonly #seats: HTMLInputElement;
  readonly #muteAll: HTMLButtonElement;

  constructor(form: HTMLFormElement, ask: Ask, state: () => RoomState | undefined) {
    const named = <Kind extends HTMLElement>(name: string) =>
      form.elements.namedItem(name) as unknown as Kind;
    this.#door = named("door");
    this.#seats = named("seats");
    this.#muteAll = named("mute-all");
    const again = () => this.render(state());
    form.onsubmit = (event) => event.preventDefault();
    this.#door.onchange = () => ask("room:lock", { locked: this.#door.checked }).then(again);
    this.#seats.onchange = () => {
      if (this.#seats.reportValidity()) ask("mic:seats", { count: this.#seats.valueAsNumber }).then(again);
    };
    this.#muteAll.onclick = () => {
      const now = state();
      const self = now?.self?.user ?? "";
      ask("mic:muteAll", { muted: somebodySpeaks(now), except: [self] });
    };
    named<HTMLButtonElement>("close").onclick = () => ask("room:close", {});
  }

  render(state: RoomState | undefined): void {
    const { room } = state ?? {};
    if (!room) return;
    this.#door.checked = room.locked;
    if (this.#seats !== document.activeElement) this.#seats.value = `${room.seats.length}`;
    this.#muteAll.disabled = others(state).length === 0;
    this.#muteAll.textContent =
      somebodySpeaks(state) || this.#muteAll.disabled ? "Mute others" : "Unmute others";
  }
}

const others = (state: RoomState | undefined) =>
  (state?.room?.seats ?? []).filter(({ user }) => user !== undefined && user !== state?.self?.user);

const somebodySpeaks = (state: RoomState | undefined) => others(state).some(({ muted }) => !muted);
