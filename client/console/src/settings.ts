import type { Json, JsonObject, Settings } from "@dais/sdk/protocol";
import { difference } from "./patch.ts";

type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

/** The settings form: shows what the room has and sends each change as a merge patch. */
export class SettingsForm {
  readonly #fields: Field[];
  #shown: JsonObject = {};

  constructor(form: HTMLFormElement, send: (patch: JsonObject) => void, failed: (error: unknown) => void) {
    this.#fields = [...form.querySelectorAll<Field>("[data-path]")];
    form.onsubmit = (event) => event.preventDefault();
    for (const field of this.#fields) {
      field.addEventListener("input", () => echo(field));
      field.addEventListener("change", () => {
        try {
          const patch = this.#patch(field);
          if (Object.keys(patch).length > 0) send(patch);
        } catch (error) {
          failed(error);
        }
      });
    }
  }

  /** A field that is being edited keeps what was typed. */
  render(settings: Settings, editable: boolean): void {
    this.#shown = settings as unknown as JsonObject;
    for (const field of this.#fields) {
      field.disabled = !editable;
      if (field === document.activeElement && field.matches("textarea, input:not([type=checkbox])")) continue;
      const value = path(field).reduce<Json | undefined>(
        (at, key) => (at && typeof at === "object" && !Array.isArray(at) ? at[key] : undefined),
        this.#shown,
      );
      if (field instanceof HTMLInputElement && field.type === "checkbox") field.checked = value === true;
      else field.value = field.dataset.path === "custom" ? JSON.stringify(value ?? {}, null, 1) : `${value}`;
      echo(field);
    }
  }

  #patch(field: Field): JsonObject {
    const [first = "", second] = path(field);
    if (first === "custom") {
      const wanted = JSON.parse(field.value || "{}");
      const patch = difference((this.#shown.custom ?? {}) as JsonObject, wanted);
      return Object.keys(patch).length > 0 ? { custom: patch } : {};
    }
    const value = entered(field);
    return { [first]: second === undefined ? value : { [second]: value } };
  }
}

const path = (field: Field) => (field.dataset.path ?? "").split(".");

function entered(field: Field): Json {
  if (!(field instanceof HTMLInputElement)) return field.value;
  if (field.type === "checkbox") return field.checked;
  return field.type === "number" || field.type === "range" ? field.valueAsNumber : field.value;
}

function echo(field: Field): void {
  const output = field.parentElement?.querySelector("output");
  if (output) output.textContent = Number(field.value).toFixed(2);
}
