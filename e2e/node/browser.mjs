// Drives pages of one headless Chromium for the end-to-end tests. Every operation, its fields and its reply:
// README.md.
import { chromium } from "playwright-core";
import { now, OperationError, push, serve } from "./lib/lines.mjs";

/** @typedef {import("./lib/lines.mjs").Command} Command */
/** @typedef {{ type: string, text: string, t: number }} ConsoleLine */
/** @typedef {{ page: import("playwright-core").Page, console: ConsoleLine[] }} Tab */

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--use-fake-ui-for-media-stream",
  "--use-fake-device-for-media-stream",
  "--allow-loopback-in-peer-connection",
  "--autoplay-policy=no-user-gesture-required",
  // Tabs in the background would have their timers slowed down, and the tests drive several at once.
  "--disable-background-timer-throttling",
  "--disable-backgrounding-occluded-windows",
  "--disable-renderer-backgrounding",
];
const POLL_MS = 50;

/** @type {Promise<import("playwright-core").Browser> | undefined} */
let launched;
/** @type {Map<string, Tab>} */
const tabs = new Map();

function browser() {
  launched ??= chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    ignoreDefaultArgs: ["--mute-audio"],
  });
  return launched;
}

/** @param {string} name */
function tab(name) {
  const found = tabs.get(name);
  if (!found) throw new OperationError(`no such page: ${name}`);
  return found;
}

/**
 * Opens a page in a browser context of its own, so that pages share no storage.
 *
 * @param {Command} command
 */
async function open({
  page: name,
  url,
  colorScheme = "light",
  width = 1280,
  height = 900,
  timeoutMs = 30_000,
}) {
  await tabs.get(name)?.page.context().close();
  const context = await (await browser()).newContext({
    colorScheme,
    viewport: { width, height },
    permissions: ["microphone", "camera"],
  });
  const page = await context.newPage();
  /** @type {ConsoleLine[]} */
  const lines = [];
  const add = (/** @type {string} */ type, /** @type {string} */ text) => {
    const line = { type, text, t: now() };
    lines.push(line);
    if (type === "error" || type === "pageerror") push({ event: "console", page: name, ...line });
  };
  page.on("console", (message) => add(message.type(), message.text()));
  page.on("pageerror", (error) => add("pageerror", error.stack ?? error.message));
  tabs.set(name, { page, console: lines });
  const response = await page.goto(url, { waitUntil: "domcontentloaded", timeout: timeoutMs });
  return { status: response?.status() ?? null };
}

/**
 * Polls an expression in the page until it is truthy. An expression that throws counts as not yet, so that it
 * may look into what the page has still to make.
 *
 * @param {Command} command
 */
async function waitFor({ page: name, expression, timeoutMs = 15_000 }) {
  const { page } = tab(name);
  const deadline = performance.now() + timeoutMs;
  let last = "";
  for (;;) {
    try {
      const value = await page.evaluate(expression);
      if (value) return { value };
      last = JSON.stringify(value) ?? "undefined";
    } catch (error) {
      last = String(error);
    }
    if (performance.now() > deadline) {
      throw new OperationError(`not true within ${timeoutMs} ms: ${expression}`, { timeout: true, last });
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

await serve(
  {
    open,
    async goto({ page, url, timeoutMs = 30_000 }) {
      await tab(page).page.goto(url, { waitUntil: "domcontentloaded", timeout: timeoutMs });
    },
    async reload({ page, timeoutMs = 30_000 }) {
      await tab(page).page.reload({ waitUntil: "domcontentloaded", timeout: timeoutMs });
    },
    async closePage({ page }) {
      await tab(page).page.context().close();
      tabs.delete(page);
    },
    async click({ page, selector, timeoutMs = 10_000 }) {
      await tab(page).page.click(selector, { timeout: timeoutMs });
    },
    async fill({ page, selector, text, timeoutMs = 10_000 }) {
      await tab(page).page.fill(selector, text, { timeout: timeoutMs });
    },
    async select({ page, selector, value, timeoutMs = 10_000 }) {
      await tab(page).page.selectOption(selector, value, { timeout: timeoutMs });
    },
    async text({ page, selector, timeoutMs = 10_000 }) {
      return { text: await tab(page).page.textContent(selector, { timeout: timeoutMs }) };
    },
    waitFor,
    async eval({ page, expression }) {
      return { value: await tab(page).page.evaluate(expression) };
    },
    async screenshot({ page, path, fullPage = true }) {
      await tab(page).page.screenshot({ path, fullPage });
    },
    console({ page, since = 0 }) {
      const lines = tab(page).console;
      return { lines: lines.slice(since), next: lines.length };
    },
  },
  async () => {
    await (await launched)?.close();
  },
);
