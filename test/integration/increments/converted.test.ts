// An increment may ask that the archive be compressed, unpacked or hashed: it is converted, and its states stay what they were.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { WorkflowLab } from '../backup/lab.ts';
import { firstBackup, increment, write } from './lab.ts';
import { expectStates } from './texts-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

describe('a running guest with an agent', () => {
  test('made plain without hashes, it is compressed and has them when an increment asks for that, and is unpacked again', async () => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}] });
    await (await guest.start()).waitForAgent();
    await write(guest, '/mnt/vda/note', 'one');
    const first = await firstBackup(lab, guest);
    await write(guest, '/mnt/vda/note', 'two');
    const other = await increment(lab, guest, first, { extendCompressed: true, extendHashed: true });
    expect(other.path).toBe(`${first.path}.zst`);
    expect(other.operation.warnings).toEqual([expect.stringContaining('was converted')]);
    await expectStates(lab, other.path, ['one', 'two'], true);
    await write(guest, '/mnt/vda/note', 'three');
    const back = await increment(lab, guest, other, { extendCompressed: false });
    expect(back.path).toBe(first.path);
    await expectStates(lab, back.path, ['one', 'two', 'three']);
    const names = readdirSync(join(lab.world.node.pool(1).path, 'backups'));
    expect(names.filter(name => name.includes(guest.name) || /tail|partial/.test(name)).toSorted()).toEqual([
      back.file.filename,
      `${back.file.filename}.sha256`,
    ]);
    await guest.destroy();
  });
});
