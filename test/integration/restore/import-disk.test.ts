// Disk images of a pool's backups become disks: of new VMs, and further ones of a VM that runs or is off.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { VMDK_TEXT } from '../../../agent/src/appliance/test-kit.ts';
import { cpus, descriptor, disk, memory, scsi, system, VMDK } from '../../../agent/src/ovf/test-kit.ts';
import { AgentAlone, fileOf } from '../../e2e/agent-alone.ts';
import { Guest, untilThere } from '../../lab/guest.ts';
import { ImportLab, newVm } from './import-lab.ts';

// data, a hole, and data again
const CONTENT = Buffer.concat([randomBytes(2 * MiB), Buffer.alloc(13 * MiB), randomBytes(MiB)]);
const FORMATS: [string, ...string[]][] = [
  ['disk.qcow2', 'qcow2'],
  ['packed.QCOW2', 'qcow2', '-c'],
  ['disk.raw', 'raw'],
  ['disk.img', 'raw'],
  ['stream.vmdk', 'vmdk', '-o', 'subformat=streamOptimized'],
  ['sparse.VMDK', 'vmdk', '-o', 'subformat=monolithicSparse'],
  ['disk.vhdx', 'vhdx'],
  ['dynamic.vhd', 'vpc', '-o', 'subformat=dynamic,force_size=on'],
  ['fixed.vhd', 'vpc', '-o', 'subformat=fixed,force_size=on'],
  ['disk.vdi', 'vdi'],
];

let alone: AgentAlone;
let lab: ImportLab;
let running: Guest;

beforeAll(async () => {
  alone = await AgentAlone.start();
  lab = new ImportLab(alone);
  running = await alone.world.defineTiny({ name: 'web' });
  for (const [name, ...format] of FORMATS) lab.image(name, CONTENT, ...format);
  await (await running.start()).waitForAgent();
});
afterAll(() => alone?.stop());

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

async function imported(id: string) {
  return resultOf(await alone.heard(id), 'importDisk');
}

async function listed() {
  const operationId = newId();
  const poolId = lab.pool.uuid;
  await alone.pools.scan({ operationId, poolId });
  await alone.heard(operationId);
  return (await alone.pools.listFiles({ poolId })).files;
}

describe('a scan', () => {
  test('lists images with what they are, but not those of a descriptor', async () => {
    lab.image('part.vmdk', CONTENT, 'vmdk');
    const files = '<File ovf:id="f" ovf:href="part.vmdk"/><File ovf:id="g" ovf:href="gone.vmdk"/>';
    const one = `<Disk ovf:diskId="d" ovf:fileRef="f" ovf:capacity="1" ovf:format="${VMDK}"/>`;
    const items = cpus(1) + memory(64) + scsi(3, 'lsilogic') + disk(4, 3, 0, 'ovf:/disk/d');
    lab.put('vm.ovf', descriptor({ files, disks: one, content: system({ name: 'vm', items }) }));
    const found = await listed();
    expect(found.map(({ filename }) => filename)).toEqual(
      [...FORMATS.map(([name]) => name), 'vm.ovf'].sort(),
    );
    for (const [filename] of FORMATS) {
      const file = found.find(one => one.filename === filename)!;
      expect(file).toMatchObject({ type: 'disk', damage: '', domainId: '', states: [] });
      const format = filename.toLowerCase().endsWith('.img') ? 'raw' : filename.toLowerCase().split('.')[1]!;
      const allocatedSize = BigInt(statSync(file.path).blocks * 512);
      expect(file.image).toEqual({ format, virtualSize: BigInt(CONTENT.length), allocatedSize });
    }
    // without its descriptor it is an image like others
    rmSync(join(lab.backups, 'vm.ovf'));
    expect((await listed()).map(({ filename }) => filename)).toContain('part.vmdk');
    rmSync(join(lab.backups, 'part.vmdk'));
    await listed();
  });

  test('shows one as of no VM', async () => {
    const shown = await alone.backups.show({ file: { poolId: lab.pool.uuid, filename: 'disk.vdi' } });
    expect(shown).toMatchObject({ xml: '', warnings: [], signature: { trust: 'foreign' } });
    expect(shown.configuration).toBeUndefined();
  });
});

