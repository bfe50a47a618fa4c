/** Who is logged in, what they may do, and the stream that tells what changes. */
import { type QueryClient, useQuery, useQueryClient } from '@tanstack/react-query';
import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
} from 'react';
import {
  ApiError,
  answer,
  api,
  beginLogin,
  onLoggedOut,
  type Session,
  sameLogin,
  stopReading,
} from './api/client.ts';
import { keepFor } from './live/kept-uploads.ts';
import { throttledRefresh } from './live/refresh.ts';
import { listen, type StreamState } from './live/stream.ts';
import { forgetTasks } from './live/tasks.ts';
import { forgetUploads } from './live/uploads.ts';

const CHANNEL = 'virtkeep-session';
/** The login is prolonged when this share of its life is left. */
const PROLONG_AT = 0.5;
const SHORTEST_MS = 10_000;
const LONGEST_MS = 3_600_000;
/** When it could not be prolonged. */
const AGAIN_MS = 60_000;
/** Until a logout counts as failed: nothing is read meanwhile. */
const LOGOUT_MS = 10_000;
/** Between two tries to find out who is logged in, while the controller does not answer. */
const ABSENT_MS = 5000;

interface SessionState {
  session: Session;
  stream: StreamState;
  /** Whether the role allows it. */
  may: (permission: string) => boolean;
  logout: () => Promise<void>;
}

const SessionContext = createContext<SessionState | null>(null);

export function useSession(): SessionState {
  const state = useContext(SessionContext);
  if (state === null) throw new Error('outside of a login');
  return state;
}

/** First parts of the keys of what a new login does not ask for anew: who is logged in, and what a form was opened with. */
const KEPT = ['session', 'shown'];

/** Of the query who is logged in. */
export const SESSION_KEY = ['session'];

async function ask(init: { signal?: AbortSignal } = {}): Promise<Session | null> {
  try {
    return await answer(api.GET('/api/session/', init));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** @throws ApiError: somebody is still logged in, as far as is known */
async function endLogin(): Promise<void> {
  const limit = () => ({ signal: AbortSignal.timeout(LOGOUT_MS) });
  try {
    await answer(api.DELETE('/api/session/', limit()));
  } catch (error) {
    const hasEnded = error instanceof ApiError && error.status === 401;
    // only the answer may have been lost
    if (!hasEnded && (await ask(limit()).catch(() => undefined)) !== null) throw error;
  }
}

/** Of somebody else nothing stays. */
function forgetAll(client: QueryClient): void {
  forgetTasks();
  forgetUploads();
  client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== SESSION_KEY[0] });
}

/** What was shown may be old, and is asked for anew where it is shown. */
const askAll = (client: QueryClient): Promise<void> =>
  client.invalidateQueries({ predicate: ({ queryKey }) => !KEPT.includes(String(queryKey[0])) });

/** What is not shown while somebody logs in again is there afterwards, however long that takes. */
function keepAll(client: QueryClient): void {
  for (const query of client.getQueryCache().findAll({ type: 'active' }))
    query.setOptions({ ...query.options, gcTime: Number.POSITIVE_INFINITY });
}

/**
 * The login as the controller knows it; null: nobody is logged in. Where a login has ended by itself, `lapsed` is that one: who logs in again
 * finds everything as it was left.
 */
