// kill -9 at each step of a backup: afterwards nothing of it is left, and the guest never noticed.
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Guest } from '../lab/guest.ts';
import { type AgentAlone, fileOf, INTERRUPTED } from './agent-alone.ts';
import { BackupAlone, MOMENTS } from './faults-backup-lab.ts';

let lab: BackupAlone;
let alone: AgentAlone;
let guest: Guest;
beforeAll(async () => {
  lab = await BackupAlone.start();
  ({ alone, guest } = lab);
});
afterAll(() => alone?.stop());
afterEach(() => lab.clear());

describe('kill -9 of the agent', () => {
  test.each(MOMENTS)('at %s', async moment => {
    const operation = await alone.killedAt(`backup.${moment}`, () => alone.startBackup(guest));
    if (moment.startsWith('merge')) {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      await lab.expectClean([fileOf(operation).filename]);
    } else {
      expect(operation).toMatchObject(INTERRUPTED);
      await lab.expectClean();
    }
  });
});
