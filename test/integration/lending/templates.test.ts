// Lending from templates and thin clones (specification 4.1, rule 3), to a VM of another node, and backups beside it.
import { randomUUID } from 'node:crypto';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { DiskSource } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { LENDING_STATE } from '../../../agent/src/snapshots/index.ts';
import { backupWorkflow } from '../../../agent/src/workflows/backup/backup.ts';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import { restoreWorkflow } from '../../../agent/src/workflows/restore/restore.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run as runProgram } from '../../lab/run.ts';
import { CALL } from '../inventory/lab.ts';
import { LendLab, onLent } from './lab.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
const METADATA = "xmlns:virtkeep='urn:virtkeep:domain:1'";
let lab: LendLab;
let reader: Guest;
let owner: Guest;
let ownDisk: string;

beforeAll(async () => {
  lab = await LendLab.start();
  reader = await lab.base.world.defineTiny({ name: 'reader', dataDisks: [{ sizeMiB: 8 }] });
  owner = await lab.base.world.defineTiny({ name: 'owner', dataDisks: [{ files: { mark: 'old' } }] });
  for (const guest of [owner, reader]) await guest.start();
  for (const guest of [owner, reader]) await guest.waitForAgent();
  ownDisk = (await lab.diskIds(owner))[0]!;
});
afterAll(() => lab?.stop());

const read = (guest: Guest, diskId: string) =>
  guest.sh(onLent(diskId, 'cat $M/mark')).then(text => text.trim());

const run = (kind: string, workflow: Workflow, domainId: string) =>
  lab.base.ended(
    Promise.resolve(
      lab.base.runner.start({
        id: newId(),
        kind,
        request: {},
        entities: [],
        locks: [{ kind: 'domain', id: domainId, mode: 'exclusive' }],
        cancellable: true,
        workflow,
      }),
    ),
  );

async function backup(guest: Guest, options: Partial<StartBackupRequest> = {}) {
  const domainId = await guest.uuid();
  const poolId = lab.base.world.node.pool(1).uuid;
  const request = StartBackupRequest.fromPartial({ domainId, fileId: newId(), poolId, ...options });
  const result = await run('backup', backupWorkflow(lab.base.workflows, request), domainId);
  const file = result.file as { filename: string; manifestJson: string };
  return { filename: file.filename, manifest: JSON.parse(file.manifestJson), poolId };
}

describe('a template and its thin clone', () => {
  let clone: Guest;
  let [templateDisk, cloneDisk] = ['', ''];

  beforeAll(async () => {
    const [templateId, directory] = [randomUUID(), lab.base.world.node.pool(0).path];
    const base = await makeDataDisk(join(directory, `${randomUUID()}.qcow2`), {
      files: { mark: 'template' },
    });
    const template = await lab.base.world.defineTiny({
      name: 'template',
      uuid: templateId,
      disks: [{ path: base }],
      metadata: `<virtkeep:domain ${METADATA} template='yes' version='1'/>`,
    });
    const top = await makeDataDisk(join(directory, `${randomUUID()}.qcow2`), { backing: base });
    clone = await lab.base.world.defineTiny({
      name: 'clone',
      disks: [{ path: top }],
      metadata: `<virtkeep:domain ${METADATA}><virtkeep:parent id='${templateId}' version='1'/></virtkeep:domain>`,
    });
    await (await clone.start()).waitForAgent();
    await clone.sh('echo clone > /mnt/vda/mark; sync');
    [templateDisk, cloneDisk] = [(await lab.diskIds(template))[0]!, (await lab.diskIds(clone))[0]!];
    expect(templateDisk).not.toBe(cloneDisk);
  });

  test("with thin_clone the clone's own state is attached, named by either id", async () => {
    const cloneId = await clone.uuid();
    for (const id of [cloneDisk, templateDisk]) {
      const result = await lab.attach(reader, id, cloneId);
      expect(result).toMatchObject({
        vdisk: cloneDisk,
        owner_id: cloneId,
        snapshot: { name: LENDING_STATE },
      });
      await clone.sh('echo later > /mnt/vda/mark; sync');
      expect(await read(reader, cloneDisk)).toBe('clone');
      expect((await lab.known(reader)).attachments).toMatchObject([{ diskId: cloneDisk, thinClone: true }]);
      await lab.detach(reader, id, cloneId);
      await clone.sh('echo clone > /mnt/vda/mark; sync');
      expect(await lab.isSound(clone)).toEqual({ lends: 0, hasState: false });
    }
  });

  test("without it the template's disk is, with the template's state, and no state is made", async () => {
    const template = (await lab.known(clone)).parentId;
    const own = await lab.attach(reader, templateDisk);
    expect(own).toMatchObject({ vdisk: templateDisk, owner_id: template, snapshot: null, warnings: [] });
    expect(await read(reader, templateDisk)).toBe('template');
    await expect(async () =>
      lab.base.domains.update({ domainId: template, template: false }, CALL),
    ).rejects.toBeDefined();
    await expect(lab.base.remove(template, { full: true })).rejects.toBeDefined();
    await lab.detach(reader, templateDisk);
    const named = await lab.attach(reader, cloneDisk);
    expect(named).toMatchObject({ vdisk: templateDisk, owner_id: template });
    expect(named.warnings).toHaveLength(1);
    await lab.detach(reader, cloneDisk);
    expect((await lab.known(reader)).attachments).toEqual([]);
    await lab.base.inventory.refreshDomain(template);
    expect(lab.base.inventory.domain(template).loans).toEqual([]);
  });

  test('both at once are two disks', async () => {
    await lab.attach(reader, templateDisk);
    await lab.attach(reader, cloneDisk, await clone.uuid());
    expect([await read(reader, templateDisk), await read(reader, cloneDisk)]).toEqual(['template', 'clone']);
    await lab.detach(reader, cloneDisk, await clone.uuid());
    await lab.detach(reader, templateDisk);
    expect(await lab.isSound(clone)).toEqual({ lends: 0, hasState: false });
  });
});

