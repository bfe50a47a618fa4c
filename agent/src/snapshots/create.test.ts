import { fstatSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { createState } from './create.ts';

const ignore = () => {};

test('the memory of a state is there after a power cut, as libvirt left it', async () => {
  const root = mkdtempSync(join(tmpdir(), 'vk-state-'));
  const memoryPath = join(root, 's.memory');
  const handle = await open(root, 'r');
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const flushed = new Map<number, string>();
  const spy = jest.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
    const { ino } = fstatSync(this.fd);
    flushed.set(
      ino,
      ino === statSync(root).ino ? 'its name' : readFileSync(`/proc/self/fd/${this.fd}`, 'utf8'),
    );
  });
  const createSnapshot = async () => {
    writeFileSync(memoryPath, 'complete');
    return { xml: async () => '<domainsnapshot><name>s</name></domainsnapshot>' };
  };
  const xml = async () => '<domain><name>vm</name></domain>';
  const domain = { name: 'vm', isActive: async () => false, xml, createSnapshot } as unknown as Domain;
  const plan = { name: 's', mode: 'memory', disks: [], memoryPath } as const;
  try {
    const progress = { total: ignore, done: ignore };
    const watch = { signal: AbortSignal.timeout(60_000), progress };
    await createState(domain, { ...plan, disks: [] }, '', watch);
    expect(flushed.get(statSync(memoryPath).ino)).toBe('complete');
    expect(flushed.get(statSync(root).ino)).toBe('its name');
  } finally {
    spy.mockRestore();
    rmSync(root, { recursive: true });
  }
});
