/** Sound levels, 0 to 1, of tracks; a track is measured from the first time it is asked about. */
export class Levels {
  readonly #context = new AudioContext();
  readonly #meters = new Map<
    MediaStreamTrack,
    { analyser: AnalyserNode; samples: Float32Array<ArrayBuffer> }
  >();

  /** Browsers start the context only after the person has done something on the page. */
  resume(): void {
    if (this.#context.state === "suspended") this.#context.resume();
  }

  of(track: MediaStreamTrack, receiver?: RTCRtpReceiver): number {
    if (this.#context.state !== "running") {
      return scale(receiver?.getSynchronizationSources?.()[0]?.audioLevel ?? 0);
    }
    let meter = this.#meters.get(track);
    if (!meter) {
      for (const old of this.#meters.keys()) if (old.readyState === "ended") this.#meters.delete(old);
      const analyser = this.#context.createAnalyser();
      analyser.fftSize = 1024;
      this.#context.createMediaStreamSource(new MediaStream([track])).connect(analyser);
      meter = { analyser, samples: new Float32Array(analyser.fftSize) };
      this.#meters.set(track, meter);
    }
    meter.analyser.getFloatTimeDomainData(meter.samples);
    let peak = 0;
    for (const sample of meter.samples) peak = Math.max(peak, Math.abs(sample));
    return scale(peak);
  }

  async close(): Promise<void> {
    await this.#context.close();
  }
}

/** An amplitude on a scale of 50 dB, as the ear takes it. */
function scale(amplitude: number): number {
  return amplitude <= 0 ? 0 : Math.min(1, Math.max(0, 1 + (20 * Math.log10(amplitude)) / 50));
}
