/** Typed listeners; what one of them throws is reported and keeps no other from hearing. */
export class Listeners<Events> {
  readonly #byName = new Map<keyof Events, Set<(body: never) => void>>();

  on<Name extends keyof Events>(name: Name, listener: (body: Events[Name]) => void): () => void {
    const those = this.#byName.get(name) ?? new Set();
    this.#byName.set(name, those.add(listener));
    return () => those.delete(listener);
  }

  tell<Name extends keyof Events>(name: Name, body: Events[Name]): void {
    for (const listener of [...(this.#byName.get(name) ?? [])]) {
      try {
        (listener as (body: Events[Name]) => void)(body);
      } catch (error) {
        console.error(error);
      }
    }
  }

  clear(): void {
    this.#byName.clear();
  }
}
