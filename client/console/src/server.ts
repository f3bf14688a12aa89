import type { Auth, Role } from "@dais/sdk/protocol";
import { io, type Socket } from "socket.io-client";

/** What `GET ./instance` says about the instance that served the page. */
export interface Instance {
  instance: string;
  publicUrl: string;
  dev: boolean;
  instances?: { name: string; publicUrl: string }[];
}

/** Where the page came from, without `/console/`. */
export const HOME = new URL("..", location.href).href;

export async function askInstance(): Promise<Instance> {
  const response = await fetch("./instance");
  if (!response.ok) throw new Error(`GET ./instance: ${response.status}`);
  return response.json();
}

/** A token for development, or `null` where the instance gives none. */
export async function askToken(user: string, role: Role, room: string): Promise<string | null> {
  const response = await fetch("./token", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ user, role, room }),
  });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`POST ./token: ${response.status} ${await response.text()}`);
  return (await response.json()).token;
}

/** Connects to the instance at a base URL, which may have a path of its own (`/i/{instance}`). */
export function connect(url: string, auth: () => Auth, reconnection = true): Socket {
  const { origin, pathname } = new URL(url);
  return io(origin, {
    path: `${pathname.replace(/\/+$/, "")}/socket.io/`,
    auth: (give) => give(auth()),
    transports: ["websocket", "polling"],
    reconnection,
    reconnectionDelay: 300,
    reconnectionDelayMax: 2000,
    timeout: 5000,
    forceNew: true,
  });
}
