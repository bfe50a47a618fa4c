// Restore points are dropped on a pool that has too little room, or gets full meanwhile: refused or taken back, and the archive is as it was.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import type { Manifest } from '../../../agent/src/archive/index.ts';
import { appendState, growingManifest, writeArchive } from '../../../agent/src/archive/test-kit.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { run, waitFor } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';

const MiB = 1024 * 1024;
const ROOM = 64;
let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const pool = () => lab.world.node.pool(1);
const path = () => join(pool().path, 'backups', 'a.tar');
const layer = (number: number) => join(lab.world.dir, `l${number}.qcow2`);

beforeEach(async () => {
  await run(['mount', '-t', 'tmpfs', '-o', `size=${ROOM}M`, 'tmpfs', pool().path]);
  mkdirSync(join(pool().path, 'backups'));
});
afterEach(() => run(['umount', pool().path]));

const withLayers = (before: Manifest, members: Manifest['members']): Manifest => {
  const layers = members
    .filter(({ kind }) => kind === 'disk' || kind === 'layer')
    .map(({ name, formerPath }, index) => ({
      ...{ member: name, stateNumber: index + 1, frozenBy: null, formerPath },
    }));
  const disk = { id: 'd', target: 'vda', bus: null, virtualSizeBytes: 64 * MiB, format: 'qcow2' as const };
  const place = { formerFormat: 'qcow2', formerPath: layer(1), poolId: null, poolName: null, base: null };
  return { ...growingManifest(before, members), disks: [{ ...disk, ...place, layers }] };
};

/** Of two states, of which the second has written over nothing of the first. */
async function makeArchive(dataMiB: number): Promise<Buffer> {
  for (const number of [1, 2]) {
    const on = number === 1 ? [] : ['-F', 'qcow2', '-b', layer(1)];
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', ...on, layer(number), '64M']);
    const data = join(lab.world.dir, 'data');
    writeFileSync(data, randomBytes((dataMiB / 2) * MiB));
    const at = (number - 1) * (dataMiB / 2);
    await run(['qemu-io', '-f', 'qcow2', '-c', `write -s ${data} ${at}M ${dataMiB / 2}M`, layer(number)]);
  }
  rmSync(path(), { force: true });
  await writeArchive(path(), [{ name: 'd.qcow2', from: layer(1) }]);
  const tailPath = join(lab.world.dir, 'tail');
  await appendState(path(), [{ name: 'd_s.snapshot', kind: 'layer', from: layer(2) }], {
    tailPath,
    manifest: withLayers,
  });
  return readFileSync(path());
}

async function trim(): Promise<string> {
  const operationId = newId();
  const file = { poolId: pool().uuid, filename: 'a.tar' };
  const request = TrimBackupRequest.fromPartial({ operationId, file, fileId: newId(), keepStates: 1 });
  await backupService(lab.runner, lab.dependencies).trim(request, {
    signal: new AbortController().signal,
  } as CallContext);
  return operationId;
}

async function expectAsBefore(before: Buffer): Promise<void> {
  expect(readFileSync(path()).equals(before)).toBe(true);
  expect(lab.files(1).filter(name => name !== 'fill')).toEqual(['a.tar', 'backups']);
}

test('with too little room it is refused before', async () => {
  const before = await makeArchive(24);
  await expect(lab.ended(await trim())).rejects.toMatchObject({ msgKey: 'pool_no_space' });
  await expectAsBefore(before);
});

test.each([
  ['the layers are taken out', 6],
  ['they are joined', 14],
  ['the new archive is written', 22],
])('a pool that gets full while %s', async (_, leftMiB) => {
  const before = await makeArchive(16);
  const paused = join(lab.world.dir, 'paused');
  rmSync(paused, { force: true });
  lab.inject(`trim.check.after=pause:${paused}`);
  const id = await trim();
  await waitFor('the pause', () => existsSync(`${paused}.reached`), 120_000);
  writeFileSync(join(pool().path, 'fill'), Buffer.alloc((ROOM - 17 - leftMiB) * MiB));
  writeFileSync(paused, '');
  await expect(lab.ended(id)).rejects.toMatchObject({ msgKey: 'disk_full' });
  lab.inject('');
  await expectAsBefore(before);
  rmSync(`${paused}.reached`);
});
