import { Refused, type Room } from "./room.ts";
import { connect, type Instance } from "./server.ts";

/** The form that changes a setting through an instance which does not own the room. */
export class Elsewhere {
  readonly #card: HTMLElement;
  readonly #instance: HTMLSelectElement;
  readonly #value: HTMLSelectElement;
  readonly #result: HTMLElement;
  #instances: NonNullable<Instance["instances"]> = [];

  constructor(card: HTMLElement, form: HTMLFormElement, room: () => Room | null, token: () => string) {
    this.#card = card;
    this.#instance = form.elements.namedItem("instance") as HTMLSelectElement;
    this.#value = form.elements.namedItem("value") as HTMLSelectElement;
    this.#result = form.querySelector("output") as HTMLElement;
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#write(room(), token());
    };
  }

  /** `owner` is the instance to leave out; without one, or without another instance, there is nothing to show. */
  render(instances: Instance["instances"] = [], owner?: string): void {
    this.#instances = instances;
    const others = instances.filter(({ name }) => owner && name !== owner);
    this.#card.hidden = others.length === 0;
    if ([...this.#instance.options].map(({ text }) => text).join() === others.map(({ name }) => name).join())
      return;
    this.#instance.replaceChildren(...others.map(({ name, publicUrl }) => new Option(name, publicUrl)));
  }

  async #write(room: Room | null, token: string): Promise<void> {
    const url = this.#instance.value;
    const name = this.#instances.find((each) => each.publicUrl === url)?.name ?? url;
    this.#result.textContent = "…";
    const socket = connect(url, () => ({ token, platform: "web" }), false);
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once("connect", resolve);
        socket.once("connect_error", reject);
      });
      const body = { room: room?.state.room?.id ?? "", settings: { noiseReduction: this.#value.value } };
      const ack = await socket.timeout(8000).emitWithAck("room:update", body);
      if (!ack.ok) throw new Refused(ack.error);
      this.#result.textContent = `${name} accepted ${body.settings.noiseReduction}`;
      this.#value.selectedIndex = (this.#value.selectedIndex + 1) % this.#value.options.length;
    } catch (error) {
      this.#result.textContent = "";
      room?.fail(`room:update through ${name}`, error);
    } finally {
      socket.disconnect();
    }
  }
}
