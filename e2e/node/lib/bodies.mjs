// Request bodies that are easier to describe than to write down: binary attachments, very long strings, deep
// nesting, and templates filled in with the number of the request.

/**
 * Builds a body: `{"$binary": n}` is a Buffer of n bytes, `{"$string": n}` a string of n letters,
 * `{"$nested": n}` an object n levels deep.
 *
 * @param {any} value
 * @returns {any}
 */
export function build(value) {
  if (Array.isArray(value)) return value.map(build);
  if (value === null || typeof value !== "object") return value;
  const [key, ...others] = Object.keys(value);
  if (others.length === 0) {
    if (key === "$binary") return Buffer.alloc(value.$binary, 0xda);
    if (key === "$string") return "x".repeat(value.$string);
    if (key === "$nested") return nested(value.$nested);
  }
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, build(v)]));
}

/** @param {number} depth */
function nested(depth) {
  let value = /** @type {any} */ ({});
  for (let level = 1; level < depth; level++) value = { a: value };
  return value;
}

/**
 * Fills in a template: `{i}` within a string or a key becomes the number, `{conn}` the connection's name;
 * a string that is nothing but `{i}` becomes the number itself.
 *
 * @param {any} template
 * @param {number} i
 * @param {string} conn
 * @returns {any}
 */
export function fill(template, i, conn) {
  /** @param {string} text */
  const text = (text) => text.replaceAll("{i}", String(i)).replaceAll("{conn}", conn);
  if (template === "{i}") return i;
  if (typeof template === "string") return text(template);
  if (Array.isArray(template)) return template.map((item) => fill(item, i, conn));
  if (template === null || typeof template !== "object") return template;
  return Object.fromEntries(Object.entries(template).map(([k, v]) => [text(k), fill(v, i, conn)]));
}
