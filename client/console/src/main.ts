import type { JsonObject, MergePatch, Role, Settings } from "@dais/sdk/protocol";
import { Levels } from "./levels.ts";
import { type InboundStats, Media } from "./media.ts";
import { element, Peers } from "./peers.ts";
import { Refused, Room, type RoomState } from "./room.ts";
import { askInstance, askToken, connect, type Instance } from "./server.ts";
import { SettingsForm } from "./settings.ts";

const METER_MS = 80;
const query = new URLSearchParams(location.search);
const at = <Kind extends HTMLElement = HTMLElement>(id: string) => document.getElementById(id) as Kind;
const joinForm = at<HTMLFormElement>("join-form");
const elsewhereForm = at<HTMLFormElement>("elsewhere-form");
const field = (form: HTMLFormElement, name: string) => form.elements.namedItem(name) as HTMLInputElement;

let home: Instance | null = null;
let room: Room | null = null;
let media: Media | null = null;
let own: MediaStream | null = null;
let levels: Levels | null = null;
let token = "";
let permitted = "";
let pageError = "";

const peers = new Peers(at("peers"), (user, state) => {
  const name = room?.state.room?.id ?? "";
  room
    ?.request("guest:update", { room: name, user, state })
    .catch((error) => room?.fail("guest:update", error));
});
const settings = new SettingsForm(
  at<HTMLFormElement>("settings"),
  (patch) => updateSettings(patch as MergePatch<Settings>),
  (error) => room?.fail("settings", error),
);

async function updateSettings(patch: MergePatch<Settings>): Promise<void> {
  try {
    await room?.request("room:update", { room: room.state.room?.id ?? "", settings: patch });
    render();
  } catch (error) {
    room?.fail("room:update", error);
  }
}

async function start(): Promise<void> {
  const wish = {
    user: field(joinForm, "user").value.trim(),
    room: field(joinForm, "room").value.trim(),
    role: field(joinForm, "role").value as Role,
  };
  const renew = () => askToken(wish.user, wish.role, wish.room);
  const pasted = field(joinForm, "token").value.trim();
  const given = pasted || (await renew());
  if (!given) {
    at("token-field").hidden = false;
    throw new Error("this instance gives no tokens: paste one");
  }
  token = given;
  pageError = "";
  levels = new Levels();
  levels.resume();
  own = await openDevices(field(joinForm, "video").checked);
  const others = (home?.instances ?? []).map(({ publicUrl }) => publicUrl);
  room = new Room(wish, token, others, pasted ? async () => null : renew, changed);
  media = new Media(
    own,
    (name, sdp) => (room as Room).request(name, { room: wish.room, sdp }),
    () => peers.play(media?.received ?? [], own, room?.state.self?.user),
    (of, error) => room?.fail(of, error),
  );
  room.enter();
}

/** The microphone, and the camera if asked for; the page makes do with less, and still listens without any. */
async function openDevices(video: boolean): Promise<MediaStream | null> {
  const audio = { echoCancellation: true, noiseSuppression: true };
  const wishes = [...(video ? [{ audio, video: { width: 640, height: 360 } }] : []), { audio }];
  for (const wish of wishes) {
    try {
      return await navigator.mediaDevices.getUserMedia(wish);
    } catch (error) {
      pageError = `No ${wish.video ? "camera" : "microphone"}: ${error}`;
    }
  }
  return null;
}

function changed(joinedOrGrant: boolean): void {
  const state = room?.state;
  if (!state || !media) return;
  const { grant, self } = state;
  const guest = state.room?.guests[self?.user ?? ""];
  const may = (allowed = true) => self?.role === "host" || allowed;
  const kinds = { audio: may(guest?.micAllowed), video: may(guest?.videoAllowed) };
  const now = JSON.stringify(kinds);
  if (grant?.kind === "embedded" && (joinedOrGrant || now !== permitted)) {
    media.update(grant, [grant.generation, state.room?.owner.instance, self?.peer].join(" "), kinds);
  }
  permitted = now;
  if (state.phase === "ended" || state.phase === "idle") release();
  render();
}

function release(): void {
  media?.close();
  levels?.close();
  media = null;
  levels = null;
  own = null;
}

