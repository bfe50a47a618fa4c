import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import { flushDefinitions } from './durable.ts';

test('directories that libvirt changed lately are flushed, and others not; one that is not there has nothing to flush', async () => {
  const root = mkdtempSync(join(tmpdir(), 'virtkeep-libvirt-'));
  const places = { definitions: join(root, 'qemu'), states: join(root, 'snapshot') } as never;
  try {
    expect(await flushDefinitions(places)).toEqual([]);
    const made = [join(root, 'qemu'), join(root, 'snapshot'), join(root, 'snapshot/vm')];
    for (const path of made) mkdirSync(path);
    expect(await flushDefinitions(places)).toEqual(made);
    jest.useFakeTimers({
      now: Date.now() + 3_600_000,
      doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask'],
    });
    expect(await flushDefinitions(places)).toEqual([]);
  } finally {
    jest.useRealTimers();
    rmSync(root, { recursive: true });
  }
});
