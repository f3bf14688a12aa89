import type { Asked, Seat } from "@dais/sdk/protocol";
import { element } from "./peers.ts";
import type { RoomState } from "./room.ts";
import type { Ask } from "./voice.ts";

const ACTIONS = ["take", "down", "mute", "move", "lock"] as const;
type Action = (typeof ACTIONS)[number];
const WORDS: Record<Seat["state"], string> = {
  idle: "",
  locked: "",
  pending_publish: "waiting for sound",
  publishing: "on air",
};

interface Place {
  root: HTMLLIElement;
  name: HTMLElement;
  about: HTMLElement;
  buttons: Record<Action, HTMLButtonElement>;
}

/** The places to speak, and who asks for one or was invited. */
export class Seats {
  readonly #list: HTMLElement;
  readonly #asks: HTMLElement;
  readonly #ask: Ask;
  readonly #places = new Map<number, Place>();
  readonly #rows = new Map<string, HTMLLIElement>();
  /** Whom the next free seat that is chosen is for, if not for oneself. */
  #moving = "";

  constructor(list: HTMLElement, asks: HTMLElement, ask: Ask) {
    this.#list = list;
    this.#asks = asks;
    this.#ask = ask;
  }

  render(state: RoomState): void {
    const seats = state.room?.seats ?? [];
    if (!seats.some(({ user }) => user === this.#moving)) this.#moving = "";
    const numbers = new Set(seats.map(({ seat }) => seat));
    for (const [number, { root }] of this.#places) {
      if (numbers.has(number)) continue;
      root.remove();
      this.#places.delete(number);
    }
    for (const seat of seats) this.#renderSeat(seat, state);
    this.#renderAsks(state);
  }

  /** Puts a ring around the seats of whoever speaks. */
  ring(seats: Seat[], speaking: readonly string[]): void {
    for (const { seat, user, muted } of seats) {
      const speaks = user !== undefined && !muted && speaking.includes(user);
      this.#places.get(seat)?.root.classList.toggle("speaking", speaks);
    }
  }

  #renderSeat(seat: Seat, state: RoomState): void {
    const place = this.#places.get(seat.seat) ?? this.#make(seat.seat);
    const { self, room } = state;
    const isMine = seat.user !== undefined && seat.user === self?.user;
    const isHost = self?.role === "host";
    place.root.dataset.state = seat.state;
    place.root.classList.toggle("self", isMine);
    place.name.textContent = seat.user ?? (seat.state === "idle" ? "free" : "locked");
    place.name.classList.toggle("faint", !seat.user);
    place.about.textContent = [WORDS[seat.state], seat.muted ? "muted" : ""].filter(Boolean).join(" · ");

    const { take, down, mute, move, lock } = place.buttons;
    const taken = seat.user ?? "";
    const hasSeat = room?.seats.some(({ user }) => user === self?.user) ?? false;
    const moving = this.#moving;
    const wish = moving ? `Move ${moving} here` : hasSeat ? "Move here" : "Take";
    show(take, seat.state === "idle", wish, `${wish}: seat ${seat.seat}`, () => {
      if (!moving && !hasSeat) return this.#ask("mic:up", { seat: seat.seat });
      this.#moving = "";
      return this.#ask("mic:move", { seat: seat.seat, ...(moving && { user: moving }) });
    });
    const off = isMine ? "Leave" : "Take down";
    show(down, isMine || (isHost && taken !== ""), off, isMine ? "Leave your seat" : `${off} ${taken}`, () =>
      this.#ask("mic:down", isMine ? {} : { user: taken }),
    );
    show(mute, isMine || (isHost && taken !== ""), "Mute", `Mute ${taken}`, () =>
      this.#ask("mic:mute", { muted: !seat.muted, ...(!isMine && { user: taken }) }),
    );
    mute.setAttribute("aria-pressed", String(seat.muted ?? false));
    show(move, isHost && taken !== "" && !isMine, "Move", `Move ${taken} to another seat`, () => {
      this.#moving = moving === taken ? "" : taken;
      this.render(state);
    });
    move.setAttribute("aria-pressed", String(taken !== "" && moving === taken));
    const isLocked = seat.state === "locked";
    const turn = isLocked ? "Unlock" : "Lock";
    show(lock, isHost && taken === "", turn, `${turn} seat ${seat.seat}`, () =>
      this.#ask("mic:lock", { seat: seat.seat, locked: !isLocked }),
    );
    if (!place.root.isConnected) this.#list.append(place.root);
  }

  #make(number: number): Place {
    const root = element("li", "seat");
    root.dataset.testid = `seat-${number}`;
    const name = element("strong");
    const about = element("span", "state");
    const bar = element("div", "toggles");
    const make = (action: Action) => {
      const button = element("button", "toggle");
      button.type = "button";
      button.dataset.testid = `${action}-seat-${number}`;
      bar.append(button);
      return [action, button] as const;
    };
    const buttons = Object.fromEntries(ACTIONS.map(make)) as Place["buttons"];
    root.append(element("span", "number", `${number}`), name, about, bar);
    const place = { root, name, about, buttons };
    this.#places.set(number, place);
    return place;
  }

