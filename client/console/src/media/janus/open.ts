import type { JanusGrant } from "@dais/sdk/protocol";
import type { Open } from "../session.ts";
import { AudioBridge } from "./audiobridge.ts";
import { VideoRoom } from "./videoroom.ts";

export const open: Open<JanusGrant> = (grant, may, port) =>
  grant.plugin === "audiobridge" ? new AudioBridge(grant, may, port) : new VideoRoom(grant, may, port);
