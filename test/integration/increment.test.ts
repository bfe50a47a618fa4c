import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { run } from '../lab/run.ts';
import { checkFileSystem } from './archive-tools.ts';
import { contentOf, diskOf, firstBackup, increment, type Made, unpack, write } from './increment-lab.ts';
import { WorkflowLab } from './workflow-lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

/** Each state of the archive shows the text that the guest had written then. */
async function expectStates(path: string, texts: string[], target = 'vda'): Promise<void> {
  const { directory, manifests } = await unpack(lab, path);
  for (const [index, text] of texts.entries()) {
    const manifest = manifests.get(index + 1)!;
    expect(manifest.states.map(({ number }) => number)).toEqual(
      texts.slice(0, index + 1).map((_, i) => i + 1),
    );
    expect(await contentOf(directory, manifest, 'note', target)).toBe(text);
    await checkFileSystem(await diskOf(directory, manifest, target));
  }
}

const statesOf = (made: Made): string[] => made.manifest.states.map(({ name }: { name: string }) => name);

describe('a running guest with an agent', () => {
  test.each([
    ['tar', false],
    ['tar.zst', true],
  ])('%s: five increments, held and not held, each state as the guest was', async (_, compress) => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}, { format: 'raw' }] });
    await (await guest.start()).waitForAgent();
    await write(guest, '/mnt/vda/note', 'one');
    let made = await firstBackup(lab, guest, { compress, hashSum: true });
    const { path } = made;
    expect(made.manifest).toMatchObject({
      incremental: true,
      states: [{ number: 1, consistency: 'quiesced' }],
    });
    expect(await guest.snapshots()).toEqual(statesOf(made));
    const texts = ['one'];
    for (const [text, holdStates, left] of [
      ['two', true, 2],
      ['three', true, 3],
      ['four', true, 4],
      ['five', false, 3],
      ['six', false, 3],
    ] as const) {
      await write(guest, '/mnt/vda/note', text);
      texts.push(text);
      made = await increment(lab, guest, made, { holdStates });
      expect(made.path).toBe(path);
      expect(made.operation.warnings).toEqual([]);
      expect(JSON.parse(made.operation.resultJson)).toMatchObject({ state: texts.length });
      expect(await guest.snapshots()).toEqual(statesOf(made).slice(-left));
    }
    expect(made.manifest.disks[0].layers).toHaveLength(6);
    await expectStates(path, texts);
    const { directory } = await unpack(lab, path);
    await run(['sha256sum', '--quiet', '-c', `${path}.sha256`], { cwd: directory });
    expect(
      readdirSync(join(lab.world.node.pool(1).path, 'backups')).filter(name => /tail|partial/.test(name)),
    ).toEqual([]);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.destroy();
  });
});
