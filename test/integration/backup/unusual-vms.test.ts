/** VMs that are lawful but unusual: what libvirt takes is backed up and restored, or refused before anything is touched. */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  CreateSnapshotRequest,
  RemoveSnapshotRequest,
  RevertSnapshotRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import type { BandwidthLimits } from '../../../agent/src/bandwidth/limits.ts';
import { loadStates, savedStateId } from '../../../agent/src/snapshots/index.ts';
import { attachDiskWorkflow } from '../../../agent/src/workflows/lend/attach.ts';
import { createSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/create.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/revert.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { type DiskSpec, type GuestXmlOptions, guestXml } from '../../lab/domain-xml.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { haltingRom } from '../../lab/idle-guest.ts';
import { type CommandFailed, run, succeeds, waitFor } from '../../lab/run.ts';
import { sameContent } from '../archives/archive-tools.ts';
import { WorkflowLab } from './lab.ts';

let lab: WorkflowLab;
let rom: string;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  rom = haltingRom(lab.world.dir);
});
afterAll(() => lab?.stop());

const inPool = (name: string) => join(lab.world.node.pool(0).path, name);

/** Definition of a guest that does nothing; it starts within a second. */
const idleXml = (name: string, disks: DiskSpec[], more: Partial<GuestXmlOptions> = {}) =>
  guestXml({ name, boot: { rom }, agent: false, memoryMiB: 32, disks, ...more });

const idle = (name: string, disks: DiskSpec[], more: Partial<GuestXmlOptions> = {}): Promise<Guest> =>
  defineGuest(lab.world.node, name, idleXml(name, disks, more));

test('a uuid outside of RFC 9562, and raw disks of any size in bytes: backed up, restored, the same content', async () => {
  const sizes = [1, 511, 513, 65_537, 1_000_001];
  const disks = sizes.map((size): DiskSpec => {
    const path = inPool(`odd-${size}.raw`);
    writeFileSync(path, randomBytes(size));
    return { path, format: 'raw' };
  });
  const uuid = '564d9d5e-c5a2-f1b0-0f2e-7d6f5a4b3c2d';
  const guest = await idle('imported', disks, { uuid });
  const restores = async (file: { filename: string }, name: string) => {
    const { result } = await lab.restore(file, { name });
    for (const [index, { path }] of disks.entries())
      expect([path, await sameContent(result.disks[index]!.path, path, 'raw')]).toEqual([path, true]);
  };
  const { file, path, manifest } = await lab.backup(guest);
  expect(manifest.vm.uuid).toBe(uuid);
  await restores(file, 'restored');
  const older = readFileSync(path, 'latin1').replace(/("virtualSizeBytes": ?)1000448/, '$11000001');
  expect(older).toContain('1000001');
  writeFileSync(path, older, 'latin1');
  await restores(file, 'recorded-in-bytes');
  await restores((await lab.backup(guest, { compress: true })).file, 'compressed');
});

const MB = 1_000_000;
const plain = async (name: string): Promise<DiskSpec> => ({
  path: await makePlainDisk(inPool(name), { sizeBytes: 8 * 1_048_576, dataBytes: MB }),
});
const refused = (msgKey: string) => expect.objectContaining({ msgKey });

async function createState(guest: Guest, name: string): Promise<string> {
  const domainId = await guest.uuid();
  const request = CreateSnapshotRequest.fromPartial({ domainId, name });
  await lab.run('create_snapshot', createSnapshotWorkflow(lab.dependencies, request), [domainId]);
  const states = await loadStates(lab.libvirt.domain(domainId));
  return savedStateId(domainId, states.find(state => state.name === name)!);
}

async function removeState(guest: Guest, snapshotId: string): Promise<void> {
  const domainId = await guest.uuid();
  const request = RemoveSnapshotRequest.fromPartial({ domainId, snapshotId });
  await lab.run('remove_snapshot', removeSnapshotWorkflow(lab.dependencies, request), [domainId]);
}

async function revertTo(guest: Guest, snapshotId: string): Promise<void> {
  const domainId = await guest.uuid();
  const request = RevertSnapshotRequest.fromPartial({ domainId, snapshotId });
  await lab.run('revert_snapshot', revertSnapshotWorkflow(lab.dependencies, request), [domainId]);
}