describe('backups', () => {
  test('of a borrower leave the lent disk out, and a restored one does not get it', async () => {
    await lab.attach(reader, ownDisk);
    const { filename, manifest, poolId } = await backup(reader);
    expect(manifest.disks).toHaveLength(1);
    expect((await reader.snapshots()).length).toBe(0);
    const domainId = newId();
    const request = StartRestoreRequest.fromPartial({ file: { poolId, filename }, domainId });
    await run('restore', restoreWorkflow(lab.base.workflows, request), domainId);
    await lab.base.inventory.refreshDomain(domainId);
    const restored = lab.base.inventory.domain(domainId);
    expect(restored).toMatchObject({ attachments: [] });
    expect(restored.disks).toHaveLength(1);
    await lab.detach(reader, ownDisk);
  });

  test('of an owner are refused while it runs, and when they would leave a state', async () => {
    await lab.attach(reader, ownDisk);
    await expect(backup(owner)).rejects.toEqual(failure('vdisk_attached_elsewhere'));
    await owner.destroy();
    await expect(backup(owner, { canBeIncremental: true })).rejects.toEqual(
      failure('vdisk_attached_elsewhere'),
    );
    const { manifest } = await backup(owner);
    expect(manifest.disks).toHaveLength(1);
    await (await owner.start()).waitForAgent();
    await lab.detach(reader, ownDisk);
    expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
    expect((await backup(owner)).manifest.disks).toHaveLength(1);
  });
});

test('a borrower reverts to a state of before without the disk, and keeps it when it has it still', async () => {
  const domainId = await reader.uuid();
  await lab.attach(reader, ownDisk);
  const request = { operationId: newId(), domainId, name: 's', description: '', memory: false };
  await lab.base.ended(
    Promise.resolve(
      lab.snapshots.create({ ...request, requireConsistency: false, allowNetworkLayers: false }, CALL),
    ),
  );
  const revert = async () => {
    const snapshotId = (await lab.known(reader)).savedStates[0]!.id;
    await lab.base.ended(
      Promise.resolve(lab.snapshots.revert({ operationId: newId(), domainId, snapshotId }, CALL)),
    );
    await reader.waitForAgent();
  };
  await revert();
  expect(await read(reader, ownDisk)).toBe('old');
  await lab.detach(reader, ownDisk);
  await revert();
  expect((await lab.known(reader)).attachments).toEqual([]);
  expect(await reader.xml(true)).not.toContain('ua-virtkeep');
  expect(await lab.isSound(owner)).toEqual({ lends: 0, hasState: false });
  const snapshotId = (await lab.known(reader)).savedStates[0]!.id;
  await lab.base.ended(
    Promise.resolve(
      lab.snapshots.remove({ operationId: newId(), domainId, snapshotId, bandwidth: 0n }, CALL),
    ),
  );
});

