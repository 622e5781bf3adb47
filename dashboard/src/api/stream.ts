// A stream of server-sent events that comes back by itself and misses nothing: it goes on behind the last position it has seen. While the
// tab is hidden it is closed, since over HTTP/1.1 a browser has six connections to a host for all of its tabs.

import { isObject, parse, type JsonObject } from '../data/json';
import { send } from './client';

export type StreamStatus = 'Connecting' | 'Live' | 'Reconnecting' | 'Paused';

export interface StreamOptions {
  /** The path below the API's, with its query but without after. */
  path: string;
  /** The position to begin behind. */
  after: string;
  /** Called with the events that came since the last call, at most once a frame. */
  events: (events: JsonObject[]) => void;
  status: (status: StreamStatus) => void;
  /**
   * The most events of one call: of more, the newest are read, and the others are counted as skipped. Without it all
   * are read.
   */
  most?: () => number;
}

/** The most events that wait for a frame. Those beyond it are counted only. */
const maxWaiting = 20_000;

export class Stream {
  private after: string;
  private abort: AbortController | null = null;
  private closed = false;
  private waiting: string[] = [];
  private frame = 0;
  private failures = 0;
  private timer = 0;
  /** Events that came faster than they could be shown, since the last look at it. */
  skipped = 0;

  constructor(private readonly o: StreamOptions) {
    this.after = o.after;
    document.addEventListener('visibilitychange', this.visibility);
    if (document.hidden) o.status('Paused');
    else void this.connect();
  }

  /** Ends the stream for good. */
  close() {
    this.closed = true;
    document.removeEventListener('visibilitychange', this.visibility);
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    this.abort?.abort();
  }

  private visibility = () => {
    if (document.hidden) {
      clearTimeout(this.timer);
      this.abort?.abort();
      this.abort = null;
      this.o.status('Paused');
    } else if (!this.abort && !this.closed) {
      void this.connect();
    }
  };

  private async connect() {
    const abort = new AbortController();
    this.abort = abort;
    this.o.status(this.failures ? 'Reconnecting' : 'Connecting');
    try {
      const path = this.o.path + (this.o.path.includes('?') ? '&' : '?') + `after=${encodeURIComponent(this.after)}&heartbeat=10s`;
      const r = await send(path, { headers: { Accept: 'text/event-stream' }, signal: abort.signal });
      if (!r.ok || !r.body) throw new Error(String(r.status));
      this.o.status('Live');
      this.failures = 0;
      await this.read(r.body);
    } catch {
      // What ended it does not matter: it is tried again below, unless it was closed here.
    }
    if (this.closed || this.abort !== abort) return;
    this.abort = null;
    if (document.hidden) return;
    this.failures++;
    this.o.status('Reconnecting');
    this.timer = window.setTimeout(() => void this.connect(), Math.min(10_000, 250 * 2 ** Math.min(this.failures, 6)) * (0.75 + Math.random() / 2));
  }

  private async read(body: ReadableStream<Uint8Array>) {
    const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
    let rest = '';
    let id = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line.startsWith('id: ')) id = line.slice(4);
        else if (line.startsWith('data: ')) this.take(line.slice(6));
        else if (line === '' && id) this.after = id;
      }
    }
  }

  private take(text: string) {
    if (this.waiting.length >= maxWaiting) {
      this.skipped++;
      return;
    }
    this.waiting.push(text);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      let texts = this.waiting;
      this.waiting = [];
      const most = this.o.most?.() ?? Infinity;
      if (texts.length > most) {
        this.skipped += texts.length - most;
        texts = texts.slice(-most);
      }
      this.o.events(texts.map((t) => parse(t)).filter(isObject));
    });
  }
}

