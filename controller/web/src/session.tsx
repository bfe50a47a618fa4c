/** Who is logged in, what they may do, and the stream that tells what changes. */
import { type QueryClient, useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from 'react';
import { ApiError, answer, api, onLoggedOut, type Session } from './api/client.ts';
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

/** Of the query who is logged in. */
export const SESSION_KEY = ['session'];

async function ask(): Promise<Session | null> {
  try {
    return await answer(api.GET('/api/session/'));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** Of somebody else nothing stays. */
function forgetAll(client: QueryClient): void {
  forgetTasks();
  forgetUploads();
  client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== SESSION_KEY[0] });
}

/** The login as the controller knows it; null: nobody is logged in. */
export function useLogin() {
  const client = useQueryClient();
  const askAnew = async () => {
    const before = client.getQueryData<Session | null>(SESSION_KEY);
    const session = await ask();
    // another tab may have logged somebody else in
    if (before && before.user.id !== session?.user.id) forgetAll(client);
    if (session) keepFor(String(session.user.id));
    return session;
  };
  const query = useQuery({ queryKey: SESSION_KEY, queryFn: askAnew, staleTime: Number.POSITIVE_INFINITY });
  const took = useCallback(
    (session: Session | null) => {
      forgetAll(client);
      if (session) keepFor(String(session.user.id));
      client.setQueryData(SESSION_KEY, session);
    },
    [client],
  );
  useEffect(() => {
    const channel = new BroadcastChannel(CHANNEL);
    // another tab has logged in or out: the cookie is of all of them
    channel.onmessage = () => void client.invalidateQueries({ queryKey: SESSION_KEY });
    onLoggedOut(() => took(null));
    return () => channel.close();
  }, [client, took]);
  const login = async (username: string, password: string) => {
    took(await answer(api.POST('/api/session/', { body: { username, password } })));
    tellOthers();
  };
  return { query, login };
}

function tellOthers(): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage('changed');
  channel.close();
}

export function SessionProvider({ session, children }: { session: Session; children: ReactNode }) {
  const client = useQueryClient();
  const [stream, setStream] = useState<StreamState>('open');

  useEffect(() => {
    const refresh = throttledRefresh(client);
    const stop = listen({
      change: refresh.take,
      state: setStream,
      mayGoOn: async () => {
        const present = await ask().catch(() => undefined);
        if (present === null) {
          forgetAll(client);
          client.setQueryData(SESSION_KEY, null);
        }
        // who could not be asked may still be logged in
        return present !== null;
      },
    });
    return () => {
      stop();
      refresh.stop();
    };
  }, [client]);

  useEffect(() => {
    const waitMs = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, session.expires_in * 1000 * PROLONG_AT));
    let ended = false;
    let timer: ReturnType<typeof setTimeout>;
    const prolong = () => {
      answer(api.POST('/api/session/refresh/', { body: {} }))
        .then(prolonged => client.setQueryData(SESSION_KEY, prolonged))
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
        await answer(api.DELETE('/api/session/')).catch((error: unknown) => {
          // it has ended already
          if (!(error instanceof ApiError && error.status === 401)) throw error;
        });
        forgetAll(client);
        keepFor('');
        client.setQueryData(SESSION_KEY, null);
        tellOthers();
      },
    }),
    [client, session, stream],
  );
  return <SessionContext.Provider value={state}>{children}</SessionContext.Provider>;
}
