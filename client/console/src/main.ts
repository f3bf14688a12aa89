import type { JsonObject, MergePatch, Role, Settings, Snapshot } from "@dais/sdk/protocol";
import { Devices } from "./devices.ts";
import { Elsewhere } from "./elsewhere.ts";
import { Hosting } from "./hosting.ts";
import { Levels } from "./levels.ts";
import { keyOf, Media } from "./media/media.ts";
import type { May } from "./media/session.ts";
import type { Stats } from "./media/stats.ts";
import { element, Peers } from "./peers.ts";
import { Room, type RoomState } from "./room.ts";
import { Seats } from "./seats.ts";
import { askInstance, askToken, type Instance } from "./server.ts";
import { SettingsForm } from "./settings.ts";
import { Speakers } from "./speakers.ts";
import { type Ask, Voice } from "./voice.ts";

const METER_MS = 80;
const query = new URLSearchParams(location.search);
const at = <Kind extends HTMLElement = HTMLElement>(id: string) => document.getElementById(id) as Kind;
const joinForm = at<HTMLFormElement>("join-form");
const field = (name: string) => joinForm.elements.namedItem(name) as HTMLInputElement;

let home: Instance | null = null;
let room: Room | null = null;
let media: Media | null = null;
let own: Devices | null = null;
let voice: Voice | null = null;
let levels: Levels | null = null;
let speakers = new Speakers();
let token = "";
let permitted = "";
let pageError = "";

const ask: Ask = async (name, body) => (await voice?.ask(name, body)) ?? null;
const peers = new Peers(at("peers"), ask);
const seats = new Seats(at("seats"), at("asks"), ask);
const hosting = new Hosting(at<HTMLFormElement>("hosting-form"), ask, () => room?.state);
const elsewhere = new Elsewhere(
  at("elsewhere"),
  at<HTMLFormElement>("elsewhere-form"),
  () => room,
  () => token,
);
const settings = new SettingsForm(
  at<HTMLFormElement>("settings"),
  (patch) => ask("room:update", { settings: patch as MergePatch<Settings> }),
  (error) => room?.fail("settings", error),
);

async function start(): Promise<void> {
  const wish = {
    user: field("user").value.trim(),
    room: field("room").value.trim(),
    role: field("role").value as Role,
  };
  const renew = () => askToken(wish.user, wish.role, wish.room);
  const pasted = field("token").value.trim();
  const given = pasted || (await renew());
  if (!given) {
    at("token-field").hidden = false;
    throw new Error("this instance gives no tokens: paste one");
  }
  token = given;
  pageError = "";
  levels = new Levels();
  levels.resume();
  own = new Devices(devicesChanged, (what, error) => {
    pageError = `No ${what}: ${error}`;
    render();
  });
  await own.open(field("mic").checked, field("video").checked);
  const others = (home?.instances ?? []).map(({ publicUrl }) => publicUrl);
  const heard = new Speakers();
  speakers = heard;
  const entered = new Room(wish, token, others, pasted ? async () => null : renew, changed, (told) =>
    heard.told(told),
  );
  room = entered;
  media = new Media(
    {
      local: own.stream,
      signal: (name, sdp) => entered.request(name, { room: wish.room, sdp }),
      renew: async () => (await entered.request("media:grant", { room: wish.room })).media,
      userOf: (name) => entered.state.room?.peers.find((peer) => peer.media?.includes(name))?.user,
      changed: mediaChanged,
      failed: (of, error) => entered.fail(of, error),
    },
    query.get("relay") === "1",
  );
  voice = new Voice(entered, own, () => {
    const { kind, publish, subscribe } = media?.state ?? {};
    const isExternal = kind !== "embedded";
    return { isExternal, isConnected: publish === "connected" || (isExternal && subscribe === "connected") };
  });
  entered.enter();
}

function devicesChanged(): void {
  media?.send();
  if (room?.state.phase === "joined") voice?.follow();
  render();
}

function mediaChanged(): void {
  if (media?.isOpen && room?.state.error?.of === "media") {
    room.state.error = null;
    render();
  }
  peers.play(media?.received ?? [], own?.stream ?? null, room?.state.self?.user);
  if (room?.state.phase === "joined") voice?.follow();
}

function changed(joinedOrGrant: boolean): void {
  const state = room?.state;
  if (!state || !media) return;
  const { grant, self } = state;
  const may = permissions(state);
  const now = JSON.stringify(may);
  if (joinedOrGrant || now !== permitted) {
    const key = grant && keyOf(grant, state.room?.owner.instance ?? "", self?.peer ?? "");
    media.follow(grant, key ?? "", may);
  }
  permitted = now;
  if (state.phase === "joined") voice?.follow();
  if (state.phase === "ended" || state.phase === "idle") release();
  render();
}

/** What this page may send. To an external server sound goes from a seat, where the room has any. */
function permissions({ grant, self, room: snapshot }: RoomState): May {
  const guest = snapshot?.guests[self?.user ?? ""];
  const may = (allowed = true) => self?.role === "host" || allowed;
  const seats = snapshot?.seats ?? [];
  const kind = grant?.kind ?? media?.state.kind;
  const speaks =
    kind === "embedded" || seats.length === 0 || seats.some(({ user }) => user && user === self?.user);
  return { audio: speaks && may(guest?.micAllowed), video: may(guest?.videoAllowed) };
}