/** What an owner's node that is not what it seems could answer, and what a guest of it could have written. */
async function attackBy(attach: (from: DiskSource) => Promise<unknown>, source: DiskSource): Promise<void> {
  const { path } = lab.base.world.node.pool(0);
  const secret = join(lab.base.world.dir, 'secret');
  await writeFile(secret, 'root:secret\n'.repeat(4096));
  await mkdir(join(path, 'backups'), { recursive: true });
  const make = (name: string, ...args: string[]) =>
    runProgram(['qemu-img', 'create', '-q', '-f', 'qcow2', ...args, join(path, name), '1M']);
  await make('planted.raw', '-u', '-b', secret, '-F', 'raw');
  await make(
    'json.qcow2',
    '-u',
    '-F',
    'raw',
    '-b',
    `json:{"driver":"raw","file":{"driver":"file","filename":"${secret}"}}`,
  );
  await make('data.qcow2', '-o', `data_file=${join(path, 'data')},data_file_raw=on`);
  await make('backups/vm.qcow2');
  await symlink(secret, join(path, 'link.raw'));
  for (const [pathInPool, format, msgKey] of [
    ['planted.raw', 'qcow2', 'vdisk_unreachable'],
    ['json.qcow2', 'qcow2', 'vdisk_unreachable'],
    ['data.qcow2', 'qcow2', 'vdisk_unreachable'],
    ['backups/vm.qcow2', 'qcow2', 'vdisk_unreachable'],
    ['planted.raw', 'vmdk', 'vdisk_unreachable'],
    ['link.raw', 'raw', 'path_outside_pool'],
    ['/etc/shadow', 'raw', 'path_outside_pool'],
  ] as const)
    await expect(attach({ ...source, pathInPool, format })).rejects.toEqual(failure(msgKey));
  await attach({ ...source, pathInPool: 'planted.raw', format: 'raw' });
  const disk = (await reader.xml()).match(/<disk (?:(?!<\/disk>).)*planted.raw.*?<\/disk>/s)![0];
  expect(disk).toMatch(/type='raw'/);
  expect(disk).not.toContain(secret);
  await lab.detach(reader, source.diskId);
  for (const name of ['planted.raw', 'json.qcow2', 'data.qcow2', 'data', 'backups/vm.qcow2', 'link.raw'])
    await rm(join(path, name));
}

test('a disk of another node: lent there, attached here, given back', async () => {
  const [domainId, ownerId] = [await reader.uuid(), await owner.uuid()];
  const loan = {
    diskId: ownDisk,
    thinCloneId: '',
    borrowerId: domainId,
    borrowerNodeId: newId(),
    allowNetworkLayers: false,
  };
  const lend = () => lab.base.ended(Promise.resolve(lab.disks.lend({ operationId: newId(), ...loan }, CALL)));
  const told = await lend();
  const source = DiskSource.fromJSON(told.source);
  expect(source).toMatchObject({ diskId: ownDisk, ownerId, format: 'qcow2', thinClone: false });
  expect(source.poolId).toBe(lab.base.world.node.pool(0).uuid);
  expect(await lend()).toEqual(told);
  const attach = (from: DiskSource) =>
    lab.base.ended(
      Promise.resolve(
        lab.disks.attach(
          {
            operationId: newId(),
            domainId,
            diskId: ownDisk,
            thinCloneId: '',
            source: from,
            allowNetworkLayers: false,
          },
          CALL,
        ),
      ),
    );
  for (const wrong of [{ poolId: newId() }, { pathInPool: 'nothing.qcow2' }])
    await expect(attach({ ...source, ...wrong })).rejects.toEqual(failure('vdisk_unreachable'));
  await expect(attach({ ...source, pathInPool: '../escape' })).rejects.toEqual(failure('path_outside_pool'));
  expect((await lab.isSound(owner)).lends).toBe(1);
  await attackBy(attach, source);
});
