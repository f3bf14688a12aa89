// The signatures of both directions: HMAC-SHA256 with the secret that Dais and this server share.

import { createHmac, timingSafeEqual } from "node:crypto";

/** How far the other side's clock may be off, in seconds. */
const TOLERANCE = 300;

export interface SignedRequest {
  method: string;
  /** As it was sent, with its query. */
  path: string;
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
}

/**
 * Whether a request comes from Dais. While a secret is changed this server knows two: first it learns the new one, then
 * Dais signs with it, then the old one is forgotten.
 */
export function isProved(secrets: readonly string[], request: SignedRequest, nowMs = Date.now()): boolean {
  const timestamp = request.headers["dais-timestamp"];
  const signature = request.headers["dais-signature"];
  if (typeof timestamp !== "string" || !/^\d{1,20}$/.test(timestamp)) return false;
  if (Math.abs(Number(timestamp) - nowMs / 1000) > TOLERANCE) return false;
  if (typeof signature !== "string" || !/^v1=[0-9a-f]{64}$/.test(signature)) return false;

  const given = Buffer.from(signature.slice(3), "hex");
  const head = `${timestamp}\n${request.method}\n${request.path}\n`;
  return secrets.some((secret) =>
    timingSafeEqual(createHmac("sha256", secret).update(head).update(request.body).digest(), given),
  );
}

/** The headers with which Dais believes a callback. */
export function signed(secret: string, body: string, nowMs = Date.now()): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000));
  const digest = createHmac("sha256", secret).update(`${timestamp}.`).update(body).digest("hex");
  return { "dais-timestamp": timestamp, "dais-signature": `v1=${digest}` };
}
