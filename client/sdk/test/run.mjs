// Compiles the tests, for Node.js versions that do not read TypeScript, and runs them.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const names = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
rmSync("dist/test", { recursive: true, force: true });
await build({
  entryPoints: names.map((name) => `test/${name}`),
  outdir: "dist/test",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  packages: "external",
  platform: "node",
  format: "esm",
  sourcemap: "inline",
  logLevel: "warning",
});
const files = names.map((name) => `dist/test/${name.replace(/ts$/, "mjs")}`);
const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], {
  stdio: "inherit",
});
process.exitCode = status ?? 1;