describe('as the disk of a new VM', () => {
  test.each(FORMATS)('%s', async filename => {
    const { disk: made, name, domainId } = await imported(await lab.start(filename, newVm('new')));
    expect(made).toMatchObject({ targetDev: 'vda', poolId: lab.pool.uuid });
    const guest = new Guest(alone.world.node, name);
    expect([await guest.uuid(), await guest.disks()]).toEqual([
      domainId,
      expect.objectContaining({ vda: made!.path }),
    ]);
    const xml = await guest.xml(true);
    expect(spawnSync('virt-xml-validate', ['-', 'domain'], { input: xml })).toMatchObject({ status: 0 });
    expect(lab.rawOf(made!.path).equals(CONTENT)).toBe(true);
    // the hole stays one
    expect(statSync(made!.path).blocks * 512).toBeLessThan(6 * MiB);
    execFileSync('qemu-img', ['check', '-q', '-f', 'qcow2', made!.path]);
    await alone.world.node.virsh('undefine', name);
    rmSync(made!.path);
  });

  test('is what was asked for: bus, firmware, processors, adapter', async () => {
    await alone.world.node.virsh('net-define', networkFile());
    const request = { ...newVm('big', { memoryCount: 96n, cpuCount: 3, firmware: 'uefi', network: 'lan' }) };
    const { disk: made } = await imported(await lab.start('disk.vhdx', { ...request, targetBus: 'scsi' }));
    const xml = await new Guest(alone.world.node, 'big').xml(true);
    expect(made!.targetDev).toBe('sda');
    expect(xml).toMatch(/<target dev='sda' bus='scsi'\/>[\s\S]*model='virtio-scsi'/);
    expect(xml).toContain("<vcpu placement='static'>3</vcpu>");
    expect(xml).toMatch(/<memory unit='KiB'>98304<[\s\S]*machine='pc-q35[\s\S]*network='lan'/);
    expect(xml).toMatch(/<loader[^>]*type='pflash'|firmware='efi'/);
    await alone.world.node.virsh('undefine', 'big', '--nvram');
    rmSync(made!.path);
    const sata = await imported(
      await lab.start('disk.img', { ...newVm('old', { virtio: false, network: 'lan' }), targetBus: 'sata' }),
    );
    const old = await new Guest(alone.world.node, 'old').xml(true);
    expect(old).toMatch(/bus='sata'[\s\S]*<model type='e1000'/);
    await alone.world.node.virsh('undefine', 'old');
    await alone.world.node.virsh('net-undefine', 'lan');
    rmSync(sata.disk!.path);
  });

  test.each([
    ['disk.qcow2', newVm('web'), 'name_in_use'],
    ['disk.qcow2', newVm('new', { network: 'nowhere' }), 'network_not_found'],
  ])('%s with %j is refused with %s', async (filename, request, msgKey) => {
    const before = lab.made();
    const operation = await alone.ended(await lab.start(filename, request));
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey } });
    expect(lab.made()).toEqual(before);
  });
});

function networkFile(): string {
  const file = join(alone.world.dir, 'lan.xml');
  writeFileSync(file, "<network><name>lan</name><forward mode='none'/></network>");
  return file;
}

describe('as a further disk', () => {
  const readBy = (device: string) =>
    running.sh(`${untilThere(`/dev/${device}`)}; sha256sum < /dev/${device}`);

  test.each(['disk.qcow2', 'disk.raw', 'stream.vmdk', 'disk.vhdx', 'fixed.vhd', 'disk.vdi'])(
    '%s is read by a guest that runs, and stays after its next start',
    async filename => {
      const pid = running.qemuPid();
      const { disk: made, warnings, name } = await imported(await lab.startFor(running, filename));
      expect({ warnings, name, target: made!.targetDev }).toEqual({
        warnings: [],
        name: 'web',
        target: 'vdb',
      });
      const read = await readBy('vdb');
      expect(read).toContain(sha256(CONTENT));
      expect(running.qemuPid()).toBe(pid);
      for (const inactive of [false, true]) expect(await running.xml(inactive)).toContain(made!.path);
      await running.withoutDisk('vdb');
      rmSync(made!.path);
    },
  );

  test('on the bus that was asked for: SCSI, and no SATA while it runs', async () => {
    const { disk: made } = await imported(await lab.startFor(running, 'disk.vdi', { targetBus: 'scsi' }));
    expect(made!.targetDev).toBe('sda');
    expect(await readBy('sda')).toContain(sha256(CONTENT));
    await running.withoutDisk('sda');
    rmSync(made!.path);
    const before = lab.made();
    const operation = await alone.ended(await lab.startFor(running, 'disk.vdi', { targetBus: 'sata' }));
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'invalid_field' } });
    expect(lab.made()).toEqual(before);
  });

  test('of one that is off it stands in the definition, under names that are free', async () => {
    const idle = await alone.world.defineTiny({ name: 'idle', idle: true });
    const first = await imported(await lab.startFor(idle, 'disk.vdi'));
    const second = await imported(await lab.startFor(idle, 'disk.vdi', { targetBus: 'sata' }));
    expect(await idle.disks()).toMatchObject({ vdb: first.disk!.path, sda: second.disk!.path });
    expect(await idle.state()).toBe('shut off');
    await idle.start();
    await idle.destroy();
  });

  test('the next increment has it whole, and a revert to an earlier state takes it off', async () => {
    const guest = await alone.world.defineTiny({ name: 'grows', idle: true });
    const id = newId();
    const poolId = lab.pool.uuid;
    const first = fileOf(
      await alone.heard(await alone.startBackup(guest, { fileId: id, canBeIncremental: true })),
    );
    const { disk: made, warnings } = await imported(await lab.startFor(guest, 'disk.vhdx'));
    expect(warnings).toEqual([expect.stringContaining('a revert to one takes it off the VM')]);
    const extend = { poolId, filename: first.filename };
    const grown = fileOf(
      await alone.heard(await alone.startBackup(guest, { extend, extendFileId: id, fileId: newId() })),
    );
    expect(grown.filename).toBe(first.filename);
    const restore = await alone.startRestore(grown.filename, { domainId: newId(), poolId, flatten: true });
    const { name, disks } = resultOf(await alone.heard(restore), 'restore');
    expect(disks).toHaveLength(2);
    expect(lab.rawOf(disks.find(({ targetDev }) => targetDev === 'vdb')!.path).equals(CONTENT)).toBe(true);
    const [state] = await guest.snapshots();
    const operationId = newId();
    const domainId = await guest.uuid();
    const { snapshots } = await alone.snapshots.list({ domainId });
    const snapshotId = snapshots.find(one => one.name === state)!.id;
    await alone.snapshots.revert({ operationId, domainId, snapshotId });
    await alone.heard(operationId);
    expect(Object.keys(await guest.disks())).not.toContain('vdb');
    expect(existsSync(made!.path)).toBe(true);
    expect(lab.rawOf(made!.path).equals(CONTENT)).toBe(true);
    await alone.world.node.virsh('undefine', name);
    rmSync(grown.path);
  });
});

