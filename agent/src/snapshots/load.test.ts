import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MOST_LAYERS, MOST_READ_LAYERS } from '../disks/index.ts';
import { readDiskFiles } from './load.ts';

const HEADER_BYTES = 4096;
let dir = '';
const at = (index: number) => join(dir, `layer-${10_000 + index}.qcow2`);

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-load-'));
  for (const args of [
    [at(0), '1M'],
    ['-b', at(0), '-F', 'qcow2', at(1)],
  ])
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...args]);
  const header = readFileSync(at(1), 'latin1').slice(0, HEADER_BYTES);
  for (let index = 1; index <= MOST_READ_LAYERS; index += 1)
    writeFileSync(at(index), header.replace(at(0), at(index - 1)), 'latin1');
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

test('a disk of more layers than libvirt takes can still be copied', async () => {
  expect(await readDiskFiles('vm', at(MOST_LAYERS), 'qcow2')).toHaveLength(MOST_LAYERS + 1);
  expect(await readDiskFiles('vm', at(MOST_READ_LAYERS - 1), 'qcow2')).toHaveLength(MOST_READ_LAYERS);
});

test('one of more layers than are read is refused as such, and not for a layer that is there', async () => {
  await expect(readDiskFiles('vm', at(MOST_READ_LAYERS), 'qcow2')).rejects.toMatchObject({
    msgKey: 'snapshot_chain_unsupported',
    params: { reason: `${at(MOST_READ_LAYERS)} stands on more than ${MOST_READ_LAYERS - 1} others` },
  });
  rmSync(at(5));
  await expect(readDiskFiles('vm', at(6), 'qcow2')).rejects.toMatchObject({ msgKey: 'io_failed' });
});
