import type { GuestState, Peer } from "@dais/sdk/protocol";
import type { Levels } from "./levels.ts";
import type { Heard } from "./media/media.ts";
import type { RoomState } from "./room.ts";
import type { Speakers } from "./speakers.ts";
import type { Ask } from "./voice.ts";

type Flag = "handRaised" | "micAllowed" | "videoAllowed" | "stage";
/** `unset` is what holds for somebody of whom nothing was said yet. */
const FLAGS: { flag: Flag; label: string; selfMay: boolean; unset: boolean }[] = [
  { flag: "handRaised", label: "Hand", selfMay: true, unset: false },
  { flag: "micAllowed", label: "Mic", selfMay: false, unset: true },
  { flag: "videoAllowed", label: "Video", selfMay: false, unset: true },
  { flag: "stage", label: "Stage", selfMay: false, unset: false },
];

interface Card {
  root: HTMLLIElement;
  about: HTMLElement;
  meter: HTMLElement;
  video: HTMLVideoElement;
  audio: HTMLAudioElement;
  toggles: Map<Flag, HTMLButtonElement>;
  invite: HTMLButtonElement;
  kick: HTMLButtonElement;
}

/** How long somebody who was sent out stays out. */
const KICK_SECONDS = 60;

/** The cards of the people in the room, with their sound and picture. */
export class Peers {
  readonly #list: HTMLElement;
  /** Plays what is of nobody in particular. */
  readonly #rest = element("audio");
  readonly #ask: Ask;
  readonly #cards = new Map<string, Card>();

  constructor(list: HTMLElement, ask: Ask) {
    this.#list = list;
    this.#ask = ask;
    this.#rest.autoplay = true;
  }

  render(state: RoomState): void {
    const peers = [...(state.room?.peers ?? [])].sort((a, b) => a.joinedAt - b.joinedAt);
    const users = new Set(peers.map(({ user }) => user));
    for (const [user, card] of this.#cards) {
      if (users.has(user)) continue;
      card.root.remove();
      this.#cards.delete(user);
    }
    for (const peer of peers) this.#renderPeer(peer, state);
  }

  /** Plays what is received, each person's in their own card, and `own` picture in one's own. */
  play(received: Heard[], own: MediaStream | null, self: string | undefined): void {
    const tracks = (kind: Heard["kind"], of: (user: string | null) => boolean) =>
      received.filter((each) => each.kind === kind && of(each.user)).map(({ track }) => track);
    for (const [user, { audio, video }] of this.#cards) {
      const isTheirs = (each: string | null) => each === user;
      attach(audio, tracks("audio", isTheirs));
      const pictures = user === self ? (own?.getVideoTracks() ?? []) : tracks("video", isTheirs);
      attach(video, pictures);
      video.hidden = pictures.length === 0;
    }
    attach(
      this.#rest,
      tracks("audio", (user) => user === null || !this.#cards.has(user)),
    );
  }

  meter(
    received: Heard[],
    own: MediaStream | null,
    self: string | undefined,
    levels: Levels,
    speakers: Speakers,
  ): void {
    for (const [user, { meter }] of this.#cards) {
      const loudest =
        user === self
          ? (own?.getAudioTracks() ?? []).map((track) => levels.of(track))
          : received
              .filter((each) => each.user === user && each.kind === "audio")
              .map(({ track, receiver }) => levels.of(track, receiver));
      const level = Math.max(0, ...loudest);
      // One's own sound need not be heard by anybody.
      if (user !== self) speakers.measured(user, level);
      meter.style.setProperty("--level", level.toFixed(3));
      meter.setAttribute("aria-valuenow", level.toFixed(2));
    }
  }

  /** Puts a ring around whoever speaks. */
  ring(speaking: readonly string[]): void {
    for (const [user, { root }] of this.#cards) root.classList.toggle("speaking", speaking.includes(user));
  }

  #renderPeer(peer: Peer, { self, room }: RoomState): void {
    const card = this.#cards.get(peer.user) ?? this.#make(peer.user);
    const isSelf = peer.user === self?.user;
    const words = [peer.role, isSelf ? "you" : "", peer.devices > 1 ? `${peer.devices} devices` : ""];
    card.about.textContent = words.filter(Boolean).join(" · ");
    card.root.classList.toggle("self", isSelf);
    const guest = room?.guests[peer.user] ?? {};
    for (const { flag, selfMay, unset } of FLAGS) {
      const button = card.toggles.get(flag);
      if (!button) continue;
      button.setAttribute("aria-pressed", String(guest[flag] ?? unset));
      button.disabled = !(self?.role === "host" || (isSelf && selfMay));
      // A host speaks and shows itself without being allowed to.
      button.hidden = peer.role === "host" && (flag === "micAllowed" || flag === "videoAllowed");
    }
    const rules = self?.role === "host" && !isSelf;
    const mayClimb = !room?.seats.some(({ user }) => user === peer.user) && !room?.invites[peer.user];
    card.invite.hidden = !rules || !mayClimb;
    card.kick.hidden = !rules || peer.user === room?.creator;
    if (!card.root.isConnected) this.#list.append(card.root);
  }

  #make(user: string): Card {
    const root = element("li", "peer");
    root.dataset.testid = `peer-${user}`;
    const video = element("video");
    Object.assign(video, { autoplay: true, playsInline: true, muted: true, hidden: true });
    const audio = element("audio");
    audio.autoplay = true;
    const name = element("strong", "", user);
    const about = element("span", "about");
    const meter = element("div", "meter");
    meter.dataset.testid = `level-${user}`;
    for (const [key, value] of Object.entries({
      role: "meter",
      "aria-valuemin": "0",
      "aria-valuemax": "1",
    })) {
      meter.setAttribute(key, value);
    }
    meter.setAttribute("aria-label", `Sound of ${user}`);
    const buttons = element("div", "toggles");
    const toggles = new Map<Flag, HTMLButtonElement>();
    for (const { flag, label } of FLAGS) {
      const button = element("button", "toggle", label);
      button.dataset.testid = `${flag}-${user}`;
      button.onclick = () => {
        const state: GuestState = { [flag]: button.getAttribute("aria-pressed") !== "true" };
        this.#ask("guest:update", { user, state });
      };
      toggles.set(flag, button);
      buttons.append(button);
    }
    const invite = element("button", "toggle", "Invite");
    invite.title = `Invite ${user} to a seat`;
    invite.dataset.testid = `invite-${user}`;
    invite.onclick = () => this.#ask("mic:invite", { user });
    const kick = element("button", "toggle danger", "Send out");
    kick.title = `Send ${user} out of the room for ${KICK_SECONDS} seconds`;
    kick.dataset.testid = `kick-${user}`;
    kick.onclick = () => this.#ask("room:kick", { user, banSeconds: KICK_SECONDS });
    buttons.append(invite, kick);
    root.append(video, audio, name, about, meter, buttons);
    const card = { root, about, meter, video, audio, toggles, invite, kick };
    this.#cards.set(user, card);
    return card;
  }
}

export function element<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, name = "", text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function attach(player: HTMLMediaElement, tracks: MediaStreamTrack[]): void {
  const now = player.srcObject instanceof MediaStream ? player.srcObject.getTracks() : [];
  if (now.length === tracks.length && now.every((track) => tracks.includes(track))) return;
  player.srcObject = tracks.length > 0 ? new MediaStream(tracks) : null;
}
