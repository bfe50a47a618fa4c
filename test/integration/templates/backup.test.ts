// Backups of thin clones and of their templates: what is in them, what they are told of their template, and the way back
// after a template was changed.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInside } from '../archives/archive-tools.ts';
import { imageHash, type Made } from '../increments/lab.ts';
import { chainOf, checkImages, diskPath, scribble, scribbled, TemplateLab } from './lab.ts';

let templates: TemplateLab;
let template: Guest;
let clone: Guest;

beforeAll(async () => {
  templates = await TemplateLab.start();
});
beforeEach(async () => {
  template = await templates.lab.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template\n' } }, { sizeMiB: 16 }],
  });
  await scribble(await diskPath(template, 'vdb'), 'golden');
  await templates.mark(template, 4);
  ({ guest: clone } = await templates.clone(template, { thin: true, name: 'clone' }));
  await scribble(await diskPath(clone, 'vdb'), 'cl');
});
/** Each case has a node without VMs and files of others. */
afterEach(async () => {
  const { node } = templates.lab.world;
  for (const name of (await node.virsh('list', '--all', '--name')).split('\n').filter(Boolean)) {
    await node.virsh('destroy', name).catch(() => {});
    await node.virsh('undefine', name, '--snapshots-metadata');
  }
  for (const { path } of node.pools)
    for (const name of readdirSync(path)) rmSync(join(path, name), { recursive: true });
});
afterAll(() => templates?.stop());

const poolId = () => templates.lab.world.node.pool(1).uuid;

async function warnings(made: Made): Promise<string[]> {
  const service = backupService(templates.lab.runner, templates.lab.dependencies);
  const context = { signal: new AbortController().signal } as CallContext;
  const request = { file: { poolId: poolId(), filename: made.file.filename }, state: '' };
  const shown = (await service.show(request, context)) as ShowBackupResponse;
  return shown.warnings.map(({ key }) => key);
}

const restoreInPlace = (made: Made) => templates.lab.restore(made.file, { keepIdentity: true });
const seen = async (guest: Guest) => scribbled(await diskPath(guest, 'vdb'), 6);

/** A VM that is off shows its file, and QEMU takes its disks. */
async function starts(guest: Guest, hello: string): Promise<void> {
  expect(await fileInside(await diskPath(guest), 'hello')).toBe(hello);
  await guest.start();
  expect(await guest.state()).toBe('running');
  await guest.destroy();
}

/** Somebody writes to the template's file. */
async function spoil(): Promise<void> {
  await scribble(await diskPath(template, 'vdb'), 'SPOILT', 1024 * 1024);
}

test("a backup of a thin clone holds its own layers only, and its template's version and content", async () => {
  const made = await templates.lab.backup(clone);
  expect(made.manifest.template).toEqual({ domainId: await template.uuid(), name: 'golden', version: '4' });
  expect(made.manifest.members.filter(({ kind }: { kind: string }) => kind === 'disk')).toEqual([]);
  expect(made.manifest.disks.map(({ base }: { base: object }) => base)).toEqual([
    expect.objectContaining({
      path: await diskPath(template, 'vda'),
      fingerprint: expect.stringMatching(/^sha256:/),
    }),
    expect.objectContaining({
      path: await diskPath(template, 'vdb'),
      fingerprint: expect.stringMatching(/^sha256:/),
    }),
  ]);
  expect(await warnings(made)).toEqual([]);
  const { result } = await templates.lab.restore(made.file, { name: 'again' });
  const again = templates.guest(result.name);
  expect(await seen(again)).toBe('cllden');
  expect((await templates.metadata(again)).parent).toEqual({ id: await template.uuid(), version: 4 });
  expect(await chainOf(await diskPath(again))).toEqual([await diskPath(again), await diskPath(template)]);
  await starts(again, 'template\n');
});

