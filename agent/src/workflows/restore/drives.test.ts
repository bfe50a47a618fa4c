import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ArchiveTrust } from '../../archive/index.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { judgeDrives } from './drives.ts';
import type { Placement } from './placement.ts';

const dir = mkdtempSync(join(tmpdir(), 'virtkeep-drives-'));
const at = (name: string) => join(dir, name);
beforeAll(() => {
  const create = (...rest: string[]) => execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...rest]);
  create(at('whole'), '1M');
  create('-u', '-b', '/etc/passwd', '-F', 'raw', at('hostile'), '1M');
  create('-o', `data_file=${at('data')}`, at('away'), '1M');
  writeFileSync(at('raw'), 'bytes');
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

interface Drive {
  format: string;
  image: string | null;
  device?: string;
  /** It stands where it was, and was not made by the restore. */
  isFormer?: boolean;
  trust?: ArchiveTrust;
}

async function judged({ format, image, device = 'cdrom', isFormer = false, trust = 'own' }: Drive) {
  const path = image === null ? null : at(image);
  const xml = `<domain><name>vm</name><uuid>22222222-2222-4222-8222-222222222222</uuid><devices><disk type='file' device='${device}'>
    <driver name='qemu' type='${format}'/><source file='/former'/><target dev='sda'/></disk></devices></domain>`;
  const images = path === null || isFormer ? [] : [{ path }];
  const placement = { images, drives: new Map([['sda', path]]) } as unknown as Placement;
  const warnings: string[] = [];
  const proven = await judgeDrives({ config: parseDomain(xml), placement, trust }, text =>
    warnings.push(text),
  );
  return { isQcow2: proven.has(path ?? ''), warnings };
}

test.each<[Drive]>([
  [{ format: 'qcow2', image: 'whole' }],
  [{ format: 'qcow2', image: 'whole', trust: 'foreign' }],
  [{ format: 'qcow2', image: 'whole', isFormer: true }],
])('an image that needs no other file has its format again: %j', async drive => {
  expect(await judged(drive)).toEqual({ isQcow2: true, warnings: [] });
});

test.each<[Drive, string]>([
  [{ format: 'qcow2', image: 'hostile' }, 'has a backing file'],
  [{ format: 'qcow2', image: 'away' }, 'keeps its data in another file'],
  [{ format: 'qcow2', image: 'raw' }, 'is not a qcow2 image'],
  [{ format: 'vmdk', image: 'raw' }, 'is a vmdk image'],
  [{ format: 'qcow2', image: 'whole', isFormer: true, trust: 'fleet' }, 'is not of this archive'],
])('any other is shown byte for byte, and said to be: %j', async (drive, reason) => {
  const { isQcow2, warnings } = await judged(drive);
  expect(isQcow2).toBe(false);
  expect(warnings).toEqual([expect.stringContaining(reason)]);
});

test('a floppy that can be written no more is told of', async () => {
  const floppy = { format: 'raw', image: 'raw', device: 'floppy' };
  expect(await judged({ ...floppy, isFormer: true })).toMatchObject({
    warnings: [expect.stringContaining('read-only')],
  });
  expect(await judged(floppy)).toMatchObject({ warnings: [] });
  expect(await judged({ ...floppy, image: null })).toMatchObject({ warnings: [] });
});
