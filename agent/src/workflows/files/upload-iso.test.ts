/** Where the bytes of an upload go, when others may write beside it. */
import { linkSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { PoolRecord } from '../../pools/index.ts';
import type { OperationContext } from '../context.ts';
import { uploadIso } from './upload-iso.ts';

let root: string;
let pool: PoolRecord & { path: string };
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'virtkeep-upload-'));
  mkdirSync(join(root, 'pool'));
  pool = { id: 'p', name: 'pool', path: join(root, 'pool'), available: 2 ** 40 } as typeof pool;
});
afterEach(() => rmSync(root, { recursive: true }));

/** @param between what somebody does after a step */
function uploaded(between: (step: string) => void = () => {}): Promise<void> {
  const context = {
    id: 'o',
    signal: AbortSignal.timeout(60_000),
    effects: { begin: () => ({ keep: () => {}, undo: async () => {} }) },
    progress: { total: () => {}, done: () => {} },
    step: async (name: string, work: () => Promise<unknown>) => {
      const result = await work();
      between(name);
      return result;
    },
    commit: () => {},
  } as unknown as OperationContext;
  async function* bytes(): AsyncGenerator<Uint8Array> {
    yield Buffer.from('image');
  }
  const place = { pool, filename: 'a.iso', path: join(pool.path, 'a.iso') };
  return uploadIso({ place, sizeBytes: 5, bytes: bytes() })(context);
}

test('the image is what was sent', async () => {
  await uploaded();
  expect(readFileSync(join(pool.path, 'a.iso'), 'utf8')).toBe('image');
});

test('a file that took the place of the unfinished one is not written to', async () => {
  const other = join(root, 'other');
  writeFileSync(other, 'of another');
  const exchanged = uploaded(step => {
    if (step !== 'make') return;
    const [partial] = readdirSync(pool.path);
    rmSync(join(pool.path, partial!));
    linkSync(other, join(pool.path, partial!));
  });
  await expect(exchanged).rejects.toEqual(expect.objectContaining({ msgKey: 'io_failed' }));
  expect(readFileSync(other, 'utf8')).toBe('of another');
});
