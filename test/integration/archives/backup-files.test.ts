// Looking at, verifying and deleting backup files, through the service's own methods.
import { closeSync, existsSync, openSync, readFileSync, writeSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { WorkflowLab } from '../backup/lab.ts';

let lab: WorkflowLab;
let guest: Guest;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  const path = await makePlainDisk(`${lab.world.node.pool(0).path}/${newId()}.qcow2`, {
    sizeBytes: 1 << 20,
    dataBytes: 1 << 20,
  });
  guest = await lab.world.defineTiny({
    disks: [{ path }],
    devices: "<interface type='user'><mac address='52:54:00:11:22:33'/></interface>",
  });
});
afterAll(() => lab?.stop());

const context = () => ({ signal: AbortSignal.timeout(180_000) }) as CallContext;
const service = () => backupService(lab.runner, lab.dependencies);
const ref = (file: { filename: string }) => ({
  poolId: lab.world.node.pool(1).uuid,
  filename: file.filename,
});

test('the configuration of the VM to be restored', async () => {
  const { file } = await lab.backup(guest, { description: 'nightly' });
  const shown = await service().show({ file: ref(file), state: '' }, context());
  expect(shown.file).toMatchObject({
    id: file.id,
    type: 'tar',
    compressed: false,
    domainId: await guest.uuid(),
  });
  expect(shown.configuration).toMatchObject({
    name: guest.name,
    memoryCount: 128n,
    cpuCount: 1,
    disks: [{ targetDev: 'vda', targetBus: 'virtio', virtualSize: 1n << 20n, excluded: false }],
    macs: ['52:54:00:11:22:33'],
    description: 'nightly',
  });
  expect(shown.warnings).toEqual([]);
  expect(shown.xml).toBe(`${await guest.xml(true)}\n`);
  await expect(
    service().show({ file: ref({ filename: 'none' }), state: '' }, context()),
  ).rejects.toMatchObject({ msgKey: 'file_not_found' });
  await expect(service().show({ file: ref(file), state: '7' }, context())).rejects.toMatchObject({
    msgKey: 'state_not_found',
  });
});

test('verification of a plain archive without hashes says of how many members it proves nothing', async () => {
  const { file } = await lab.backup(guest, {});
  const operationId = newId();
  await service().verify({ operationId, file: ref(file), fileId: file.id }, context());
  const { resultJson } = await lab.ended(operationId);
  const { ok, hashed, unproven_members: unproven } = JSON.parse(resultJson);
  expect([ok, hashed, unproven > 0]).toEqual([true, false, true]);
});

test.each([{ hashSum: true }, { compress: true }])(
  'verification finds a changed byte: %j',
  async request => {
    const { file, path } = await lab.backup(guest, request);
    const verify = async () => {
      const operationId = newId();
      await service().verify({ operationId, file: ref(file), fileId: file.id }, context());
      return JSON.parse((await lab.ended(operationId)).resultJson);
    };
    expect(await verify()).toMatchObject({
      ...{ ok: true, problems: [], hashed: request.hashSum === true, unproven_members: 0 },
    });
    const bytes = readFileSync(path);
    const at = Math.floor(bytes.length / 2);
    const handle = openSync(path, 'r+');
    writeSync(handle, Buffer.from([bytes[at]! ^ 0xff]), 0, 1, at);
    closeSync(handle);
    expect(await verify()).toMatchObject({
      ok: false,
      problems: [{ member: expect.stringMatching(/\.qcow2$/), reason: expect.any(String) }],
    });
    await expect(lab.restore(file, { poolId: lab.world.node.pool(1).uuid })).rejects.toMatchObject({
      msgKey: expect.stringMatching(/hash_mismatch|archive_damaged/),
    });
    expect(lab.files(1).filter(name => name.endsWith('.qcow2'))).toEqual([]);
  },
  180_000,
);

test('a deleted backup takes its hash file along; a read-only pool keeps both', async () => {
  const { file, path } = await lab.backup(guest, { hashSum: true });
  lab.poolChanges.set('bulk', { readonly: true });
  const request = () => ({ operationId: newId(), file: ref(file), fileId: file.id });
  await expect(service().delete(request(), context())).rejects.toMatchObject({ msgKey: 'pool_read_only' });
  lab.poolChanges.clear();
  const asked = request();
  await service().delete(asked, context());
  await lab.ended(asked.operationId);
  expect([existsSync(path), existsSync(`${path}.sha256`)]).toEqual([false, false]);
  // the same call again answers the same operation, although the file is gone
  expect(await service().delete(asked, context())).toMatchObject({ id: asked.operationId });
});

test('wrong ids are named', async () => {
  const base = StartBackupRequest.fromPartial({
    operationId: newId(),
    domainId: await guest.uuid(),
    fileId: newId(),
  });
  const start = (change: object) => service().start({ ...base, ...change }, context());
  await expect(start({ domainId: 'x' })).rejects.toMatchObject({
    msgKey: 'invalid_uuid',
    params: { field: 'domain_id' },
  });
  await expect(start({ fileId: '' })).rejects.toMatchObject({
    msgKey: 'invalid_uuid',
    params: { field: 'file_id' },
  });
  await expect(start({ excludeVdisks: ['../x'] })).rejects.toMatchObject({
    params: { field: 'exclude_vdisks' },
  });
  await expect(start({ compressionLevel: 99 })).rejects.toMatchObject({ msgKey: 'invalid_field' });
});
