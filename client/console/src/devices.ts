/** The page's own microphone, on and off as wished, and its camera. */
export class Devices {
  /** What there is of both just now. */
  readonly stream = new MediaStream();
  readonly #changed: () => void;
  readonly #failed: (what: string, error: unknown) => void;
  #muted = false;
  #closed = false;

  constructor(changed: () => void, failed: (what: string, error: unknown) => void) {
    this.#changed = changed;
    this.#failed = failed;
  }

  get on(): boolean {
    return this.stream.getAudioTracks().length > 0;
  }

  get muted(): boolean {
    return this.#muted;
  }

  set muted(muted: boolean) {
    this.#muted = muted;
    for (const track of this.stream.getAudioTracks()) track.enabled = !muted;
  }

  /** Opens what is wished for; with a camera that cannot be had it makes do with the microphone. */
  async open(microphone: boolean, camera: boolean): Promise<void> {
    if (camera && (await this.#add("camera", microphone, true))) return;
    if (microphone) await this.#add("microphone", true, false);
  }

  /** Turns the microphone on; false if it cannot be had. */
  async start(): Promise<boolean> {
    return this.on || (await this.#add("microphone", true, false));
  }

  /** Turns the microphone off for good: what sends its track sends nothing more. */
  stop(): void {
    for (const track of this.stream.getAudioTracks()) this.#remove(track);
    this.#changed();
  }

  close(): void {
    this.#closed = true;
    for (const track of this.stream.getTracks()) this.#remove(track);
  }

  async #add(what: string, microphone: boolean, camera: boolean): Promise<boolean> {
    const audio = microphone && { echoCancellation: true, noiseSuppression: true };
    const video = camera && { width: 640, height: 360 };
    let opened: MediaStream;
    try {
      opened = await navigator.mediaDevices.getUserMedia({ audio, video });
    } catch (error) {
      this.#failed(what, error);
      return false;
    }
    for (const track of opened.getTracks()) {
      // Somebody may have left, or asked twice, while the browser asked for permission.
      const isWanted = !this.#closed && !this.stream.getTracks().some(({ kind }) => kind === track.kind);
      if (!isWanted) {
        track.stop();
        continue;
      }
      track.onended = () => {
        this.#remove(track);
        this.#changed();
      };
      this.stream.addTrack(track);
    }
    this.muted = this.#muted;
    this.#changed();
    return true;
  }

  #remove(track: MediaStreamTrack): void {
    track.stop();
    this.stream.removeTrack(track);
  }
}
