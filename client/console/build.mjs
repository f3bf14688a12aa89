// Bundles the page into dist/: index.html, console.js, console.css.
import { copyFile, rm } from "node:fs/promises";
import { build } from "esbuild";

const at = (path) => new URL(path, import.meta.url).pathname;

await rm(at("dist"), { recursive: true, force: true });
await build({
  entryPoints: [
    { in: at("src/main.ts"), out: "console" },
    { in: at("src/console.css"), out: "console" },
  ],
  outdir: at("dist"),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof",
  logLevel: "warning",
});
await copyFile(at("src/index.html"), at("dist/index.html"));
