/** What the tests of increments of a running guest share: the text that the guest writes before each state, looked at in the archive. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { run } from '../../lab/run.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { contentOf, firstBackup, increment, type Made, unpack, write } from './lab.ts';

/**
 * Each state of the archive shows the text that the guest had written then, in a file system that is clean.
 * @param hashed the hashes beside the archive are those of all its members, too
 */
export async function expectStates(
  lab: WorkflowLab,
  path: string,
  texts: string[],
  hashed = false,
): Promise<void> {
  const { directory, manifests } = await unpack(lab, path);
  // before the layers are joined, which changes them
  if (hashed) await run(['sha256sum', '--quiet', '--strict', '-c', `${path}.sha256`], { cwd: directory });
  const joined = new Map<string, string | undefined>();
  for (const [index, text] of texts.entries()) {
    const manifest = manifests.get(index + 1)!;
    expect(manifest.states.map(({ number }) => number)).toEqual(
      texts.slice(0, index + 1).map((_, i) => i + 1),
    );
    expect(await contentOf(directory, manifest, 'note', joined)).toBe(text);
  }
}

export const statesOf = (made: Made): string[] =>
  made.manifest.states.map(({ name }: { name: string }) => name);

/** Five increments of a running guest with an agent, held and not held. */
export async function fiveIncrements(lab: WorkflowLab, compress: boolean): Promise<void> {
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
  await expectStates(lab, path, texts, true);
  expect(
    readdirSync(join(lab.world.node.pool(1).path, 'backups')).filter(name => /tail|partial/.test(name)),
  ).toEqual([]);
  expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
  await guest.destroy();
}
