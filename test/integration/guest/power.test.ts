import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { PowerAction, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { domainService } from '../../../agent/src/grpc/domain-service.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { removeOrphanedFiles } from '../../../agent/src/workflows/domain/remove-domain.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { CALL, InventoryLab } from '../inventory/lab.ts';

const signal = new AbortController().signal;
const failure = (msgKey: string) => expect.objectContaining({ msgKey });
let lab: InventoryLab;
beforeAll(async () => {
  lab = await InventoryLab.start();
});
afterAll(() => lab?.stop());

describe('power', () => {
  test('through the agent: start, reboot, suspend, resume, reset, shutdown', async () => {
    const guest = await lab.world.defineTiny({ name: 'obeys', dataDisks: [] });
    const id = await guest.uuid();
    await lab.domain(id);
    expect(await lab.power(id, PowerAction.START)).toEqual({ power_state: 'running' });
    await expect(lab.power(id, PowerAction.START)).rejects.toEqual(failure('power_state_conflict'));
    await guest.waitForAgent();
    const pid = guest.qemuPid();
    const bootId = await guest.sh('cat /proc/sys/kernel/random/boot_id');
    expect(await lab.power(id, PowerAction.REBOOT)).toEqual({ power_state: 'running', method: 'agent' });
    await guest.waitForAgent();
    expect(await guest.sh('cat /proc/sys/kernel/random/boot_id')).not.toBe(bootId);
    expect(guest.qemuPid()).toBe(pid);
    expect(await lab.power(id, PowerAction.SUSPEND)).toEqual({ power_state: 'suspended' });
    await expect(lab.power(id, PowerAction.SHUTDOWN)).rejects.toEqual(failure('power_state_conflict'));
    expect(await lab.power(id, PowerAction.RESUME)).toEqual({ power_state: 'running' });
    expect(await lab.power(id, PowerAction.RESET)).toEqual({ power_state: 'running', method: 'forced' });
    await guest.waitForAgent();
    expect(await lab.power(id, PowerAction.SHUTDOWN)).toEqual({ power_state: 'off', method: 'agent' });
    expect(await guest.state()).toBe('shut off');
    await expect(lab.power(id, PowerAction.SHUTDOWN, { force: true })).rejects.toEqual(
      failure('power_state_conflict'),
    );
    await lab.domain(id, domain => domain.powerState === PowerState.OFF && domain.lockedBy === '');
  });

  test('by the button without an agent; an unwilling guest is reported and left running', async () => {
    // without a first process its kernel stands still: the button finds nobody, ever
    const cmdline = 'rdinit=/none panic=0';
    const deaf = await lab.world.defineTiny({ name: 'deaf', dataDisks: [], agent: false, cmdline });
    const id = await deaf.uuid();
    await lab.domain(id);
    await lab.power(id, PowerAction.START);
    await expect(lab.power(id, PowerAction.SHUTDOWN, { timeoutSeconds: 1 })).rejects.toEqual(
      failure('timed_out'),
    );
    expect(await deaf.state()).toBe('running');
    expect(await lab.power(id, PowerAction.SHUTDOWN, { force: true })).toEqual({
      power_state: 'off',
      method: 'forced',
    });
  });

  test('of a guest that is still starting, by its agent as soon as that is there', async () => {
    const early = await lab.world.defineTiny({ name: 'early', dataDisks: [] });
    const id = await early.uuid();
    await lab.domain(id);
    await lab.power(id, PowerAction.START);
    expect(await lab.power(id, PowerAction.SHUTDOWN, { timeoutSeconds: 280 })).toMatchObject({
      power_state: 'off',
    });
  });

  test('by the button when the guest listens to it', async () => {
    const guest = await lab.world.defineTiny({ name: 'button', dataDisks: [] });
    const id = await guest.uuid();
    await guest.start();
    await guest.waitForAgent();
    await guest.sh('killall qemu-ga; true').catch(() => {});
    const result = await lab.power(id, PowerAction.SHUTDOWN, { timeoutSeconds: 280 });
    expect(result.power_state).toBe('off');
  });

  test('a VM whose disks are held by a backup may be shut down; one that must stay off is not started', async () => {
    const guest = await lab.world.defineTiny({ name: 'held', dataDisks: [] });
    const id = await guest.uuid();
    await lab.domain(id);
    await lab.power(id, PowerAction.START);
    const disks = lab.hold(id, ['domain']);
    expect(await lab.power(id, PowerAction.SHUTDOWN, { force: true })).toMatchObject({ power_state: 'off' });
    await disks.release();
    const both = lab.hold(id, ['domain', 'power']);
    await expect(lab.power(id, PowerAction.START)).rejects.toEqual(failure('domain_busy'));
    await both.release();
  });

  test('a template does not start; unknown domains and actions are refused', async () => {
    const guest = await lab.world.defineTiny({ name: 'stamp', dataDisks: [] });
    const id = await guest.uuid();
    await lab.domain(id);
    await lab.domains.update({ domainId: id, template: true }, CALL);
    await expect(lab.power(id, PowerAction.START)).rejects.toEqual(failure('template_not_startable'));
    await expect(lab.power(id, PowerAction.UNSPECIFIED)).rejects.toEqual(failure('invalid_field'));
    await expect(lab.power(randomUUID(), PowerAction.START)).rejects.toEqual(failure('domain_not_found'));
    await lab.domains.update({ domainId: id, template: false }, CALL);
    await lab.power(id, PowerAction.START);
    const running = lab.domains.update({ domainId: id, template: true }, CALL);
    await expect(running).rejects.toEqual(failure('power_state_conflict'));
    await lab.power(id, PowerAction.SHUTDOWN, { force: true });
  });

  test('a wait that is cancelled ends, and forces nothing', async () => {
    const guest = await lab.world.defineTiny({ name: 'patient', dataDisks: [], agent: false });
    const id = await guest.uuid();
    await lab.domain(id);
    await lab.power(id, PowerAction.START);
    const operationId = newId();
    const request = {
      operationId,
      domainId: id,
      action: PowerAction.SHUTDOWN,
      force: false,
      timeoutSeconds: 100,
    };
    const started = Promise.resolve(lab.domains.setPower(request, CALL));
    await started;
    setTimeout(() => lab.runner.cancel(operationId), 300);
    await expect(lab.ended(started)).rejects.toEqual(failure('canceled'));
    await guest.destroy().catch(() => {});
  });
});

describe('another name', () => {
  const rename = (domainId: string, name: string) =>
    lab.ended(lab.domains.rename({ operationId: newId(), domainId, name }, CALL));

  test('is given to a VM that is off, and everybody follows', async () => {
    const guest = await lab.world.defineTiny({ name: 'first-name', dataDisks: [], uefi: true });
    const id = await guest.uuid();
    await lab.domain(id);
    expect(await rename(id, 'second name')).toEqual({ name: 'second name', former_name: 'first-name' });
    await lab.domain(id, ({ name }) => name === 'second name');
    expect((await lab.world.node.virsh('domname', id)).trim()).toBe('second name');
    expect(await rename(id, 'second name')).toEqual({ name: 'second name', former_name: 'second name' });
    await lab.world.node.virsh('domrename', 'second name', 'by-virsh');
    await lab.domain(id, ({ name }) => name === 'by-virsh');
    await lab.power(id, PowerAction.START);
    await expect(rename(id, 'third')).rejects.toEqual(failure('power_state_conflict'));
    await lab.power(id, PowerAction.SHUTDOWN, { force: true });
    await lab.remove(id, { full: true });
  });

  test('takes the UEFI variables along that libvirt finds by it, and no others', async () => {
    const guest = await lab.world.defineTiny({ name: 'chosen', dataDisks: [], uefi: 'chosen' });
    const { nvramDirectory } = lab.workflows;
    const variablesOf = (name: string) => join(nvramDirectory, `${name}_VARS.fd`);
    const id = await guest.uuid();
    await lab.domain(id);
    await guest.start();
    await guest.destroy();
    const own = Buffer.concat([readFileSync(variablesOf('chosen')).subarray(0, -1), Buffer.from([7])]);
    writeFileSync(variablesOf('chosen'), own);
    await lab.domain(id, ({ powerState }) => powerState === PowerState.OFF);
    writeFileSync(variablesOf('taken-file'), 'of another');
    // libvirt 9 looks for them by the name, 11 has their path in the definition, where it stays
    const areFound = !(await guest.xml(true)).includes('</nvram>');
    const taken = rename(id, 'taken-file');
    if (areFound) await expect(taken).rejects.toEqual(failure('file_exists'));
    else await taken;
    expect(readFileSync(variablesOf('taken-file'), 'utf8')).toBe('of another');
    await rename(id, 'chosen-new');
    const present = variablesOf(areFound ? 'chosen-new' : 'chosen');
    expect(existsSync(variablesOf('chosen'))).toBe(!areFound);
    const renamed = new Guest(lab.world.node, 'chosen-new');
    await renamed.start();
    expect(await renamed.xml()).toContain(`/${basename(present)}</nvram>`);
    await renamed.destroy();
    expect(readFileSync(present).subarray(-1)).toEqual(Buffer.from([7]));
    await lab.domain(id, ({ powerState }) => powerState === PowerState.OFF);
    await lab.remove(id, { full: true });
    expect(existsSync(present)).toBe(false);
    rmSync(variablesOf('taken-file'));
  });

  test('is refused when it is taken or none, or when states bear the present one', async () => {
    const guest = await lab.world.defineTiny({ name: 'named' });
    await lab.world.defineTiny({ name: 'taken', dataDisks: [] });
    const id = await guest.uuid();
    await lab.domain(id);
    await expect(rename(id, 'taken')).rejects.toEqual(failure('name_in_use'));
    await expect(rename(id, 'a/b')).rejects.toEqual(failure('invalid_name'));
    await expect(rename(id, ' ')).rejects.toEqual(failure('invalid_name'));
    const held = lab.hold(id, ['power']);
    await expect(rename(id, 'free')).rejects.toEqual(failure('domain_busy'));
    await held.release();
    await lab.world.node.virsh('snapshot-create-as', 'named', 'mine', '--disk-only');
    await expect(rename(id, 'free')).rejects.toEqual(failure('rename_with_states'));
    expect((await lab.world.node.virsh('domname', id)).trim()).toBe('named');
  });

  test.each([
    ['the former one comes back', false],
    ['one that was started under the new one keeps it, and says so', true],
  ])('the agent is killed before its end: %s', async (_what, isStarted) => {
    const name = isStarted ? 'cut-started' : 'cut';
    const guest = await lab.world.defineTiny({ name, dataDisks: [] });
    const domainId = await guest.uuid();
    await lab.domain(domainId);
    const pause = join(lab.world.dir, `${name}.pause`);
    const journal = new Journal(join(lab.world.dir, `${name}.db`));
    const dead = lab.newRunner(journal, `rename_domain.rename.after=pause:${pause}`);
    const { inventory, workflows } = lab;
    const service = domainService({ inventory, workflows, runner: dead });
    const operationId = newId();
    await service.rename({ operationId, domainId, name: `${name}-new` }, CALL);
    await waitFor('the step', () => existsSync(`${pause}.reached`), 180_000, 20);
    expect((await lab.world.node.virsh('domname', domainId)).trim()).toBe(`${name}-new`);
    if (isStarted) await lab.world.node.virsh('start', `${name}-new`);
    const next = lab.newRunner(journal);
    next.recover();
    await expect(lab.ended(Promise.resolve({ id: operationId }), next)).rejects.toEqual(
      failure('interrupted'),
    );
    expect((await lab.world.node.virsh('domname', domainId)).trim()).toBe(isStarted ? `${name}-new` : name);
    expect(next.get(operationId).warnings).toHaveLength(isStarted ? 1 : 0);
    if (isStarted) await lab.world.node.virsh('destroy', `${name}-new`);
    dead.abortAll();
    await dead.idle(AbortSignal.timeout(180_000));
    dead.close();
    next.close();
    journal.close();
  });
});

describe('removal', () => {
  const poolPath = () => lab.world.node.pool(0).path;

  test('needs force when it runs and full with saved states; without full the disks stay', async () => {
    const guest = await lab.world.defineTiny({ name: 'kept' });
    const id = await guest.uuid();
    const disk = (await guest.disks()).vda!;
    await guest.start();
    await lab.domain(id);
    await expect(lab.remove(id)).rejects.toEqual(failure('domain_running'));
    expect(await lab.remove(id, { force: true })).toEqual({ removed: [] });
    expect(existsSync(disk)).toBe(true);
    const states = await lab.world.defineTiny({ name: 'states' });
    await lab.world.node.virsh('snapshot-create-as', 'states', 'one', '--disk-only');
    const statesId = await states.uuid();
    await expect(lab.remove(statesId)).rejects.toEqual(failure('domain_has_states'));
    expect(await states.snapshots()).toEqual(['one']);
  });

  test('takes all layers, memory files and states with it, and nothing that others use', async () => {
    const shared = await makeDataDisk(join(poolPath(), 'base.qcow2'));
    const mine = await makeDataDisk(join(poolPath(), 'mine.qcow2'), { backing: shared });
    const theirs = await makeDataDisk(join(poolPath(), 'theirs.qcow2'), { backing: shared });
    const outside = await makeDataDisk(join(lab.world.dir, 'out', 'o.qcow2'));
    mkdirSync(join(poolPath(), 'backups'), { recursive: true });
    const image = join(poolPath(), 'tools.iso');
    writeFileSync(image, Buffer.alloc(65_536));
    const archived = await makeDataDisk(join(poolPath(), 'backups', 'in.qcow2'));
    const disks = [
      { path: mine },
      { path: outside },
      { path: archived },
      { path: image, device: 'cdrom' as const },
    ];
    const guest = await lab.world.defineTiny({ name: 'gone', disks });
    const other = await lab.world.defineTiny({ name: 'other', disks: [{ path: theirs }] });
    await guest.start();
    await guest.waitForAgent();
    const memory = join(poolPath(), 'gone.memory');
    await lab.world.node.virsh(
      'snapshot-create-as',
      'gone',
      'm',
      '--memspec',
      `${memory},snapshot=external`,
      '--diskspec',
      'vda,snapshot=external',
      '--diskspec',
      'vdb,snapshot=no',
      '--diskspec',
      'vdc,snapshot=no',
    );
    const overlay = (await guest.disks()).vda!;
    expect(overlay).not.toBe(mine);
    const { removed } = await lab.remove(await guest.uuid(), { full: true, force: true });
    expect(removed).toEqual([memory, mine, overlay].sort());
    for (const path of [memory, mine, overlay]) expect(existsSync(path)).toBe(false);
    for (const path of [shared, theirs, outside, archived, image]) expect(existsSync(path)).toBe(true);
    await expect(lab.domains.getXml({ id: await other.uuid(), inactive: true }, CALL)).resolves.toBeDefined();
    expect(await lab.world.node.virsh('list', '--all', '--name')).not.toContain('gone');
  });

  test('leaves the image that its disk was made on, and says so', async () => {
    const golden = await makeDataDisk(join(poolPath(), 'golden.qcow2'));
    const mine = await makeDataDisk(join(poolPath(), 'on-golden.qcow2'), { backing: golden });
    const guest = await lab.world.defineTiny({ name: 'on-golden', disks: [{ path: mine }] });
    await lab.world.node.virsh('snapshot-create-as', 'on-golden', 'one', '--disk-only');
    const overlay = (await guest.disks()).vda!;
    const [domainId, operationId] = [await guest.uuid(), newId()];
    const started = lab.domains.remove({ operationId, domainId, full: true, force: false }, CALL);
    expect(await lab.ended(started)).toEqual({ removed: [mine, overlay].sort() });
    expect(lab.runner.get(operationId).warnings).toEqual([
      `${golden} was left: the VM names it, or a disk of it stands on it, but nothing says that it is this VM's alone.`,
    ]);
    expect([golden, mine, overlay].map(path => existsSync(path))).toEqual([true, false, false]);
  });

  test('leaves the files of a domain that still exists, and those that another took', async () => {
    const guest = await lab.world.defineTiny({ name: 'stays' });
    const paths = [(await guest.disks()).vda!];
    const id = await guest.uuid();
    const told: string[] = [];
    const removed = (domainId: string) =>
      removeOrphanedFiles(lab.workflows, { domainId, paths }, signal, text => told.push(text));
    await removed(id);
    expect([existsSync(paths[0]!), told]).toEqual([true, []]);
    await removed(randomUUID());
    expect([existsSync(paths[0]!), told]).toEqual([
      true,
      [`${paths[0]} was left: it is used by the domain stays.`],
    ]);
    // a QEMU that libvirt does not tell of
    await guest.start();
    const blind = {
      domains: async () => [],
      domainByUuid: (uuid: string) => lab.workflows.libvirt().domainByUuid(uuid),
    };
    const unknown = { ...lab.workflows, libvirt: () => blind as unknown as Libvirt };
    await removeOrphanedFiles(unknown, { domainId: randomUUID(), paths }, signal, text => told.push(text));
    expect([existsSync(paths[0]!), told[1]]).toEqual([
      true,
      `${paths[0]} was left: it is used by a process that has it open.`,
    ]);
    await guest.destroy();
    await lab.world.node.virsh('undefine', 'stays');
    await removed(id);
    await removed(id);
    expect(existsSync(paths[0]!)).toBe(false);
  });

  test.each([
    ['before libvirt forgot the domain: all stays', false],
    ['after it: the files go', true],
  ])('the agent is killed %s', async (_when, undefined_) => {
    const name = undefined_ ? 'killed-late' : 'killed-early';
    const guest = await lab.world.defineTiny({ name });
    const disk = (await guest.disks()).vda!;
    const domainId = await guest.uuid();
    const pause = join(lab.world.dir, `${name}.pause`);
    const journal = new Journal(join(lab.world.dir, `${name}.db`));
    const dead = lab.newRunner(journal, `remove_domain.undefine.before=pause:${pause}`);
    const { inventory, workflows } = lab;
    const service = domainService({ inventory, workflows, runner: dead });
    const operationId = newId();
    await service.remove({ operationId, domainId, full: true, force: false }, CALL);
    await waitFor('the step', () => existsSync(`${pause}.reached`), 180_000, 20);
    if (undefined_) await lab.world.node.virsh('undefine', name);
    const next = lab.newRunner(journal);
    next.recover();
    await expect(lab.ended(Promise.resolve({ id: operationId }), next)).rejects.toEqual(
      failure('interrupted'),
    );
    expect(existsSync(disk)).toBe(!undefined_);
    expect((await lab.world.node.virsh('list', '--all', '--name')).includes(name)).toBe(!undefined_);
    dead.abortAll();
    await dead.idle(AbortSignal.timeout(180_000));
    dead.close();
    next.close();
    journal.close();
  });

  test('removes UEFI variables and TPM state', async () => {
    const guest = await lab.world.defineTiny({ name: 'secure', uefi: true, tpm: true });
    const id = await guest.uuid();
    await guest.start();
    const swtpm = join(lab.world.node.dir, 'lib', 'swtpm');
    const nvram = join(lab.world.node.dir, 'lib', 'qemu', 'nvram');
    expect(readdirSync(swtpm)).toContain(id);
    expect(readdirSync(nvram)).toHaveLength(1);
    await lab.remove(id, { full: true, force: true });
    expect(readdirSync(swtpm)).not.toContain(id);
    expect(readdirSync(nvram)).toHaveLength(0);
  });
});
