// Imports of a disk image that are killed, cancelled, run out of space, or meet others who stop, start and remove the VM.
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import {
  IMPORT_FURTHER_STEPS,
  IMPORT_NEW_STEPS,
} from '../../../agent/src/workflows/import-disk/import-disk.ts';
import { AgentAlone, INTERRUPTED, momentsOf, type Picture } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { type Guest, untilThere } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { waitFor } from '../../lab/run.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { ImportLab, newVm } from './import-lab.ts';

const CONTENT = randomBytes(6 * MiB);
const FILE = 'disk.vmdk';

let small: SmallDisk;
let alone: AgentAlone;
let lab: ImportLab;
let guest: Guest;
let before: Picture;
let tight: Pool;

beforeAll(async () => {
  small = await SmallDisk.mount(64);
  alone = await AgentAlone.start();
  lab = new ImportLab(alone);
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  guest = await alone.world.defineTiny({ name: 'web' });
  lab.image(FILE, CONTENT, 'vmdk', '-o', 'subformat=streamOptimized');
  await (await guest.start()).waitForAgent();
  before = await alone.picture(guest);
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});

const asNew = () => lab.start(FILE, newVm('new'));
const asFurther = () => lab.startFor(guest, FILE);

async function expectNothing(): Promise<void> {
  expect(await alone.picture(guest)).toEqual(before);
  expect(await guest.xml(true)).not.toContain('vdb');
}

/** All but the agent's marker of the pool. */
const leftInTight = () => readdirSync(small.path).filter(name => name !== '.virtkeep-pool');

/** An import that is held at that point while others do something. @returns it when it has ended */
async function meanwhile(
  point: string,
  start: () => Promise<string>,
  work: (id: string) => Promise<unknown>,
) {
  const name = `import_disk.${point}`;
  const pause = alone.pauseFile(name);
  await alone.arm(`${name}=pause:${pause}`);
  const id = await start();
  await alone.whilePaused(pause, async () => {
    await work(id);
  });
  return alone.ended(id);
}

describe.each([
  ['a new VM', IMPORT_NEW_STEPS, asNew],
  ['a VM that runs', IMPORT_FURTHER_STEPS, asFurther],
] as const)('into %s', (_, steps, start) => {
  const moments = momentsOf(steps, 'convert.mid');
  test.each(start === asFurther ? moments : few(moments, 'convert.mid', `${steps.at(-1)}.after`))(
    'kill -9 of the agent at %s',
    async moment => {
      const pid = guest.qemuPid();
      const operation = await alone.killedAt(`import_disk.${moment}`, start);
      expect(operation).toMatchObject(INTERRUPTED);
      await expectNothing();
      expect(guest.qemuPid()).toBe(pid);
    },
  );

  test.each(['convert.mid', `${steps[2]}.after`])('cancel at %s', async moment => {
    const operation = await alone.canceledAt(`import_disk.${moment}`, start);
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectNothing();
  });
});

test('a pool that runs full leaves nothing, and has room again', async () => {
  const start = () => lab.start(FILE, { ...newVm('new'), poolId: tight.uuid });
  const operation = await meanwhile('check.after', start, async () => small.fill(2));
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
  small.free();
  expect(leftInTight()).toEqual([]);
  const full = await (async () => {
    small.fill(2);
    return alone.ended(await start());
  })();
  expect(full).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'pool_no_space' } });
  small.free();
  expect(leftInTight()).toEqual([]);
  await expectNothing();
});

test('a pool that went away before its turn came gets nothing', async () => {
  const [marker, away] = ['.virtkeep-pool', 'elsewhere'].map(name => join(small.path, name));
  const start = () => lab.start(FILE, { ...newVm('new'), poolId: tight.uuid });
  const operation = await meanwhile('check.before', start, async () => renameSync(marker!, away!));
  renameSync(away!, marker!);
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'pool_not_mounted' } });
  expect(leftInTight()).toEqual([]);
  await expectNothing();
});

describe('a guest that has the disk when the import is cancelled', () => {
  test('keeps it when it has written to it, as the operation tells', async () => {
    const operation = await meanwhile('attach.after', asFurther, async id => {
      await guest.sh(`${untilThere('/dev/vdb')}; echo mine | dd of=/dev/vdb conv=fsync`);
      await alone.operations.cancel({ id });
    });
    expect(operation.state).toBe(OperationState.CANCELED);
    const { vdb } = await guest.disks();
    expect(operation.warnings).toContainEqual(
      expect.stringContaining(`The disk vdb (${vdb}) was left on web`),
    );
    expect(lab.rawOf(vdb!).subarray(0, 5).toString()).toBe('mine\n');
    await guest.withoutDisk('vdb');
    rmSync(vdb!);
    await expectNothing();
  });

  test('is asked again until it lets go', async () => {
    const operation = await meanwhile('attach.after', asFurther, async id => {
      await alone.world.node.virsh('suspend', 'web');
      await alone.operations.cancel({ id });
      const resumed = () => alone.agent.daemon.log().includes('device did not detach');
      setTimeout(() => {
        void waitFor('a refusal', resumed, 120_000).finally(() => alone.world.node.virsh('resume', 'web'));
      }, 0);
    });
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectNothing();
  });
});

describe('while it converts, somebody', () => {
  test('stops the VM: it has the disk at its next start', async () => {
    const operation = await meanwhile('convert.after', asFurther, () => guest.destroy());
    const { disk } = resultOf(operation, 'importDisk');
    expect(await guest.disks()).toMatchObject({ vdb: disk!.path });
    await (await guest.start()).waitForAgent();
    await guest.withoutDisk('vdb');
    rmSync(disk!.path);
  });

  test('starts the VM: it gets the disk at once', async () => {
    await guest.destroy();
    const operation = await meanwhile('convert.after', asFurther, async () =>
      (await guest.start()).waitForAgent(),
    );
    const { disk } = resultOf(operation, 'importDisk');
    for (const inactive of [false, true]) expect(await guest.xml(inactive)).toContain(disk!.path);
    await guest.withoutDisk('vdb');
    rmSync(disk!.path);
  });

  test('undefines the VM: nothing is left of the disk', async () => {
    const idle = await alone.world.defineTiny({ name: 'idle', idle: true });
    const files = lab.made();
    const operation = await meanwhile(
      'convert.after',
      () => lab.startFor(idle, FILE),
      () => alone.world.node.virsh('undefine', 'idle'),
    );
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'domain_not_found' } });
    expect(lab.made()).toEqual(files);
  });

  test('writes to the file: the copy is worth nothing', async () => {
    const file = 'changes.raw';
    lab.put(file, CONTENT);
    const operation = await meanwhile(
      // it is opened by then; how far a copy of such a small file is at the middle nobody can tell
      'convert.before',
      () => lab.start(file, newVm('new')),
      async () => {
        lab.put(file, randomBytes(6 * MiB));
      },
    );
    expect(operation).toMatchObject({
      state: OperationState.FAILED,
      error: { msgKey: 'foreign_disk_invalid' },
    });
    expect(existsSync(lab.backups)).toBe(true);
    rmSync(`${lab.backups}/${file}`);
    expect(await alone.world.node.virsh('list', '--all', '--name')).not.toContain('new');
  });
});
