// Increments of thin clones, and what a template with thin clones makes of the wish for them.
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { filesInside } from '../archives/archive-tools.ts';
import { increment } from '../increments/lab.ts';
import { chainOf, diskPath, TemplateLab } from './lab.ts';

let templates: TemplateLab;
let template: Guest;
let clone: Guest;

beforeAll(async () => {
  templates = await TemplateLab.start();
  template = await templates.lab.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template\n' } }, { sizeMiB: 16 }],
  });
  await templates.mark(template, 4);
  ({ guest: clone } = await templates.clone(template, { thin: true, name: 'clone' }));
});
afterAll(() => templates?.stop());

test('extend its backup, every state comes back, flattened too, and the template stays as it is', async () => {
  const bytes = readFileSync(await diskPath(template));
  await (await clone.start()).waitForAgent();
  const write = (text: string) => clone.sh(`echo ${text} > /mnt/vda/state; sync`);
  await write('one');
  const first = await templates.lab.backup(clone, { canBeIncremental: true });
  for (const text of ['two', 'three', 'four']) {
    await write(text);
    const made = await increment(templates.lab, clone, first);
    expect(made.file.filename).toBe(first.file.filename);
    expect(made.manifest.disks[0].base.fingerprint).toBe(first.manifest.disks[0].base.fingerprint);
  }
  await clone.destroy();
  expect(readFileSync(await diskPath(template)).equals(bytes)).toBe(true);
  for (const [index, text] of ['one', 'two', 'three', 'four'].entries()) {
    for (const flatten of [false, true]) {
      const { result } = await templates.lab.restore(first.file, { state: String(index + 1), flatten });
      const again = templates.guest(result.name);
      const chain = await chainOf(await diskPath(again));
      expect(chain.at(-1)).toBe(await diskPath(template));
      if (flatten) expect(chain).toHaveLength(2);
      expect(await filesInside(chain[0]!, ['state', 'hello'])).toEqual([`${text}\n`, 'template\n']);
      await templates.remove(again);
    }
  }
  expect(readFileSync(await diskPath(template)).equals(bytes)).toBe(true);
});

test('a template with thin clones gets no state: its backup is a full one, and says so', async () => {
  const made = await templates.lab.backup(template, { canBeIncremental: true });
  expect(made.manifest.incremental).toBe(false);
  expect(made.operation.warnings.join()).toContain('template with thin clones');
  expect(await template.snapshots()).toEqual([]);
});