describe('the template is not what it was', () => {
  test('absent: warned, and refused', async () => {
    const made = await templates.lab.backup(clone);
    await templates.remove(clone);
    await templates.remove(template);
    expect(await warnings(made)).toEqual(['template_missing']);
    await expect(restoreInPlace(made)).rejects.toMatchObject({ msgKey: 'template_missing' });
  });

  test('changed by a clone: another version, and other content', async () => {
    const made = await templates.lab.backup(clone);
    await templates.change(clone);
    expect(await warnings(made)).toEqual(
      expect.arrayContaining(['template_incompatible', 'template_disk_mismatch']),
    );
    await expect(templates.lab.restore(made.file)).rejects.toMatchObject({ msgKey: 'template_mismatch' });
    await checkImages(await diskPath(clone), await diskPath(clone, 'vdb'));
  });

  test('changed by hand, its date put back: other content', async () => {
    const made = await templates.lab.backup(clone);
    const path = await diskPath(template, 'vdb');
    await run(['touch', '-r', path, `${path}.date`]);
    await spoil();
    await run(['touch', '-r', `${path}.date`, path]);
    await run(['rm', `${path}.date`]);
    expect(await warnings(made)).toEqual(['template_disk_mismatch']);
    await expect(templates.lab.restore(made.file)).rejects.toMatchObject({ msgKey: 'template_mismatch' });
    expect(
      (await templates.lab.world.node.virsh('list', '--all', '--name')).trim().split('\n').sort(),
    ).toEqual(['clone', 'golden']);
  });

  test('the way back: remove the template with its disks, restore it, restore the clones', async () => {
    const { guest: second } = await templates.clone(template, { thin: true, name: 'second' });
    await scribble(await diskPath(second, 'vdb'), '2');
    const hashesNow = async () => {
      const hashes = [];
      for (const guest of [template, clone, second])
        hashes.push(await imageHash(templates.lab, await diskPath(guest, 'vdb')));
      return hashes;
    };
    const hashes = await hashesNow();
    const made = [];
    for (const guest of [template, clone, second]) made.push(await templates.lab.backup(guest));
    const [golden, one, two] = made as [Made, Made, Made];
    await spoil();
    expect(await warnings(one)).toEqual(['template_disk_mismatch']);
    await templates.remove(clone);
    await templates.remove(second);
    await templates.remove(template);
    await restoreInPlace(golden);
    expect(await templates.metadata(template)).toMatchObject({ template: true, templateVersion: 4 });
    expect(await warnings(one)).toEqual([]);
    await restoreInPlace(one);
    await restoreInPlace(two);
    expect(await hashesNow()).toEqual(hashes);
    expect((await templates.metadata(second)).parent).toEqual({ id: await template.uuid(), version: 4 });
    await starts(second, 'template\n');
    // and it is a template in every respect
    await templates.change(clone);
    expect(await seen(second)).toBe('cllden');
  });

  test('restored under another identity and in another pool: found by version and content', async () => {
    const golden = await templates.lab.backup(template);
    const made = await templates.lab.backup(clone);
    await templates.remove(clone);
    await templates.remove(template);
    const { result } = await templates.lab.restore(golden.file, { domainId: newId(), poolId: poolId() });
    const renewed = templates.guest(result.name);
    expect(await renewed.uuid()).not.toBe(made.manifest.template.domainId);
    await restoreInPlace(made);
    expect((await templates.metadata(clone)).parent).toEqual({ id: await renewed.uuid(), version: 4 });
    expect((await chainOf(await diskPath(clone, 'vdb')))[1]).toBe(await diskPath(renewed, 'vdb'));
    expect(await seen(clone)).toBe('cllden');
  });

  test('a raw one comes back as qcow2: told by its version, with a note', async () => {
    const raw = await templates.lab.world.defineTiny({
      name: 'rawgold',
      dataDisks: [{ files: { hello: 'raw' }, format: 'raw' }],
    });
    await templates.mark(raw);
    const { guest: thin } = await templates.clone(raw, { thin: true, name: 'rawclone' });
    const golden = await templates.lab.backup(raw);
    const made = await templates.lab.backup(thin);
    await templates.remove(thin);
    await templates.remove(raw);
    await restoreInPlace(golden);
    expect(await warnings(made)).toEqual(['template_disk_unchecked']);
    await restoreInPlace(made);
    await starts(thin, 'raw');
  });
});

test('a template with thin clones is removed only by force, and its files stay', async () => {
  await expect(templates.remove(template)).rejects.toMatchObject({ msgKey: 'template_has_clones' });
  const path = await diskPath(template);
  await templates.remove(template, { force: true });
  expect((await chainOf(await diskPath(clone)))[1]).toBe(path);
});