  #renderAsks({ room, self }: RoomState): void {
    const rows = new Map<string, () => HTMLLIElement>();
    const me = self?.user ?? "";
    const isHost = self?.role === "host";
    for (const [user, asked] of Object.entries(room?.requests ?? {})) {
      const key = JSON.stringify(["request", user, asked.seat, isHost]);
      if (user === me) {
        rows.set(key, () => row(`You asked for ${which(asked)}.`, [["Withdraw", () => this.#withdraw()]]));
      } else if (isHost) {
        const answer = (accept: boolean) => () => this.#ask("mic:respond", { user, accept });
        const text = `${user} asks for ${which(asked)}.`;
        rows.set(key, () => row(text, answers(`request-${user}`, answer)));
      }
    }
    for (const [user, asked] of Object.entries(room?.invites ?? {})) {
      const key = JSON.stringify(["invite", user, asked.seat, isHost]);
      const answer = (accept: boolean) => () => this.#ask("mic:respond", { accept });
      if (user === me) {
        rows.set(key, () => row(`A host invites you to ${which(asked)}.`, answers("invite", answer)));
      } else if (isHost) {
        rows.set(key, () => row(`${user} is invited to ${which(asked)}.`, []));
      }
    }
    for (const [key, root] of this.#rows) {
      if (rows.has(key)) continue;
      root.remove();
      this.#rows.delete(key);
    }
    for (const [key, make] of rows) {
      if (this.#rows.has(key)) continue;
      const made = make();
      this.#rows.set(key, made);
      this.#asks.append(made);
    }
  }

  #withdraw() {
    return this.#ask("mic:request", { withdraw: true });
  }
}

type Choice = [label: string, act: () => void, testid?: string];

function answers(of: string, answer: (accept: boolean) => () => void): Choice[] {
  return [
    ["Accept", answer(true), `accept-${of}`],
    ["Decline", answer(false), `decline-${of}`],
  ];
}

function row(text: string, choices: Choice[]): HTMLLIElement {
  const root = element("li", "ask");
  const bar = element("div", "toggles");
  root.append(element("span", "", text), bar);
  for (const [label, act, testid] of choices) {
    const button = element("button", "", label);
    button.type = "button";
    button.setAttribute("aria-label", `${label}: ${text}`);
    button.dataset.testid = testid ?? label.toLowerCase();
    button.onclick = act;
    bar.append(button);
  }
  return root;
}

const which = ({ seat }: Asked) => (seat === undefined ? "a seat" : `seat ${seat}`);

function show(
  button: HTMLButtonElement,
  isShown: boolean,
  text: string,
  label: string,
  act: () => void,
): void {
  button.hidden = !isShown;
  button.textContent = text;
  button.setAttribute("aria-label", label);
  button.onclick = act;
}
