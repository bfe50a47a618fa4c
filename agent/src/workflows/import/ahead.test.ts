// Disks converted before their turn, by the real program: how many at a time, and what one that fails does to the others.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { ConversionsAhead } from './ahead.ts';
import type { ForeignDisk } from './foreign.ts';

const CONTENTS = [randomBytes(MiB), randomBytes(2 * MiB), randomBytes(MiB), randomBytes(MiB)];

let dir: string;
let directory: string;
let disks: ForeignDisk[];

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'vk-ahead-'));
  disks = CONTENTS.map((bytes, index) => {
    const path = join(dir, `raw${index}`);
    writeFileSync(path, bytes);
    return { sizeBytes: bytes.length, content: { path } };
  });
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));
beforeEach(() => {
  directory = mkdtempSync(join(dir, 'spares-'));
});

const spares = () => readdirSync(directory).sort();
const spareOf = (index: number) => `.virtkeep-op.${index}.qcow2`;

function contextOf(signal = new AbortController().signal): OperationContext {
  const begin = (effect: Effect) => ({
    keep: () => {},
    undo: () => rm((effect as { path: string }).path),
  });
  return { id: 'op', signal, effects: { begin } } as unknown as OperationContext;
}

function aheadOf(all: ForeignDisk[], limits: { atOnce: number; spares: number }, signal?: AbortSignal) {
  const done: number[] = all.map(() => 0);
  const onProgress = (index: number, fraction: number) => {
    done[index] = fraction;
  };
  return {
    done,
    ahead: new ConversionsAhead(contextOf(signal), { disks: all, directory, limits, onProgress }),
  };
}

function rawOf(path: string): Buffer {
  const raw = join(dir, 'back');
  execFileSync('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', path, raw]);
  return readFileSync(raw);
}

test('each comes whole, and no more spare files are there than may be', async () => {
  const { ahead, done } = aheadOf(disks, { atOnce: 2, spares: 2 });
  for (const [index, content] of CONTENTS.entries()) {
    expect(rawOf((await ahead.converted(index)).path).equals(content)).toBe(true);
    expect(spares().length).toBeLessThanOrEqual(2);
    expect(spares()[0]).toBe(spareOf(index));
    await ahead.release(index);
  }
  expect(done).toEqual([1, 1, 1, 1]);
  expect(spares()).toEqual([]);
  await ahead.close();
  // who writes the archive has it to the end
  expect(ahead.signal.aborted).toBe(false);
});

test('while one is converted where it stays, the next is converted ahead', async () => {
  const { ahead } = aheadOf(disks, { atOnce: 2, spares: 1 });
  expect(ahead.hasBegun(0)).toBe(false);
  await ahead.inPlace(0, async () => {
    expect([ahead.hasBegun(1), ahead.hasBegun(2)]).toEqual([true, false]);
    await ahead.converted(1);
  });
  // its file is still there: the room is taken
  expect(ahead.hasBegun(2)).toBe(false);
  await ahead.release(1);
  expect([ahead.hasBegun(2), ahead.hasBegun(3)]).toEqual([true, false]);
  await ahead.converted(2);
  await ahead.close();
});

test('without room for spare files none is begun ahead', async () => {
  const { ahead } = aheadOf(disks, { atOnce: 1, spares: 0 });
  await ahead.inPlace(0, async () => expect(ahead.hasBegun(1)).toBe(false));
  expect(ahead.hasBegun(1)).toBe(false);
  await ahead.close();
  expect(ahead.signal.aborted).toBe(false);
});

test('one that fails ends the others, also what is converted where it stays', async () => {
  const broken = [disks[0]!, { sizeBytes: MiB, content: { path: join(dir, 'none') } }, disks[2]!];
  const { ahead } = aheadOf(broken, { atOnce: 3, spares: 3 });
  const stopped = ahead.inPlace(
    0,
    () =>
      new Promise((_, reject) => {
        ahead.signal.addEventListener('abort', () => reject(ahead.signal.reason));
      }),
  );
  await expect(stopped).rejects.toMatchObject({ msgKey: 'qemu_img_failed' });
  await expect(ahead.converted(1)).rejects.toMatchObject({ msgKey: 'qemu_img_failed' });
  await ahead.close();
});

test('a cancel ends all', async () => {
  const cancel = new AbortController();
  const { ahead } = aheadOf(disks, { atOnce: 2, spares: 2 }, cancel.signal);
  const first = ahead.converted(0);
  cancel.abort();
  await expect(first).rejects.toMatchObject({ msgKey: 'canceled' });
  await ahead.close();
});
