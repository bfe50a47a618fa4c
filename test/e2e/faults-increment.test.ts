// kill -9 and other blows at each step of an increment: archive and VM are afterwards as before, and the next one works.
// A plain archive, and one that is converted on the way; faults-increment-compressed.test.ts asks the same of a compressed one.
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { fileOf, INTERRUPTED, type Picture } from './agent-alone.ts';
import { Archive, asksEachMoment, IncrementsAlone } from './faults-increment-lab.ts';

let lab: IncrementsAlone;
beforeAll(async () => {
  lab = await IncrementsAlone.start();
});
afterAll(() => lab?.alone.stop());

describe('tar', () => asksEachMoment(() => lab, false));

describe('a plain one without hashes that is to be compressed and to have them', () => {
  let archive: Archive;
  const other = () => archive.start({ extendCompressed: true, extendHashed: true });
  beforeAll(async () => {
    archive = await new Archive(lab).make({ compress: false, hashSum: false });
  });
  afterAll(() => archive?.remove());

  async function expectUntouched(before: Picture, bytes: string): Promise<void> {
    await lab.expectAsBefore(before);
    expect(archive.bytes()).toBe(bytes);
    expect(lab.alone.files(1).filter(name => name.startsWith('.'))).toEqual([]);
  }

  // between the conversion and the increment, and with both made and not committed
  test.each(['recheck.before', 'publish.after'])('kill -9 of the agent at %s', async moment => {
    const [before, bytes] = [await lab.alone.picture(lab.guest), archive.bytes()];
    const operation = await lab.alone.killedAt(`backup.${moment}`, other);
    expect(operation).toMatchObject(INTERRUPTED);
    await expectUntouched(before, bytes);
  });

  // a conversion that is short may be done before the cancel in its middle arrives
  test.each(['mid', 'after'])('cancel of the conversion at %s', async moment => {
    const [before, bytes] = [await lab.alone.picture(lab.guest), archive.bytes()];
    const operation = await lab.alone.canceledAt(`backup.convert.${moment}`, other);
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectUntouched(before, bytes);
  });

  test('kill -9 when it is committed: the former file goes, and every state is whole in the other', async () => {
    await archive.write();
    const former = archive.path;
    const operation = await lab.alone.killedAt('backup.remove.before', other);
    expect(operation.state).toBe(OperationState.SUCCEEDED);
    Object.assign(archive, fileOf(operation));
    expect([existsSync(former), archive.path]).toEqual([false, `${former}.zst`]);
    await lab.alone.arm('');
    await archive.extend();
    await archive.check();
    expect(lab.alone.files(1).filter(name => name.startsWith('.'))).toEqual([]);
  });
});