async function writeElsewhere(): Promise<void> {
  const url = field(elsewhereForm, "instance").value;
  const result = at<HTMLOutputElement>("elsewhere-result");
  const name = room?.state.room?.id ?? "";
  result.textContent = "…";
  const socket = connect(url, () => ({ token, platform: "web" }), false);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("connect_error", reject);
    });
    const body = { room: name, settings: { noiseReduction: field(elsewhereForm, "value").value } };
    const ack = await socket.timeout(8000).emitWithAck("room:update", body);
    if (!ack.ok) throw new Refused(ack.error);
    result.textContent = `${elsewhereName(url)} accepted ${body.settings.noiseReduction}`;
    const value = field(elsewhereForm, "value") as unknown as HTMLSelectElement;
    value.selectedIndex = (value.selectedIndex + 1) % value.options.length;
  } catch (error) {
    result.textContent = "";
    room?.fail(`room:update through ${elsewhereName(url)}`, error);
  } finally {
    socket.disconnect();
  }
}

const elsewhereName = (url: string) => home?.instances?.find((each) => each.publicUrl === url)?.name ?? url;

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
    ? `${state.error.of}: ${state.error.code} – ${state.error.message}`
    : pageError;
  at("error").textContent = problem;
  at("error").hidden = problem === "";
  at("entrance").hidden = inside || ["connecting", "joining"].includes(state?.phase ?? "");
  at("stage").hidden = !inside;
  at("side").hidden = !inside;
  at("log-card").hidden = !state;
  at("room-name").textContent = snapshot?.id ?? "";
  at("peer-count").textContent = `${snapshot?.peerCount ?? 0} here`;
  document.body.classList.toggle("inside", inside);

  if (state) {
    peers.render(state);
    peers.play(media?.received ?? [], own, state.self?.user);
    if (snapshot) settings.render(snapshot.settings, state.self?.role === "host" && state.phase === "joined");
    renderLog(state);
  }
  renderElsewhere(state?.self?.role === "host" ? snapshot?.owner.instance : undefined);
}

function renderElsewhere(owner: string | undefined): void {
  const others = (home?.instances ?? []).filter(({ name }) => owner && name !== owner);
  at("elsewhere").hidden = others.length === 0;
  const select = field(elsewhereForm, "instance") as unknown as HTMLSelectElement;
  if ([...select.options].map(({ text }) => text).join() === others.map(({ name }) => name).join()) return;
  select.replaceChildren(...others.map(({ name, publicUrl }) => new Option(name, publicUrl)));
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

function toggleMute(): void {
  const tracks = own?.getAudioTracks() ?? [];
  const muted = tracks.some(({ enabled }) => enabled);
  for (const track of tracks) track.enabled = !muted;
  at("mute").textContent = muted ? "Unmute" : "Mute";
  at("mute").setAttribute("aria-pressed", String(muted));
}

function failed(error: unknown): void {
  pageError = error instanceof Error ? error.message : String(error);
  render();
}

joinForm.onsubmit = (event) => {
  event.preventDefault();
  start().catch(failed);
};
elsewhereForm.onsubmit = (event) => {
  event.preventDefault();
  writeElsewhere();
};
at("mute").onclick = toggleMute;
at("leave").onclick = () => room?.leave();
addEventListener("pointerdown", () => levels?.resume());
setInterval(() => {
  if (levels) peers.meter(media?.received ?? [], own, room?.state.self?.user, levels);
}, METER_MS);

declare global {
  interface Window {
    dais: {
      readonly state: JsonObject;
      stats(): Promise<{ in: InboundStats[] }>;
    };
  }
}
window.dais = {
  /** What the page knows, as plain data. */
  get state() {
    const state = room?.state ?? { phase: "idle" };
    return JSON.parse(
      JSON.stringify({ ...state, page: home?.instance, media: media?.state ?? null, pageError }),
    );
  },
  stats: async () => ({ in: (await media?.stats()) ?? [] }),
};

field(joinForm, "user").value = query.get("user") ?? `user-${Math.random().toString(36).slice(2, 6)}`;
field(joinForm, "room").value = query.get("room") ?? "lobby";
field(joinForm, "role").value = query.get("role") ?? "host";
field(joinForm, "video").checked = query.get("video") === "1";
try {
  home = await askInstance();
  at("token-field").hidden = home.dev;
} catch (error) {
  failed(error);
}
render();
if (query.get("auto") === "1") start().catch(failed);
