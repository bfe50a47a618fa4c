// Every state of an archive of many: restored with its saved states, flattened, from memory, under both identities.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { openBackup } from '../../../agent/src/workflows/archives/source.ts';
import { backupConfiguration } from '../../../agent/src/workflows/files/show-backup.ts';
import { instantRestoreWorkflow } from '../../../agent/src/workflows/restore/instant/instant-restore.ts';
import { makeDataDisk, makePlainDisk } from '../../lab/disks.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { filesInside } from '../archives/archive-tools.ts';
import { StateArchive } from '../archives/state-archive.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { scribble, scribbled } from '../templates/lab.ts';

let lab: WorkflowLab;
let guest: Guest;
let archive: StateArchive;
/** Boot id of the guest when its memory was saved: the same after it resumed. */
let bootId: string;
const FILES = { plain: { filename: 'many.tar' }, compressed: { filename: 'many.tar.zst' } };

const pathOf = (file: { filename: string }) => join(lab.world.node.pool(1).path, 'backups', file.filename);
const poolId = (pool: number) => lab.world.node.pool(pool).uuid;
const virsh = (...args: string[]) => lab.world.node.virsh(...args);
const restored = (name: string) => new Guest(lab.world.node, name);
const written = (state: number) => `in state ${state}\n`;

/**
 * State 1: vda alone. A saved state of the user's own. State 2: vda and vdb, which was added. State 3, with memory: vda
 * grown; the state of the first increment was merged away on the VM before.
 */
beforeAll(async () => {
  lab = await WorkflowLab.start();
  guest = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }] });
  await (await guest.start()).waitForAgent();
  archive = new StateArchive(guest, lab.world.dir);
  const write = (state: number) => guest.sh(`echo in state ${state} > /mnt/vda/${state}; sync`);
  await write(1);
  await archive.take();
  await guest.sh('echo mine > /mnt/vda/mine; sync');
  await virsh('snapshot-create-as', guest.name, 'mine', '--disk-only', '--quiesce');
  await write(2);
  await archive.take();
  await write(3);
  await virsh('snapshot-delete', guest.name, archive.stateName(1));
  await guest.sh('echo kept > /tmp/in-memory-only; date -s "2001-09-09 01:46:40"');
  bootId = await guest.sh('cat /proc/sys/kernel/random/boot_id');
  await archive.take({ memoryIn: lab.world.node.pool(0).path });
  await guest.sh('echo never archived > /mnt/vda/4; sync');
  await archive.write(pathOf(FILES.plain), { hash: true });
  await archive.write(pathOf(FILES.compressed), { compress: true });
});
afterAll(() => lab?.stop());

/** What the disk of a VM that is off holds. */
async function filesOf(path: string): Promise<(string | undefined)[]> {
  return (await filesInside(path, ['1', 'mine', '2', '3', '4'])).map(text => text || undefined);
}

const EXPECTED = {
  '1': [written(1), undefined, undefined, undefined, undefined],
  mine: [written(1), 'mine\n', undefined, undefined, undefined],
  '2': [written(1), 'mine\n', written(2), undefined, undefined],
  '3': [written(1), 'mine\n', written(2), written(3), undefined],
};

async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}

async function remove(name: string): Promise<void> {
  const copy = restored(name);
  const files = Object.values(await copy.disks()).filter(path => path.startsWith('/'));
  if ((await copy.state()) !== 'shut off') await copy.destroy();
  const chains = (await Promise.all(files.map(chainOf))).flat();
  await virsh('undefine', name, '--snapshots-metadata', '--managed-save');
  for (const path of new Set(chains)) rmSync(path, { force: true });
}

/** State 2 has another one below it and one of the user's; 3 is the newest. The compressed form differs in how bytes are read alone. */
const shownOf = (form: string) =>
  few(['1', '2', '3'] as const, ...(form === 'plain' ? (['2', '3'] as const) : (['2'] as const)));

describe.each(Object.entries(FILES))('each state of a %s archive', (form, file) => {
  test.each(shownOf(form))('%s, with its saved states', async state => {
    const { result, operation } = await lab.restore(file, { state, poolId: poolId(1) });
    expect(operation.warnings).toEqual([]);
    const disk = result.disks[0]!.path;
    const names = { '1': [], '2': [1, 'mine'], '3': [1, 'mine', 2] }[state];
    const expected = names.map(name => (typeof name === 'number' ? archive.stateName(name) : name));
    const copy = restored(result.name);
    expect(await copy.snapshots()).toEqual(expected);
    if (expected.length > 0)
      expect((await virsh('snapshot-current', copy.name, '--name')).trim()).toBe(expected.at(-1));
    expect(await chainOf(disk)).toHaveLength(names.length + 1);
    for (const [index, name] of expected.entries()) {
      const xml = await virsh('snapshot-dumpxml', copy.name, name);
      expect(xml).not.toContain('virtkeep backup=');
      expect(/<parent>\s*<name>([^<]+)</.exec(xml)?.[1]).toBe(expected[index - 1]);
      const kept = /<domain type[\s\S]*?<source file='([^']+)'/.exec(xml)![1]!;
      const label = String(names[index]) as keyof typeof EXPECTED;
      expect(await filesOf(kept)).toEqual(EXPECTED[label]);
    }
    if (state !== '3') expect(await filesOf(disk)).toEqual(EXPECTED[state]);
    // libvirt can work with what it was told
    await copy.start();
    for (const name of expected) await virsh('snapshot-delete', copy.name, name);
    expect(await copy.snapshots()).toEqual([]);
    await remove(copy.name);
  });

  test.each(shownOf(form))('%s, flattened', async state => {
    const wanted = state === '2' ? archive.stateName(2) : state;
    const { result } = await lab.restore(file, { state: wanted, poolId: poolId(1), flatten: true });
    const copy = restored(result.name);
    expect(await copy.snapshots()).toEqual([]);
    const disk = result.disks[0]!.path;
    expect(await chainOf(disk)).toEqual([disk]);
    await run(['qemu-img', 'check', '-q', disk]);
    const { result: joined } = await lab.restore(file, { state, poolId: poolId(1) });
    const { stdout } = await run(['qemu-img', 'compare', disk, joined.disks[0]!.path]);
    expect(stdout).toContain('identical');
    await remove(joined.name);
    await remove(copy.name);
    const left = lab.files(1).filter(name => name.includes('.layer') || name.endsWith('.memory'));
    expect(left).toEqual([]);
  });
});

