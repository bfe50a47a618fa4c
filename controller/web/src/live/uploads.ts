/**
 * Files on their way into data pools (tus 1.0.0). They go on whichever page is shown, one after another; one that was cut off goes on where
 * it was, after the page was loaded anew too, once the same file is given again.
 */
import { useSyncExternalStore } from 'react';
import { ApiError, type BackupFile, type Schemas } from '../api/client.ts';
import { askingBeforeLeaving } from '../parts/leaving.ts';
import { keep, kept } from './kept-uploads.ts';

export interface Upload {
  key: string;
  name: string;
  pool: string;
  size: number;
  /** Bytes that the node has. */
  offset: number;
  /** Bytes a second, of late. */
  rate: number;
  status: 'waiting' | 'sending' | 'stopped' | 'done' | 'failed';
  error?: unknown;
  /** What it became; null: no backup file by its name. */
  file?: BackupFile | null;
}

interface Job {
  upload: Upload;
  source: File;
  /** Where its bytes go; undefined: it has not begun. */
  path?: string | undefined;
}

const PATH = '/api/library/upload/';
const TUS = { 'tus-resumable': '1.0.0' };
/** Of one request: after so many a cut connection is noticed, and the progress is told. */
const PIECE_BYTES = 8 * 1024 * 1024;
const TRIES = 5;
const PAUSE_MS = 3000;

const jobs = new Map<string, Job>();
const listeners = new Set<() => void>();
let shown: readonly Upload[] = [];
let present: AbortController | undefined;

function tell(): void {
  shown = [...jobs.values()].map(({ upload }) => upload);
  for (const listener of listeners) listener();
}

function set(job: Job, changes: Partial<Upload>): void {
  job.upload = { ...job.upload, ...changes };
  tell();
}

export function useUploads(): readonly Upload[] {
  return useSyncExternalStore(
    listener => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
}

/** Sends them into the pool, after those that wait already. */
export function upload(files: Iterable<File>, pool: string): void {
  for (const source of files) {
    const key = [pool, source.name, source.size, source.lastModified].join('/');
    const known = jobs.get(key);
    if (known !== undefined && ['waiting', 'sending'].includes(known.upload.status)) continue;
    const path = kept(key);
    const one: Upload = {
      key,
      name: source.name,
      pool,
      size: source.size,
      offset: 0,
      rate: 0,
      status: 'waiting',
    };
    jobs.set(key, { upload: one, source, path });
  }
  tell();
  void work();
}

/** It goes no further until it is gone on with. */
export function stop(key: string): void {
  const job = jobs.get(key);
  if (job === undefined) return;
  const isSending = job.upload.status === 'sending';
  set(job, { status: 'stopped' });
  if (isSending) present?.abort();
}

export function goOn(key: string): void {
  const job = jobs.get(key);
  if (job === undefined) return;
  const { error: _error, ...rest } = job.upload;
  job.upload = { ...rest, status: 'waiting' };
  tell();
  void work();
}

/** Nothing of it stays, unless it is done. */
export async function forget(key: string): Promise<void> {
  const job = jobs.get(key);
  if (job === undefined) return;
  stop(key);
  jobs.delete(key);
  tell();
  keep(key, undefined);
  if (job.path !== undefined && job.upload.file === undefined) await call('DELETE', job.path);
}

/** All of them stop, and nothing is shown of them: somebody else may look now. */
export function forgetUploads(): void {
  for (const { upload } of jobs.values()) stop(upload.key);
  jobs.clear();
  tell();
}

async function work(): Promise<void> {
  if (present !== undefined) return;
  const job = [...jobs.values()].find(({ upload: { status } }) => status === 'waiting');
  if (job === undefined) return;
  present = new AbortController();
  const { signal } = present;
  set(job, { status: 'sending' });
  try {
    await askingBeforeLeaving(() => send(job, signal));
  } catch (error) {
    if (job.upload.status === 'sending') set(job, { status: 'failed', error });
  } finally {
    present = undefined;
  }
  await work();
}

async function send(job: Job, signal: AbortSignal): Promise<void> {
  const { source } = job;
  await begin(job, signal);
  for (let failed = 0; job.upload.offset < source.size; ) {
    const { offset } = job.upload;
    const since = performance.now();
    try {
      const now = await sendPiece(job, signal);
      set(job, { offset: now, rate: ((now - offset) * 1000) / Math.max(1, performance.now() - since) });
      failed = 0;
    } catch (error) {
      if (signal.aborted || !isPassing(error) || failed >= TRIES) throw error;
      failed += 1;
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
      set(job, { offset: await offsetOf(job, signal).catch(() => offset) });
    }
  }
  const done = (await (await call('GET', pathOf(job), { signal })).json()) as Schemas['Upload'];
  signal.throwIfAborted();
  keep(job.upload.key, undefined);
  set(job, { status: 'done', file: done.file });
}

const pathOf = ({ path }: Job): string => path ?? PATH;

/** Creates it, or finds how far the one of before has come. */
async function begin(job: Job, signal: AbortSignal): Promise<void> {
  if (job.path !== undefined) {
    try {
      return set(job, { offset: await offsetOf(job, signal) });
    } catch (error) {
      // it was given up meanwhile
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
  }
  const { name, pool, size, key } = job.upload;
  const metadata = Object.entries({ datapool: pool, filename: name })
    .map(([field, value]) => `${field} ${base64(value)}`)
    .join();
  const headers = { 'upload-length': String(size), 'upload-metadata': metadata };
  const created = await call('POST', PATH, { headers, signal });
  signal.throwIfAborted();
  job.path = new URL(created.headers.get('location') ?? PATH, window.location.origin).pathname;
  keep(key, job.path);
  set(job, { offset: 0 });
}

async function sendPiece(job: Job, signal: AbortSignal): Promise<number> {
  const { offset } = job.upload;
  const answered = await call('PATCH', pathOf(job), {
    headers: { 'content-type': 'application/offset+octet-stream', 'upload-offset': String(offset) },
    body: job.source.slice(offset, offset + PIECE_BYTES),
    signal,
  });
  return Number(answered.headers.get('upload-offset'));
}

async function offsetOf(job: Job, signal: AbortSignal): Promise<number> {
  return Number((await call('HEAD', pathOf(job), { signal })).headers.get('upload-offset'));
}

async function call(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { ...TUS, ...init.headers };
  const response = await fetch(path, { ...init, method, headers }).catch((cause: unknown) => {
    throw new ApiError(0, undefined, cause instanceof Error ? cause.message : String(cause));
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => undefined);
  throw new ApiError(response.status, body, response.statusText || String(response.status));
}

/** A cut connection, a node or a controller that restarts, another connection of it that still hangs. */
function isPassing(error: unknown): boolean {
  return (
    error instanceof ApiError &&
    (error.status === 0 || error.status >= 500 || ['upload_busy', 'upload_offset'].includes(error.key))
  );
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