export function useLogin() {
  const client = useQueryClient();
  const [lapsed, setLapsed] = useState<Session | null>(null);
  const last = useRef<Session | null>(null);
  const askAnew = async () => {
    const isSame = sameLogin();
    const session = await ask();
    // somebody has logged in or out here meanwhile
    if (!isSame()) return client.getQueryData<Session | null>(SESSION_KEY) ?? null;
    // another tab may have logged somebody else in
    if (session === null) keepLast();
    else settle(session);
    return session;
  };
  const query = useQuery({
    queryKey: SESSION_KEY,
    queryFn: askAnew,
    staleTime: Number.POSITIVE_INFINITY,
    // a page that is opened while the controller is away comes by itself when it is back
    refetchInterval: ({ state }) =>
      state.data === undefined && state.status === 'error' ? ABSENT_MS : false,
  });
  /** Of a login of somebody else, and after a logout, nothing of the one before stays. */
  const settle = useCallback(
    (session: Session | null) => {
      if (last.current && last.current.user.id !== session?.user.id) {
        beginLogin();
        forgetAll(client);
      }
      if (session) keepFor(String(session.user.id));
      last.current = session;
      setLapsed(null);
    },
    [client],
  );
  /** It has ended, and nobody has logged out. */
  const keepLast = useCallback(() => {
    if (last.current === null) return;
    keepAll(client);
    setLapsed(last.current);
  }, [client]);
  const lapse = useCallback(() => {
    keepLast();
    client.setQueryData(SESSION_KEY, null);
  }, [client, keepLast]);
  /** Here, or in another tab: the cookie is of all of them. */
  const left = useCallback(() => {
    beginLogin();
    settle(null);
    keepFor('');
    client.setQueryData(SESSION_KEY, null);
  }, [client, settle]);
  useEffect(() => {
    const channel = new BroadcastChannel(CHANNEL);
    channel.onmessage = ({ data }: MessageEvent<Told>) => {
      if (data === 'left') left();
      else void client.invalidateQueries({ queryKey: SESSION_KEY });
    };
    onLoggedOut(lapse);
    return () => channel.close();
  }, [client, lapse, left]);
  const login = async (username: string, password: string) => {
    const session = await answer(api.POST('/api/session/', { body: { username, password } }));
    beginLogin();
    settle(session);
    client.setQueryData(SESSION_KEY, session);
    await askAll(client);
    tellOthers('came');
  };
  const leave = useCallback(() => {
    left();
    tellOthers('left');
  }, [left]);
  return { query, login, lapse, leave, lapsed };
}

/** What a tab tells the others: somebody logged in, or out. */
type Told = 'came' | 'left';

function tellOthers(told: Told): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage(told);
  channel.close();
}

interface SessionProviderProps {
  session: Session;
  /** Called when it has ended by itself. */
  lapse: () => void;
  /** Called when the user has logged out. */
  leave: () => void;
  children: ReactNode;
}

export function SessionProvider({ session, lapse, leave, children }: SessionProviderProps) {
  const client = useQueryClient();
  const [stream, setStream] = useState<StreamState>('open');

  useEffect(() => {
    const refresh = throttledRefresh(client);
    const stop = listen({
      change: refresh.take,
      state: setStream,
      mayGoOn: async () => {
        const isSame = sameLogin();
        const present = await ask().catch(() => undefined);
        if (present === null && isSame()) lapse();
        // who could not be asked may still be logged in
        return present !== null;
      },
    });
    return () => {
      stop();
      refresh.stop();
    };
  }, [client, lapse]);

  useEffect(() => {
    const waitMs = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, session.expires_in * 1000 * PROLONG_AT));
    let ended = false;
    let timer: ReturnType<typeof setTimeout>;
    const prolong = () => {
      answer(api.POST('/api/session/refresh/', { body: {} }))
        .then(prolonged => {
          if (!ended) client.setQueryData(SESSION_KEY, prolonged);
        })
        // the next call says what is wrong
        .catch(() => {
          if (!ended) timer = setTimeout(prolong, AGAIN_MS);
        });
    };
    timer = setTimeout(prolong, waitMs);
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [client, session]);

  const state = useMemo<SessionState>(
    () => ({
      session,
      stream,
      may: permission => session.permissions.includes(permission),
      logout: async () => {
        stopReading();
        const isSame = sameLogin();
        try {
          await endLogin();
        } catch (error) {
          if (isSame()) {
            beginLogin();
            void askAll(client);
          }
          throw error;
        }
        // another tab may have been first, and somebody be logged in again
        if (isSame()) leave();
      },
    }),
    [client, session, stream, leave],
  );
  return <SessionContext.Provider value={state}>{children}</SessionContext.Provider>;
}
