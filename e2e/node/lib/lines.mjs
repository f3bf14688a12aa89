// The wire between a driver and its parent: one JSON object a line, commands in on stdin, replies and
// pushed events out on stdout. Commands run concurrently; a reply carries the id of its command.
import { createInterface } from "node:readline";

/** @typedef {Record<string, any>} Command  `id`, `op` and what that operation takes */
/** @typedef {Record<string, unknown>} Fields */
/** @typedef {(command: Command) => Promise<Fields | void> | Fields | void} Operation */

/** A failed operation; `details` become fields of the reply. */
export class OperationError extends Error {
  /**
   * @param {string} message
   * @param {Fields} [details]
   */
  constructor(message, details = {}) {
    super(message);
    this.details = details;
  }
}

/** Milliseconds since the Unix epoch, with a fraction. */
export const now = () => performance.timeOrigin + performance.now();

/** @param {Fields} line */
export function push(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/**
 * Runs commands until `quit` or the end of stdin, so that no driver outlives its parent.
 *
 * @param {Record<string, Operation>} operations
 * @param {() => Promise<void> | void} stop  releases what the driver holds
 */
export async function serve(operations, stop) {
  const end = async () => {
    await stop();
    process.exit(0);
  };
  const input = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
  input.on("close", end);
  for await (const line of input) {
    if (line.trim() === "") continue;
    /** @type {Command} */
    let command;
    try {
      command = JSON.parse(line);
    } catch (cause) {
      push({ id: null, ok: false, error: `not JSON: ${cause}` });
      continue;
    }
    if (command.op === "quit") {
      push({ id: command.id, ok: true });
      await end();
    }
    run(operations, command);
  }
}

/**
 * @param {Record<string, Operation>} operations
 * @param {Command} command
 */
async function run(operations, command) {
  const { id, op } = command;
  try {
    const operation = operations[op];
    if (!operation) throw new OperationError(`no such operation: ${op}`);
    push({ id, ok: true, ...(await operation(command)) });
  } catch (error) {
    const details = error instanceof OperationError ? error.details : {};
    push({ id, ok: false, error: error instanceof Error ? error.message : String(error), ...details });
  }
}