describe('an image that means harm', () => {
  const before: string[] = [];
  beforeAll(() => {
    before.push(...lab.made());
  });
  afterEach(() => expect(lab.made()).toEqual(before));

  const SECRET = Buffer.alloc(MiB, 'secret');
  const refused = async (filename: string, msgKey: string, request: object = {}) => {
    const operation = await alone.ended(await lab.start(filename, { ...newVm('harm'), ...request }));
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey } });
    expect(await alone.world.node.virsh('list', '--all', '--name')).not.toContain('harm');
    rmSync(join(lab.backups, filename));
    return operation.error!.detail;
  };
  const secret = () => {
    const path = join(alone.world.dir, 'secret');
    writeFileSync(path, SECRET);
    return path;
  };
  const greedy = (name: string, ...options: string[]) => {
    const path = join(alone.world.dir, name);
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...options, path]);
    copyFileSync(path, join(lab.backups, name));
  };

  test('by a file below it', async () => {
    greedy('backing.qcow2', '-b', secret(), '-F', 'raw');
    expect(await refused('backing.qcow2', 'foreign_disk_invalid')).toMatch(/another/);
  });

  test('by a file with its data', async () => {
    const path = join(alone.world.dir, 'data.qcow2');
    const data = join(alone.world.dir, 'data.raw');
    const options = ['-o', `data_file=${data},data_file_raw=on`, path, '1M'];
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...options]);
    copyFileSync(path, join(lab.backups, 'data.qcow2'));
    await refused('data.qcow2', 'foreign_disk_invalid');
  });

  test('by a text that names a file of the node', async () => {
    lab.put('flat.vmdk', VMDK_TEXT.replace(/RW .*/, `RW 2048 FLAT "${secret()}" 0`));
    await refused('flat.vmdk', 'foreign_disk_invalid');
  });

  test('by the beginning of another format in a raw disk, which is taken raw only when that is said', async () => {
    greedy('looks.raw', '-b', secret(), '-F', 'raw');
    await refused('looks.raw', 'foreign_disk_invalid');
    lab.image('alone.img', CONTENT, 'qcow2');
    const found = (await listed()).find(({ filename }) => filename === 'alone.img')!;
    expect(found.damage).toMatch(/taken for raw and looks like qcow2/);
    expect(found.image).toBeUndefined();
    const bytes = readFileSync(join(lab.backups, 'alone.img'));
    const { disk: made } = await imported(await lab.start('alone.img', { ...newVm('raw'), format: 'raw' }));
    expect(lab.rawOf(made!.path).subarray(0, bytes.length).equals(bytes)).toBe(true);
    await alone.world.node.virsh('undefine', 'raw');
    rmSync(made!.path);
    const named = await imported(await lab.start('alone.img', { ...newVm('named'), format: 'qcow2' }));
    expect(lab.rawOf(named.disk!.path).equals(CONTENT)).toBe(true);
    await alone.world.node.virsh('undefine', 'named');
    rmSync(named.disk!.path);
    await refused('alone.img', 'disk_format_contradicted');
  });

  test('by a name that says another format', async () => {
    lab.image('lies.vmdk', CONTENT, 'vdi');
    await refused('lies.vmdk', 'disk_format_contradicted');
  });
});

test('what a VM runs from is not removed with the backups', async () => {
  const path = lab.image('used.qcow2', CONTENT, 'qcow2');
  const user = await alone.world.defineTiny({ name: 'user', idle: true, disks: [{ path }] });
  const operationId = newId();
  const file = { poolId: lab.pool.uuid, filename: 'used.qcow2' };
  await alone.backups.delete({ operationId, file, fileId: newId() });
  const operation = await alone.ended(operationId);
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'image_in_use' } });
  expect(existsSync(path)).toBe(true);
  await alone.world.node.virsh('undefine', user.name);
  const again = newId();
  await alone.backups.delete({ operationId: again, file, fileId: newId() });
  await alone.heard(again);
  expect(existsSync(path)).toBe(false);
});
