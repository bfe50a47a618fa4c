/** Calls of the controller, typed by its API document. The browser sends the cookie; no script here knows the token. */
import createClient from 'openapi-fetch';
import { noteServerTime } from '../live/server-time.ts';
import type { components, paths } from './schema.d.ts';

export type Schemas = components['schemas'];
type ErrorBody = Schemas['Error'];

const SESSION_PATH = '/api/session/';
const REFRESH_PATH = '/api/session/refresh/';

/**
 * Stands for the login that is. Its signal ends what that one reads; and whoever waited for an answer sees by another object here that it is
 * none about the login that is now.
 */
let login = new AbortController();

/** What a login reads, and its prolongation, whose cookie would replace that of the next one. Who is logged in may be asked at any time. */
function isOfLogin({ method, url }: Request): boolean {
  const path = new URL(url).pathname;
  return path === REFRESH_PATH || (method === 'GET' && path !== SESSION_PATH);
}

export const api = createClient<paths>({
  baseUrl: '',
  fetch: request => {
    if (!isOfLogin(request)) return fetch(request);
    return fetch(request, { signal: AbortSignal.any([request.signal, login.signal]) });
  },
});

/** Gives up what the login reads; until `beginLogin` nothing can be read. */
export function stopReading(): void {
  login.abort();
}

/** What was asked before, and has no answer yet, gets none. */
export function beginLogin(): void {
  login.abort();
  login = new AbortController();
}

/** For who waits for an answer. @returns tells whether the login is still the one of now */
export function sameLogin(): () => boolean {
  const now = login;
  return () => login === now;
}

/** A call that was refused, or that did not arrive. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** 0: there was no answer. */
  readonly status: number;
  /** The stable name of the first error. */
  readonly key: string;
  /** What is wrong with which field of the request. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(status: number, body: Partial<ErrorBody> | undefined, message: string) {
    super(body?.detail ?? message);
    this.status = status;
    this.key = body?.errors?.[0]?.msg_key ?? '';
    const named = (body?.errors ?? []).filter(error => error.field !== undefined);
    this.fields = new Map(named.map(error => [error.field ?? '', error.detail]));
  }
}

interface Outcome<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

let whenLoggedOut: () => void = () => {};

/** Called when an answer says that nobody is logged in any more. */
export function onLoggedOut(listener: () => void): void {
  whenLoggedOut = listener;
}

/** What a call answers. @throws ApiError */
export async function answer<T>(call: Promise<Outcome<T>>): Promise<T> {
  const isSame = sameLogin();
  const { data, error, response } = await call.catch((cause: unknown) => {
    throw new ApiError(0, undefined, cause instanceof Error ? cause.message : String(cause));
  });
  noteServerTime(response.headers.get('date'));
  unanswered.delete(new URL(response.url).pathname);
  if (response.ok) return data as T;
  const isSession = new URL(response.url).pathname === SESSION_PATH;
  if (response.status === 401 && isSame() && !isSession) whenLoggedOut();
  const body = typeof error === 'object' && error !== null ? (error as Partial<ErrorBody>) : undefined;
  throw new ApiError(response.status, body, response.statusText || String(response.status));
}

/** A page of records: without `fields` each of them is whole, which the document cannot say of a list. */
export interface PageOf<T> {
  count: number;
  results: T[];
}

/** A page of whole records. @throws ApiError */
export async function list<T>(
  call: Promise<Outcome<{ count: number; results: unknown[] }>>,
): Promise<PageOf<T>> {
  const { count, results } = await answer(call);
  return { count, results: results as T[] };
}

/** The task of an action that goes on. @throws ApiError */
export async function begun(call: Promise<Outcome<unknown>>): Promise<Task> {
  const { _task } = (await answer(call)) as Schemas['TaskAccepted'];
  return _task;
}

/** For actions that must not be carried out twice when the network drops an answer: of one form, which may be sent again. */
export const newKey = () => crypto.randomUUID();

/** So long is an action that is asked for again without an answer taken for the same. */
const SAME_MS = 120_000;
/** By path, of actions that have no answer yet: the key, by what else they are about. */
const unanswered = new Map<string, Map<string, { key: string; sinceMs: number }>>();

/**
 * As `newKey`, for an action without a form: the same key until the path has answered.
 * @param about what the path does not say: two actions that differ must not have one key
 */
export function keyFor(path: string, about = ''): string {
  const keys = unanswered.get(path) ?? new Map<string, { key: string; sinceMs: number }>();
  unanswered.set(path, keys);
  const known = keys.get(about);
  if (known !== undefined && performance.now() - known.sinceMs < SAME_MS) return known.key;
  const key = newKey();
  keys.set(about, { key, sinceMs: performance.now() });
  return key;
}

/** Query of an action that answers at once. */
export const AT_ONCE = { async: 1 } as const;

export type Session = Schemas['Session'];
export type Overview = Schemas['Overview'];
export type Task = Schemas['Task'];
export type Domain = Schemas['Domain'];
export type BackupFile = Schemas['BackupFile'];
export type Snapshot = Schemas['Snapshot'];
export type NodeRecord = Schemas['Node'];
export type Pool = Schemas['DataPool'];
export type Schedule = Schemas['ScheduledTask'];
export type EventRecord = Schemas['Event'];
export type ShownBackup = Schemas['ShownBackup'];
export type ProtectionState = Schemas['Protection']['state'];
export type User = Schemas['User'];
export type UserSession = Schemas['UserSession'];
export type Token = Schemas['Token'];
export type Tag = Schemas['Tag'];
export type Vdisk = Schemas['Vdisk'];
export type NotificationTarget = Schemas['NotificationTarget'];
export type NotificationRecord = Schemas['Notification'];
export type Setting = Schemas['Setting'];
export type AuditRecord = Schemas['AuditRecord'];

/** Of lists that the stream does not tell of. */
export const SELDOM = { refetchInterval: 15_000 } as const;