async function attach(borrower: Guest, owner: Guest): Promise<void> {
  const [borrowerId, ownerId] = [await borrower.uuid(), await owner.uuid()];
  const request = {
    borrowerId,
    ownerId,
    diskId: newId(),
    thinClone: false,
    allowNetworkLayers: false,
    warnings: [],
  };
  await lab.run('attach_disk', attachDiskWorkflow(lab.dependencies, request), [borrowerId, ownerId]);
}

describe('a VM whose memory is saved', () => {
  test('has its states, increments and layers left alone until it goes on', async () => {
    const { node } = lab.world;
    const guest = await (await idle('saved', [await plain('saved.qcow2')])).start();
    const first = await createState(guest, 'first');
    await createState(guest, 'second');
    await node.virsh('managedsave', guest.name);
    const disks = await guest.disks();
    const saved = refused('domain_memory_saved');
    await expect(createState(guest, 'third')).rejects.toEqual(saved);
    await expect(removeState(guest, first)).rejects.toEqual(saved);
    await expect(revertTo(guest, first)).rejects.toEqual(saved);
    await expect(lab.backup(guest, { canBeIncremental: true })).rejects.toEqual(saved);
    await expect(lab.backup(guest, { requireConsistency: true })).rejects.toEqual(
      refused('consistency_unavailable'),
    );
    const { manifest, operation } = await lab.backup(guest);
    expect(manifest.states[0].consistency).toBe('crash');
    expect(operation.warnings.join()).toContain('memory');
    expect(await guest.disks()).toEqual(disks);
    await guest.start(); // from its memory, on the files that it names
    await removeState(guest, first);
    expect(await guest.snapshots()).toEqual(['second']);
    await guest.destroy();
  });

  test('saved in the middle of a backup: the layer stays until it goes on, then it is merged', async () => {
    const { node } = lab.world;
    const guest = await (await idle('saved-meanwhile', [await plain('meanwhile.qcow2')])).start();
    const before = await guest.disks();
    let overlays: Record<string, string> = {};
    lab.whileFrozen = async () => {
      await node.virsh('managedsave', guest.name);
      overlays = await guest.disks();
    };
    lab.inject('', 1);
    const { operation } = await lab.backup(guest);
    expect(operation.warnings.join()).toContain('managed save');
    expect(await guest.disks()).toEqual(overlays);
    expect(existsSync(overlays.vda!)).toBe(true);
    await guest.start();
    lab.runner.retryNow();
    await waitFor('the merge', async () => (await guest.disks()).vda === before.vda, 60_000);
    await waitFor('the end of the layer', async () => !existsSync(overlays.vda!), 60_000);
    // the file of its memory may be held open for a while by what the guest was started from
    await waitFor('the end of the undo', () => lab.journal.unsettled().length === 0, 120_000);
    await guest.destroy();
  });
});

