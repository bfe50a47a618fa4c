// kill -9 and other blows at each step of a backup: afterwards nothing of it is left, and the guest never noticed.
import { rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { BACKUP_STEPS } from '../../agent/src/workflows/backup/backup.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;
let pid: number | undefined;

beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({
    dataDisks: [{ sizeMiB: 64 }, { format: 'raw' }],
    cmdline: 'writer=/mnt/vda/w',
  });
  await (await guest.start()).waitForAgent();
  before = await alone.picture(guest);
  pid = guest.qemuPid();
});
afterAll(() => alone?.stop());

/** The guest runs as before, is not frozen, and nothing was left; a good archive may be there. */
async function expectClean(archives: string[] = []): Promise<void> {
  expect(await alone.picture(guest)).toEqual({ ...before, files: [before.files[0], archives] });
  expect(guest.qemuPid()).toBe(pid);
  expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
}

afterEach(() => {
  for (const name of alone.files(1)) rmSync(`${alone.world.node.pool(1).path}/backups/${name}`);
});

const moments = momentsOf(BACKUP_STEPS, 'copy.mid', 'merge.before');

describe('kill -9 of the agent', () => {
  test.each(moments)('at %s', async moment => {
    const operation = await alone.killedAt(`backup.${moment}`, () => alone.startBackup(guest));
    if (moment.startsWith('merge')) {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      await expectClean([fileOf(operation).filename]);
    } else {
      expect(operation).toMatchObject(INTERRUPTED);
      await expectClean();
    }
  });
});

describe('cancel', () => {
  test.each(moments.filter(moment => !moment.startsWith('merge') && moment !== 'publish.after'))(
    'at %s',
    async moment => {
      const operation = await alone.canceledAt(`backup.${moment}`, () => alone.startBackup(guest));
      expect(operation.state).toBe(OperationState.CANCELED);
      await expectClean();
    },
  );

  test('past the point of no return is refused, and the backup is good', async () => {
    const file = alone.pauseFile('late');
    await alone.arm(`backup.merge.before=pause:${file}`);
    const id = await alone.startBackup(guest);
    await alone.whilePaused(file, async () => {
      await expect(alone.operations.cancel({ id })).rejects.toThrow();
    });
    const operation = await alone.ended(id);
    expect(operation.state).toBe(OperationState.SUCCEEDED);
    await expectClean([fileOf(operation).filename]);
  });
});

describe('libvirtd is killed and restarted', () => {
  test.each(['state.before', 'state.after', 'copy.after', 'merge.before'])('at %s', async moment => {
    const file = alone.pauseFile(`libvirtd-${moment}`);
    await alone.arm(`backup.${moment}=pause:${file}`);
    const id = await alone.startBackup(guest);
    await alone.whilePaused(file, async () => {
      await alone.world.node.killLibvirtd();
      await alone.world.node.startLibvirtd();
    });
    const operation = await alone.ended(id);
    const good = operation.state === OperationState.SUCCEEDED;
    if (!good) expect(operation.error).toMatchObject({ msgKey: expect.stringMatching(/libvirt|snapshot/) });
    await expectClean(good ? [fileOf(operation).filename] : []);
  });

  test('and the agent is killed too', async () => {
    const file = alone.pauseFile('both');
    await alone.arm(`backup.copy.after=pause:${file}`);
    const id = await alone.startBackup(guest);
    await alone.whilePaused(file, async () => {
      await alone.world.node.killLibvirtd();
      await alone.agent.daemon.kill();
    });
    const seen = alone.agent.daemon.log().length;
    await alone.agent.daemon.spawn();
    const misses = () => alone.agent.daemon.log().slice(seen).includes('libvirt is not reachable');
    await waitFor('an agent that misses libvirt', misses, 240_000);
    await alone.world.node.startLibvirtd();
    await alone.restart();
    expect((await alone.ended(id)).state).toBe(OperationState.FAILED);
    await expectClean();
  });
});

describe('SIGTERM', () => {
  test('in the middle of the copy undoes everything before the agent ends', async () => {
    const file = alone.pauseFile('term');
    await alone.arm(`backup.copy.mid=pause:${file}`);
    const id = await alone.startBackup(guest);
    await alone.whilePaused(file, () => alone.agent.daemon.stop());
    await expectClean();
    await alone.up();
    expect((await alone.ended(id)).error).toMatchObject({ msgKey: 'interrupted' });
  });
});
