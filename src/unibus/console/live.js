// Server-sent events with reconnection: a lost connection is shown, and retried until it works.
//
// A browser reconnects by itself after a network error, but not after an error status (503 while the store is being
// reopened, 401 after a key was replaced). Such a stream is opened again here.

const RETRY_MS = 2000;
const SILENT_MS = 20_000;

export const api = new URL("../unibus/v1/", import.meta.url);

export class Stream {
  // `handlers` by the name of the event, each with the parsed data; `onState` gets "live" or "lost".
  constructor(path, handlers, onState) {
    this.path = path;
    this.handlers = handlers;
    this.onState = onState;
    this.source = null;
    this.timer = 0;
    this.open();
  }

  open() {
    this.close();
    const source = new EventSource(new URL(this.path, api));
    this.source = source;
    for (const [name, handle] of Object.entries(this.handlers)) {
      source.addEventListener(name, (event) => {
        this.expect();
        this.onState("live");
        handle(JSON.parse(event.data));
      });
    }
    source.onerror = () => {
      this.onState("lost");
      if (source.readyState === EventSource.CLOSED) this.again();
    };
    this.expect();
  }

  // A connection may be lost without an error: a laptop that slept, a network that changed.
  expect() {
    clearTimeout(this.timer);
    if (!this.handlers.status) return;
    this.timer = setTimeout(() => {
      this.onState("lost");
      this.open();
    }, SILENT_MS);
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), RETRY_MS);
  }

  close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }
}

export async function read(path) {
  const answer = await fetch(new URL(path, api), { headers: { accept: "application/json" } });
  if (!answer.ok) throw Object.assign(new Error(answer.statusText), { status: answer.status });
  return answer.json();
}