describe('a transient VM', () => {
  const BLOCK = 65_536;
  /** Its manager keeps the XML, and starts it with it. */
  const created = async (name: string, disk: DiskSpec): Promise<Guest> => {
    const { node } = lab.world;
    const file = join(node.dir, `${name}.xml`);
    writeFileSync(file, idleXml(name, [disk], { uuid: newId() }));
    await node.virsh('create', file);
    return new Guest(node, name);
  };
  /** What the guest would do. */
  const write = ({ node, name }: Guest, byte: number) =>
    node.virsh(
      'qemu-monitor-command',
      name,
      '--hmp',
      `qemu-io -d ua-a/virtio-backend "write -P ${byte} 0 ${BLOCK}"`,
    );
  const holds = async (path: string, byte: number) => {
    const read = `read -P ${byte} 0 ${BLOCK}`;
    const { stdout } = await run(['qemu-io', '-r', '-U', '-f', 'qcow2', '-c', read, path]).catch(
      (error: CommandFailed) => error,
    );
    return /^read 65536/m.test(stdout) && !stdout.includes('verification failed');
  };
  const layers = () => lab.files(0).filter(name => name.includes('virtkeep-tmp'));
  const diskOf = async (name: string): Promise<DiskSpec> => ({
    ...(await plain(`${name}.qcow2`)),
    alias: 'ua-a',
  });

  test('gets no state that stays, is lent nothing and lends nothing; a plain backup leaves it as it was', async () => {
    const disk = await diskOf('transient');
    const guest = await created('transient', disk);
    const none = refused('domain_transient');
    await expect(createState(guest, 'state')).rejects.toEqual(none);
    await expect(lab.backup(guest, { canBeIncremental: true })).rejects.toEqual(none);
    const other = await idle('not-transient', [await plain('other.qcow2')]);
    for (const [borrower, owner] of [
      [guest, other],
      [other, guest],
    ] as const)
      await expect(attach(borrower, owner)).rejects.toEqual(none);
    const { operation } = await lab.backup(guest);
    expect(operation.warnings.join()).toContain('transient');
    expect((await guest.disks()).vda).toBe(disk.path);
    expect(layers()).toEqual([]);
    await guest.destroy();
  });

  test('that stops in the middle has what it wrote put back into its disk', async () => {
    const disk = await diskOf('stopping');
    const guest = await created('stopping', disk);
    lab.whileFrozen = async () => {
      await write(guest, 7);
      await guest.destroy();
      expect(await holds(disk.path, 7)).toBe(false);
    };
    await lab.backup(guest);
    expect(await holds(disk.path, 7)).toBe(true);
    expect(layers()).toEqual([]);
  });

  test('that stops while it is copied ends the backup at once, before its manager starts it again', async () => {
    const disk = await diskOf('copied');
    const guest = await created('copied', disk);
    const gate = join(lab.world.dir, 'copied');
    lab.inject(`backup.copy.before=pause:${gate}`);
    const backup = lab.backup(guest);
    await waitFor('the copy', async () => existsSync(`${gate}.reached`), 60_000);
    await write(guest, 8);
    await guest.destroy();
    writeFileSync(gate, '');
    await expect(backup).rejects.toEqual(refused('domain_stopped'));
    lab.inject('');
    expect(await holds(disk.path, 8)).toBe(true);
    expect(layers()).toEqual([]);
  });

  test('that its manager has started again on the old file: the layer with its newest data stays and is named', async () => {
    const disk = await diskOf('restarted');
    const guest = await created('restarted', disk);
    lab.whileFrozen = async () => {
      await write(guest, 9);
      await guest.destroy();
      await created('restarted', disk);
      await write(guest, 1);
    };
    const { operation } = await lab.backup(guest);
    const [layer] = layers();
    expect(await holds(inPool(layer!), 9)).toBe(true);
    expect(operation.warnings.join()).toContain(layer!);
    await guest.destroy();
    expect(await holds(disk.path, 1)).toBe(true);
    rmSync(inPool(layer!));
  });
});

test('an encrypted disk is copied as the one file that it is, or not at all', async () => {
  const { node } = lab.world;
  const secret = newId();
  const file = join(node.dir, 'secret');
  writeFileSync(file, `<secret private='yes'><uuid>${secret}</uuid></secret>`);
  await node.virsh('secret-define', file);
  writeFileSync(file, 'pass');
  await node.virsh('secret-set-value', secret, '--file', file, '--plain');
  const encrypted = async (name: string, format: 'qcow2' | 'luks') => {
    const path = inPool(`${name}.img`);
    const keys = ['key-secret=s', 'iter-time=10'].map(key => (format === 'luks' ? key : `encrypt.${key}`));
    const options = [...keys, ...(format === 'luks' ? [] : ['encrypt.format=luks'])].join(',');
    const create = ['qemu-img', 'create', '-q', '--object', 'secret,id=s,data=pass'] as const;
    // qemu-img measures the processor for the key's strength, and gives up where others are using it
    const isMade = () => succeeds([...create, '-f', format, '-o', options, path, '1M']);
    await waitFor('an encrypted image', isMade, 120_000);
    const type = format === 'luks' ? 'raw' : format;
    const devices = `<disk type='file' device='disk'><driver name='qemu' type='${type}'/><source file='${path}'>
      <encryption format='luks'><secret type='passphrase' uuid='${secret}'/></encryption></source>
      <target dev='vda' bus='virtio'/></disk>`;
    return { path, guest: await idle(name, [], { devices }) };
  };
  const no = refused('vdisk_encrypted');
  const { guest, path } = await encrypted('secret', 'qcow2');
  await expect(createState(guest, 'state')).rejects.toEqual(no);
  await expect(lab.backup(guest, { canBeIncremental: true })).rejects.toEqual(no);
  const { file: backup } = await lab.backup(guest);
  const { result } = await lab.restore(backup, { name: 'secret-restored', startOn: true });
  await node.virsh('destroy', 'secret-restored');
  expect(readFileSync(result.disks[0]!.path).equals(readFileSync(path))).toBe(true);
  await guest.start();
  await expect(lab.backup(guest)).rejects.toEqual(no);
  await guest.destroy();
  const raw = await encrypted('raw-luks', 'luks');
  const { file: ofRaw, manifest } = await lab.backup(raw.guest);
  expect(manifest).toMatchObject({ formatVersion: 3, disks: [{ encryption: 'luks', formerFormat: 'raw' }] });
  const restored = await lab.restore(ofRaw, { name: 'raw-luks-restored', startOn: true });
  await node.virsh('destroy', 'raw-luks-restored');
  const restoredPath = restored.result.disks[0]!.path;
  expect(restoredPath).toMatch(/\.img$/);
  expect(readFileSync(restoredPath).equals(readFileSync(raw.path))).toBe(true);
  expect(await node.virsh('dumpxml', 'raw-luks-restored')).toMatch(
    /type='raw'[\s\S]*<encryption format='luks'/,
  );
  await raw.guest.start();
  await expect(lab.backup(raw.guest)).rejects.toEqual(no);
  await raw.guest.destroy();
  const files = lab.files(0).filter(name => /^(secret|raw-luks)\./.test(name));
  expect(files).toEqual(['raw-luks.img', 'secret.img']);
});

