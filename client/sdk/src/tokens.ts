export type TokenSource = string | (() => string | Promise<string>);

/** The token in use. However many ask for another at a time, the app is asked once. */
export class Tokens {
  readonly #source: TokenSource;
  #token: string | null = null;
  #asking: Promise<string> | null = null;

  constructor(source: TokenSource) {
    this.#source = source;
  }

  async current(): Promise<string> {
    return this.#token ?? this.renew();
  }

  get canRenew(): boolean {
    return typeof this.#source !== "string";
  }

  renew(): Promise<string> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  async #ask(): Promise<string> {
    this.#token = typeof this.#source === "string" ? this.#source : await this.#source();
    return this.#token;
  }
}
