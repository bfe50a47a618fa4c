import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { ArchiveWriter, type Manifest, openArchive } from '../../archive/index.ts';
import { BACKUP_ID, manifestOf, noise, signal, XML } from '../../archive/test-kit.ts';
import { samplePool as pool } from '../../pools/sample-pool.ts';
import type { PlacementInput } from './placement.ts';
import { placeBySize } from './space.ts';

const DATA = 9 * MiB;
const home = mkdtempSync(join(tmpdir(), 'virtkeep-space-'));
afterAll(() => rmSync(home, { recursive: true }));

/** An archive of one disk with 9 MiB of data and a hole of 40 MiB, whose manifest tells of `toldBytes`. */
async function archiveOf(name: string, toldBytes: number): Promise<string> {
  const path = join(home, name);
  const compression = name.endsWith('.zst') ? {} : null;
  const writer = await ArchiveWriter.create({ path, backupId: BACKUP_ID, compression, hash: false, signal });
  await writer.addFile('a.qcow2', 'disk', join(home, 'disk'));
  await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from(XML));
  await writer.finish({
    stateNumber: 1,
    manifest: members => {
      const [disk, ...rest] = members;
      return manifestOf([{ ...disk!, allocatedBytes: toldBytes }, ...rest], {
        disks: [
          {
            id: 'disk-id',
            target: 'vda',
            bus: null,
            virtualSizeBytes: DATA,
            format: 'qcow2',
            formerFormat: 'qcow2',
            formerPath: '/pools/fast/a.qcow2',
            poolId: null,
            poolName: null,
            base: null,
            layers: [
              { member: 'a.qcow2', stateNumber: 1, frozenBy: null, formerPath: '/pools/fast/a.qcow2' },
            ],
          },
        ],
      });
    },
  });
  await writer.abort();
  return path;
}

beforeAll(async () => {
  writeFileSync(join(home, 'disk'), noise(DATA));
  truncateSync(join(home, 'disk'), 49 * MiB);
  for (const ending of ['tar', 'tar.zst']) {
    await archiveOf(`true.${ending}`, DATA);
    await archiveOf(`forged.${ending}`, 1);
  }
  // what fills holes
  execFileSync('cp', ['--sparse=never', join(home, 'true.tar'), join(home, 'filled.tar')]);
  execFileSync('cp', ['--sparse=never', join(home, 'forged.tar'), join(home, 'filled-forged.tar')]);
});

const [fast, slow] = [pool('fast'), pool('slow')];

function inputOf(manifest: Manifest, fastFree: number, slowFree: number): Omit<PlacementInput, 'bytesOf'> {
  return {
    manifest,
    shape: 'chain',
    files: new Map(),
    memoryMembers: [],
    pools: [fast, slow],
    chosen: null,
    backupPool: slow,
    existing: new Set(),
    images: new Map(),
    originalFiles: new Set(),
    keepIdentity: false,
    free: new Map([['id-fast', fastFree], ['id-slow', slowFree]]), // biome-ignore format: pairs
    newId: () => 'new-id',
  };
}

/** Where the disk goes, or the refusal. */
async function placed(name: string, fastFree: number, slowFree: number): Promise<string> {
  const archive = await openArchive(join(home, name), signal);
  try {
    const { disks } = await placeBySize(archive, inputOf(archive.manifest!, fastFree, slowFree), signal);
    return disks[0]!.pool.name;
  } finally {
    await archive.close();
  }
}

const refused = { msgKey: 'pool_no_space' };
const [little, enough] = [8 * MiB, 16 * MiB];

describe.each(['tar', 'tar.zst'])('the room for a %s', ending => {
  test('is what its data take, without their holes', async () => {
    expect(await placed(`true.${ending}`, enough, 0)).toBe('fast');
    expect(await placed(`true.${ending}`, little, enough)).toBe('slow');
    await expect(placed(`true.${ending}`, little, little)).rejects.toMatchObject(refused);
  });

  test('is not what a manifest tells that understates it', async () => {
    expect(await placed(`forged.${ending}`, enough, 0)).toBe('fast');
    expect(await placed(`forged.${ending}`, little, enough)).toBe('slow');
    await expect(placed(`forged.${ending}`, little, little)).rejects.toMatchObject(refused);
  });
});

test('zeros that are no holes in the archive become some again', async () => {
  expect(await placed('filled.tar', enough, 0)).toBe('fast');
  expect(await placed('filled-forged.tar', enough, 0)).toBe('fast');
  await expect(placed('filled-forged.tar', little, little)).rejects.toMatchObject(refused);
});