describe('a VM with its disk on a device, which has no times', () => {
  let device: string;
  let image: string;
  beforeAll(async () => {
    image = join(lab.world.dir, 'device.img');
    await run(['truncate', '-s', '32M', image]);
    device = (await run(['losetup', '--find', '--show', image])).stdout.trim();
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', device, '16M']);
    await run(['qemu-io', '-f', 'qcow2', '-c', 'write -q -P 7 0 8M', device]);
  });
  afterAll(async () => {
    await run(['losetup', '--detach', device]);
    rmSync(image);
  });
  afterEach(() => {
    delete lab.dependencies.bandwidth;
  });

  /** While the next backup reads, once. */
  function whileRead(act: () => Promise<unknown>): void {
    let reads = 0;
    const take = async () => void (++reads === 3 && (await act()));
    const atFixedRate = <T>(work: (bytesPerSecond: number) => Promise<T>) => work(0);
    const join = () => ({ take, atFixedRate, leave: () => {} });
    lab.dependencies.bandwidth = { join } as unknown as BandwidthLimits;
  }
  const limits = [{ key: 'k', bytesPerSecond: 1n }];
  const onDevice = (name: string) => idle(name, [{ path: device, type: 'block', format: 'qcow2' }]);

  /** As the guest does: into the host's cache, from where it goes to the device some time. */
  async function writeInside({ name }: Guest, byte: number): Promise<void> {
    const path = '/machine/peripheral/virtio-disk0/virtio-backend';
    const command = `qemu-io -d ${path} "write -P ${byte} 4M 64k"`;
    expect(await lab.world.node.virsh('qemu-monitor-command', name, '--hmp', command)).toBe('');
  }

  const counting = (isOn: boolean) =>
    writeFileSync(`/sys/class/block/${basename(device)}/queue/iostats`, isOn ? '1' : '0');

  test('is not backed up as it lies while others run it for a moment', async () => {
    const guest = await onDevice('run-meanwhile');
    let isRead = false;
    whileRead(async () => {
      isRead = true;
    });
    await lab.backup(guest, { limits });
    expect(isRead).toBe(true);
    whileRead(async () => {
      await guest.start();
      await writeInside(guest, 9);
      await guest.destroy();
    });
    await expect(lab.backup(guest, { limits })).rejects.toEqual(refused('power_state_conflict'));
    // what writes into the layer above leaves the device as it is
    await guest.start();
    await writeInside(guest, 10);
    whileRead(() => writeInside(guest, 11));
    const { file } = await lab.backup(guest, { limits });
    await guest.destroy();
    const { result } = await lab.restore(file, { name: 'restored-device' });
    const pattern = ['-c', 'read -P 10 4M 64k', result.disks[0]!.path];
    expect((await run(['qemu-io', '-f', 'qcow2', ...pattern])).stdout).not.toContain('verification failed');
  });

  test('nor where the kernel counts no writes: libvirt tells of the start', async () => {
    const guest = await onDevice('not-counted');
    counting(false);
    try {
      whileRead(async () => {});
      await lab.backup(guest, { limits });
      whileRead(async () => {
        await guest.start();
        await guest.destroy();
      });
      await expect(lab.backup(guest, { limits })).rejects.toEqual(refused('power_state_conflict'));
    } finally {
      counting(true);
    }
  });
});