function release(): void {
  media?.close();
  own?.close();
  levels?.close();
  media = null;
  voice = null;
  levels = null;
  own = null;
}

function render(): void {
  const state: RoomState | undefined = room?.state;
  const inside = state !== undefined && state.room !== null && !["idle", "ended"].includes(state.phase);
  const snapshot = inside ? state.room : null;
  at("phase").textContent = state?.phase ?? "idle";
  at("phase").dataset.phase = state?.phase ?? "idle";
  at("page-instance").textContent = home?.instance ?? "–";
  at("url").textContent = state ? new URL(state.url).host : "–";
  at("owner-instance").textContent = snapshot?.owner.instance ?? "–";
  at("owner-token").textContent = `${snapshot?.owner.token ?? "–"}`;
  at("settings-version").textContent = `${snapshot?.version.settings ?? "–"}`;
  at("cell-version").textContent = `${snapshot?.version.cell ?? "–"}`;
  const problem = state?.error
    ? [state.error.of, ": ", state.error.code && `${state.error.code} – `, state.error.message].join("")
    : pageError;
  at("error").textContent = problem;
  at("error").hidden = problem === "";
  at("entrance").hidden = inside || ["connecting", "joining"].includes(state?.phase ?? "");
  at("stage").hidden = !inside;
  const isHost = state?.self?.role === "host";
  at("side").hidden = !inside;
  at("hosting").hidden = !isHost;
  at("log-card").hidden = !state;
  at("room-name").textContent = snapshot?.id ?? "";
  at("peer-count").textContent = `${snapshot?.peerCount ?? 0} here`;
  document.body.classList.toggle("inside", inside);

  if (state) {
    peers.render(state);
    peers.play(media?.received ?? [], own?.stream ?? null, state.self?.user);
    seats.render(state);
    ring();
    hosting.render(state);
    if (snapshot) settings.render(snapshot.settings, isHost && state.phase === "joined");
    renderLog(state);
  }
  elsewhere.render(home?.instances, isHost ? snapshot?.owner.instance : undefined);
  renderVoice(state, snapshot);
}

function renderVoice(state: RoomState | undefined, snapshot: Snapshot | null): void {
  const self = state?.self?.user ?? "";
  const all = snapshot?.seats ?? [];
  const taken = all.filter(({ user }) => user !== undefined);
  at("seat-count").textContent = all.length > 0 ? `${taken.length} of ${all.length} taken` : "none";
  at("request").hidden =
    state?.self?.role !== "guest" ||
    taken.some(({ user }) => user === self) ||
    snapshot?.requests[self] !== undefined;
  const { on = false, muted = false } = own ?? {};
  at("microphone").setAttribute("aria-pressed", String(on));
  at("microphone").title = on ? "Turn the microphone off" : "Turn the microphone on";
  at<HTMLButtonElement>("mute").disabled = !on;
  at("mute").setAttribute("aria-pressed", String(muted));
}

function renderLog({ log }: RoomState): void {
  const items = log.map(({ at: time, name, text }) => {
    const item = element("li");
    item.append(element("time", "", new Date(time).toLocaleTimeString()), element("b", "", name));
    item.append(element("span", "", text.length > 300 ? `${text.slice(0, 300)}…` : text));
    return item;
  });
  at("log").replaceChildren(...items);
}

function failed(error: unknown): void {
  pageError = error instanceof Error ? error.message : String(error);
  render();
}

joinForm.onsubmit = (event) => {
  event.preventDefault();
  start().catch(failed);
};
at("microphone").onclick = () => voice?.toggleMicrophone();
at("mute").onclick = () => {
  voice?.toggleMuted();
  render();
};
at("request").onclick = () => ask("mic:request", {});
at("leave").onclick = () => room?.leave();
addEventListener("pointerdown", () => levels?.resume());
setInterval(() => {
  const state = room?.state;
  if (!levels || !state) return;
  peers.meter(media?.received ?? [], own?.stream ?? null, state.self?.user, levels, speakers);
  if (speakers.follow(media?.speaking ?? [])) ring();
}, METER_MS);

function ring(): void {
  peers.ring(speakers.now);
  seats.ring(room?.state.room?.seats ?? [], speakers.now);
}

declare global {
  interface Window {
    dais: {
      readonly state: JsonObject;
      stats(): Promise<Stats>;
    };
  }
}
window.dais = {
  /** What the page knows, as plain data. */
  get state() {
    const state = room?.state ?? { phase: "idle" };
    return JSON.parse(
      JSON.stringify({
        ...state,
        page: home?.instance,
        media: media?.state ?? null,
        speaking: speakers.now,
        microphone: own && { on: own.on, muted: own.muted },
        pageError,
      }),
    );
  },
  stats: async () => (await media?.stats()) ?? { in: [], out: [] },
};

field("user").value = query.get("user") ?? `user-${Math.random().toString(36).slice(2, 6)}`;
field("room").value = query.get("room") ?? "lobby";
field("role").value = query.get("role") ?? "host";
field("mic").checked = query.get("mic") !== "0";
field("video").checked = query.get("video") === "1";
try {
  home = await askInstance();
  at("token-field").hidden = home.dev;
} catch (error) {
  failed(error);
}
render();
if (query.get("auto") === "1") start().catch(failed);
