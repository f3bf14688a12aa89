// Starts the server: `DAIS_SECRET=… DAIS_URL=https://dais.example ANNOUNCED=203.0.113.7 npm start`.

import { createWorker, type types } from "mediasoup";
import { api } from "./api.ts";
import { clients } from "./client.ts";
import { Outbox } from "./events.ts";
import { serve } from "./http.ts";
import { Rooms } from "./rooms.ts";

function setting(name: string, otherwise?: string): string {
  const value = process.env[name] ?? otherwise;
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

/** Several, separated by commas, while the secret is changed; events are signed with the first. */
const secrets = setting("DAIS_SECRET").split(",");
const daisUrl = setting("DAIS_URL");
const port = Number(setting("PORT", "4443"));
const mediaPort = Number(setting("MEDIA_PORT", "40000"));

const worker = await createWorker({ logLevel: "warn" });
worker.on("died", () => {
  // All media went with it. Restarted, this server knows no router: the coordinators make new ones.
  console.error("the mediasoup worker died");
  process.exit(1);
});

const listen = (protocol: "udp" | "tcp"): types.TransportListenInfo => ({
  protocol,
  ip: setting("LISTEN", "0.0.0.0"),
  announcedAddress: setting("ANNOUNCED"),
  port: mediaPort,
});
const webRtcServer = await worker.createWebRtcServer({ listenInfos: [listen("udp"), listen("tcp")] });

const outboxes = new Map<string, Outbox>();
function outbox(app: string): Outbox {
  const known = outboxes.get(app);
  if (known) return known;
  const made = new Outbox(`${daisUrl}/rtc/generic/${encodeURIComponent(app)}`, secrets[0] ?? "");
  outboxes.set(app, made);
  return made;
}

const clientUrl = setting("CLIENT_URL", `http://localhost:${port}/client`);
const rooms = new Rooms({ worker, webRtcServer, clientUrl, outbox });
const dais = api(rooms, secrets);
const server = serve({ routers: dais, health: dais, client: clients(rooms) });
server.listen(port, () => console.log(`Dais may call port ${port}`));
