/**
 * What changes, as the controller tells it. A browser allows few connections to one host, so one tab holds the stream (a Web Lock says
 * which) and tells the others.
 */

/** A change; `reset`: some were missed, load everything again. */
export interface Change {
  kind: string;
  id: string;
  action: string;
  record: unknown;
}

export type StreamState = 'open' | 'waiting';

interface Message {
  change?: Change;
  state?: StreamState;
  /** A tab that has come asks how things are. */
  asks?: true;
}

const KINDS = ['task', 'event', 'domain', 'node', 'data_pool', 'vdisk', 'file', 'scheduled_task'];
const NAME = 'virtkeep-events';
const AGAIN_MS = 3000;
const RESET: Change = { kind: 'reset', id: '', action: '', record: null };

export interface Listener {
  change: (change: Change) => void;
  state: (state: StreamState) => void;
  /** Asked before the stream is opened again. @returns false: nobody is logged in. */
  mayGoOn: () => Promise<boolean>;
}

/** Listens until the returned function is called. */
export function listen(listener: Listener): () => void {
  const ended = new AbortController();
  const channel = new BroadcastChannel(NAME);
  let leads = false;
  let lastState: StreamState = 'waiting';
  const take = ({ change, state, asks }: Message) => {
    if (change) listener.change(change);
    if (state) {
      lastState = state;
      listener.state(state);
    }
    if (asks && leads) channel.postMessage({ state: lastState } satisfies Message);
  };
  const tell = (message: Message) => {
    take(message);
    channel.postMessage(message);
  };
  channel.onmessage = ({ data }: MessageEvent<Message>) => take(data);
  channel.postMessage({ asks: true } satisfies Message);
  navigator.locks
    .request(NAME, { signal: ended.signal }, async () => {
      leads = true;
      await lead(tell, listener.mayGoOn, ended.signal);
    })
    .catch(() => {
      // it ended while it waited for its turn
    });
  return () => {
    ended.abort();
    channel.close();
  };
}

/** Holds the stream until it is over. */
async function lead(
  tell: (message: Message) => void,
  mayGoOn: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await hold(tell, signal);
    if (signal.aborted) return;
    tell({ state: 'waiting' });
    await pause(AGAIN_MS, signal);
    if (signal.aborted || !(await mayGoOn())) return;
  }
}

/**
 * Until the stream is closed for good: any answer but 200 does that, and so does a network that is cut. Nothing comes then, as when nothing
 * happens; but the browser knows.
 */
function hold(tell: (message: Message) => void, signal: AbortSignal): Promise<void> {
  const source = new EventSource('/api/events/stream/');
  let isNew = true;
  source.onopen = () => {
    tell({ state: 'open' });
    // what was before its beginning nobody was told; one that resumes tells by itself
    if (isNew) tell({ change: RESET });
    isNew = false;
  };
  for (const kind of KINDS)
    source.addEventListener(kind, ({ data }) => {
      tell({ change: { kind, ...(JSON.parse(data) as Omit<Change, 'kind'>) } });
    });
  source.addEventListener('reset', () => tell({ change: RESET }));
  return new Promise(resolve => {
    const over = new AbortController();
    const close = () => {
      over.abort();
      source.close();
      resolve();
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) close();
      // it connects anew by itself, and resumes where it was
      else tell({ state: 'waiting' });
    };
    signal.addEventListener('abort', close, { once: true, signal: over.signal });
    window.addEventListener('offline', close, { once: true, signal: over.signal });
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end);
  });
}