describe('a state with memory', () => {
  test.each([true, false])('resumes where the guest was, flattened: %s', async flatten => {
    const { result, operation } = await lab.restore(FILES.plain, {
      state: '3',
      poolId: poolId(1),
      startOn: true,
      flatten,
    });
    expect(operation.warnings).toEqual([]);
    const copy = await restored(result.name).waitForAgent();
    expect(await copy.sh('cat /tmp/in-memory-only /mnt/vda/3')).toBe(`kept\n${written(3)}`);
    const clock = Number(await copy.sh('date +%s'));
    expect(Math.abs(Date.now() / 1000 - clock)).toBeLessThan(600);
    expect(await copy.sh('cat /proc/sys/kernel/random/boot_id')).toBe(bootId);
    expect(await copy.sh('ls /mnt/vda')).not.toContain('4');
    await remove(copy.name);
  });

  test('resumes in place of the lost VM, whose archives end to be extendable', async () => {
    const uuid = await guest.uuid();
    await remove(guest.name);
    const { result } = await lab.restore(FILES.compressed, {
      state: '3',
      poolId: poolId(1),
      startOn: true,
      keepIdentity: true,
    });
    expect(result).toMatchObject({ domain_id: uuid, name: guest.name });
    await guest.waitForAgent();
    expect(await guest.sh('cat /tmp/in-memory-only')).toBe('kept\n');
    expect(await guest.sh('cat /proc/sys/kernel/random/boot_id')).toBe(bootId);
    expect(await guest.xml(true)).toContain('states-deleted=');
    await remove(guest.name);
  });
});

test('a thin clone with saved states, flattened, stands on its template still', async () => {
  const templateId = newId();
  const inPool = (name: string) => join(lab.world.node.pool(0).path, name);
  const metadata = (inner: string) =>
    `<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' ${inner}</virtkeep:domain>`;
  const templateDisk = await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 4 << 20 });
  await scribble(templateDisk, 'base');
  await lab.world.defineTiny({
    uuid: templateId,
    disks: [{ path: templateDisk }],
    metadata: metadata("template='yes' version='1'>"),
  });
  const cloneDisk = await makeDataDisk(inPool(`${newId()}.qcow2`), { backing: templateDisk });
  const clone = await lab.world.defineTiny({
    disks: [{ path: cloneDisk }],
    metadata: metadata(`><virtkeep:parent id='${templateId}' version='1'/>`),
  });
  for (const [index, name] of ['s1', 's2'].entries()) {
    await scribble((await clone.disks()).vda!, name, (index + 1) << 20);
    await virsh('snapshot-create-as', clone.name, name, '--disk-only');
  }
  const { file } = await lab.backup(clone);
  const { result } = await lab.restore(file, { poolId: poolId(1), flatten: true });
  const disk = result.disks[0]!.path;
  expect(await chainOf(disk)).toEqual([disk, templateDisk]);
  expect(await scribbled(disk, 4)).toBe('base');
  for (const [index, name] of ['s1', 's2'].entries())
    expect(await scribbled(disk, 2, (index + 1) << 20)).toBe(name);
  const instant = StartRestoreRequest.fromPartial({
    file: { poolId: poolId(1), filename: file.filename },
    domainId: newId(),
    instant: true,
  });
  await expect(lab.run('restore', instantRestoreWorkflow(lab.dependencies, instant))).rejects.toMatchObject({
    msgKey: 'instant_restore_unsupported',
  });
});

test('each state is shown as it was', async () => {
  for (const number of [1, 2, 3]) {
    const opened = await openBackup(pathOf(FILES.compressed), String(number), AbortSignal.timeout(180_000));
    await opened.archive.close();
    const shown = backupConfiguration(opened.manifest, opened.state, opened.xml);
    expect(shown.disks).toMatchObject([{ targetDev: 'vda', virtualSize: 64n * 1024n * 1024n }]);
    expect(shown.snapshots.length).toBe([1, 3, 3][number - 1]);
    expect(opened.manifest.disks[0]!.layers).toHaveLength([1, 3, 4][number - 1]!);
  }
});
