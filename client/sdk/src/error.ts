import { ERRORS } from "./errors.generated.ts";
import type { ApiError, ErrorCode } from "./protocol.ts";

/** `UNREACHABLE`: nobody answered at that address, or the connection was lost. `ENDED`: the room was left or closed. */
export type DaisErrorCode = ErrorCode | "UNREACHABLE" | "ENDED";

/** The one error that this package throws. */
export class DaisError extends Error {
  override readonly name = "DaisError";
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  /** Finds the request in the instance's log; missing where no instance answered. */
  readonly requestId: string | undefined;
  readonly redirectUrl: string | undefined;

  constructor(
    readonly code: DaisErrorCode,
    message: string,
    more: Partial<ApiError> = {},
  ) {
    super(`${code}: ${message}`);
    this.retryable = more.retryable ?? code === "UNREACHABLE";
    this.retryAfterMs = more.retryAfterMs;
    this.requestId = more.requestId;
    this.redirectUrl = more.redirectUrl;
  }

  static of(error: ApiError): DaisError {
    return new DaisError(error.code, error.message, error);
  }

  /** Whether to try again is the client's concern, not the app's. */
  get isHidden(): boolean {
    if (this.code === "UNREACHABLE") return true;
    // An instance that is newer than this package may have codes that the table lacks.
    if (this.code === "ENDED" || !(this.code in ERRORS)) return false;
    return ERRORS[this.code].show === "hide";
  }
}
