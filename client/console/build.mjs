// Bundles the page into dist/: index.html, console.js, console.css, in chunks/ what only some pages load, and
// licenses.txt.
import { execFile } from "node:child_process";
import { copyFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";

const at = (path) => new URL(path, import.meta.url).pathname;

await rm(at("dist"), { recursive: true, force: true });
await build({
  entryPoints: [
    { in: at("src/main.ts"), out: "console" },
    { in: at("src/console.css"), out: "console" },
  ],
  outdir: at("dist"),
  chunkNames: "chunks/[name]-[hash]",
  splitting: true,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof",
  logLevel: "warning",
});
await copyFile(at("src/index.html"), at("dist/index.html"));
await writeFile(at("dist/licenses.txt"), await licenses());

/** The licences of every package that the page depends on, at whatever distance. */
async function licenses() {
  const list = ["ls", "--all", "--omit=dev", "--parseable"];
  const { stdout } = await promisify(execFile)("npm", list, { cwd: at(".") });
  const found = new Map();
  for (const folder of stdout.trim().split("\n")) {
    const {
      name,
      version,
      license,
      private: isOurs,
    } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    if (isOurs) continue;
    const files = (await readdir(folder)).filter((file) => /^(licen[cs]e|notice)/i.test(file)).sort();
    const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")));
    found.set(
      `${name} ${version}`,
      [`${name} ${version}: ${license ?? "as follows"}\n`, ...texts].join("\n"),
    );
  }
  const sorted = [...found.keys()].sort().map((key) => found.get(key));
  return sorted.join(`\n${"-".repeat(78)}\n\n`);
}
