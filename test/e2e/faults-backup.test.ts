// A backup that is cancelled at each of its steps, loses libvirt, or is told to end: nothing of it is left, and the guest never noticed.
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { QUICK_STARTS } from '../lab/agent.ts';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { type AgentAlone, fileOf } from './agent-alone.ts';
import { BackupAlone, MOMENTS } from './faults-backup-lab.ts';

let lab: BackupAlone;
let alone: AgentAlone;
let guest: Guest;
beforeAll(async () => {
  // these agents start as they are shipped
  delete process.env[QUICK_STARTS];
  lab = await BackupAlone.start();
  ({ alone, guest } = lab);
});
afterAll(() => alone?.stop());
afterEach(() => lab.clear());

describe('cancel', () => {
  test.each(MOMENTS.filter(moment => !moment.startsWith('merge') && moment !== 'publish.after'))(
    'at %s',
    async moment => {
      const operation = await alone.canceledAt(`backup.${moment}`, () => alone.startBackup(guest));
      expect(operation.state).toBe(OperationState.CANCELED);
      await lab.expectClean();
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
    await lab.expectClean([fileOf(operation).filename]);
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
    await lab.expectClean(good ? [fileOf(operation).filename] : []);
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
    await lab.expectClean();
  });
});

describe('SIGTERM', () => {
  test('in the middle of the copy undoes everything before the agent ends', async () => {
    const file = alone.pauseFile('term');
    await alone.arm(`backup.copy.mid=pause:${file}`);
    const id = await alone.startBackup(guest);
    await alone.whilePaused(file, () => alone.agent.daemon.stop());
    await lab.expectClean();
    await alone.up();
    expect((await alone.ended(id)).error).toMatchObject({ msgKey: 'interrupted' });
  });
});
