export { Dais, type DaisOptions } from "./dais.ts";
export { DaisError, type DaisErrorCode } from "./error.ts";
export type * from "./protocol.ts";
export type { Room, RoomEvents, UpdateOptions } from "./room.ts";
export type { End, JoinOptions } from "./stay.ts";
export type { TokenSource } from "./tokens.ts";
