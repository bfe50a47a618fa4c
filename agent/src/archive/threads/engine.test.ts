import { createHash, randomBytes } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { BLOCK_BYTES } from '../format/layout.ts';
import type { Throttle } from '../format/types.ts';
import { Engine } from './engine.ts';

const CONTENT = randomBytes(3 * BLOCK_BYTES);
const SHA256 = createHash('sha256').update(CONTENT).digest('hex');
const never = new AbortController().signal;

let dir: string;
let fds: number[];
let started: Worker[];
const note = (message: unknown) => started.push((message as { worker: Worker }).worker);

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'vk-engine-'));
  writeFileSync(join(dir, 'source'), CONTENT);
  fds = [openSync(join(dir, 'source'), 'r'), openSync(join(dir, 'target'), 'w+')];
  started = [];
  subscribe('worker_threads', note);
});

afterEach(() => {
  unsubscribe('worker_threads', note);
  for (const fd of fds) closeSync(fd);
  rmSync(dir, { recursive: true });
});

const paths = () => ({ source: join(dir, 'source'), target: join(dir, 'target') });
const source = () => ({ fd: fds[0]!, offset: 0, lengthBytes: CONTENT.length });

const hashed = (engine: Engine, signal = never) =>
  engine.pump(
    { source: source(), codec: { kind: 'store' }, hash: true, output: false, paths: paths() },
    signal,
  );

/** Copies the source. @returns what is in the target */
async function copied(engine: Engine): Promise<Buffer> {
  await engine.order({ op: 'open', fd: fds[1]!, position: 0, level: null }, paths(), never);
  const job = {
    source: source(),
    codec: { kind: 'store' },
    hash: false,
    output: true,
    paths: paths(),
  } as const;
  await engine.pump(job, never);
  await engine.order({ op: 'end', sync: false }, paths(), never);
  return readFileSync(join(dir, 'target'));
}

test('threads of a closed engine serve the next', async () => {
  const first = new Engine(1);
  await hashed(first);
  await first.close();
  expect(started).toHaveLength(2);
  const second = new Engine(1);
  expect((await hashed(second)).sha256).toBe(SHA256);
  expect(started).toHaveLength(2);
  await second.close();
});

test('two engines at once do not share threads', async () => {
  const engines = [new Engine(1), new Engine(1)];
  const results = await Promise.all(engines.map(engine => hashed(engine)));
  expect(results.map(({ sha256 }) => sha256)).toEqual([SHA256, SHA256]);
  await Promise.all(engines.map(engine => engine.close()));
});

test('what was cancelled in the middle of an output leaves nothing to the next', async () => {
  const first = new Engine(1);
  await first.order({ op: 'open', fd: fds[1]!, position: 0, level: 3 }, paths(), never);
  // nobody pays: the run waits until it is cancelled by the close
  const take = (_: number, signal?: AbortSignal) => once(signal!, 'abort').then(() => {});
  const throttle: Throttle = { take, atFixedRate: work => work(0) };
  const codec = { kind: 'compress', level: 3 } as const;
  const run = first.pump(
    { source: source(), codec, hash: true, output: true, paths: paths(), throttle },
    never,
  );
  const ended = expect(run).rejects.toThrow();
  await first.close();
  await ended;
  const second = new Engine(1);
  expect((await copied(second)).equals(CONTENT)).toBe(true);
  expect((await hashed(second)).sha256).toBe(SHA256);
  await second.close();
});

test('a thread that died while it rested serves nobody', async () => {
  const first = new Engine(2);
  await first.close();
  const dead = started.at(-1)!;
  await Promise.all([once(dead, 'exit'), dead.terminate()]);
  started = [];
  const second = new Engine(2);
  expect((await hashed(second)).sha256).toBe(SHA256);
  expect(started).toHaveLength(3);
  await second.close();
});

test('a closed engine takes no order: its threads may be another’s', async () => {
  const engine = new Engine(1);
  await engine.close();
  await expect(hashed(engine)).rejects.toThrow(/closed/);
});
