// A template changed by one of its thin clones: what becomes of it, of the clone and of the others; and every refusal.

import { statSync } from 'node:fs';
import { afterAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { chainOf, checkImages, diskPath, scribble, scribbled, TemplateLab } from './lab.ts';

let templates: TemplateLab;
let template: Guest;
let changed: Guest;
let other: Guest;

const virsh = (...args: string[]) => templates.lab.world.node.virsh(...args);

beforeEach(async () => {
  await templates?.stop();
  templates = await TemplateLab.start();
  template = await templates.lab.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template' } }, { sizeMiB: 16 }],
  });
  await scribble(await diskPath(template, 'vdb'), 'old');
  await templates.mark(template, 1);
  ({ guest: changed } = await templates.clone(template, { thin: true, name: 'changed' }));
  ({ guest: other } = await templates.clone(template, { thin: true, name: 'other' }));
});
afterAll(() => templates?.stop());

const text = async (guest: Guest) => scribbled(await diskPath(guest, 'vdb'), 3);
const size = async (guest: Guest) => {
  const { stdout } = await run(['qemu-img', 'info', '--output=json', await diskPath(guest, 'vdb')]);
  return (JSON.parse(stdout) as { 'virtual-size': number })['virtual-size'];
};

test('the changes go into the template, and every clone stands on it anew', async () => {
  await scribble(await diskPath(changed, 'vdb'), 'new');
  await scribble(await diskPath(other, 'vdb'), 'lost', 4 * MiB);
  const before = await Promise.all([template, changed, other].map(guest => guest.disks()));
  const files = templates.lab.files(0);
  const result = await templates.change(changed);
  expect(result).toMatchObject({ template_id: await template.uuid(), version: 2 });
  expect(result.clones.sort()).toEqual([await changed.uuid(), await other.uuid()].sort());
  expect(await Promise.all([template, changed, other].map(guest => guest.disks()))).toEqual(before);
  expect(templates.lab.files(0)).toEqual(files);
  for (const guest of [template, changed, other]) expect(await text(guest)).toBe('new');
  expect(await scribbled(await diskPath(other, 'vdb'), 4, 4 * MiB)).toBe('\0\0\0\0');
  for (const guest of [changed, other]) {
    const [own, base] = await chainOf(await diskPath(guest, 'vdb'));
    expect(base).toBe(await diskPath(template, 'vdb'));
    expect(statSync(own!).size).toBeLessThan(MiB);
    expect((await templates.metadata(guest)).parent).toEqual({ id: await template.uuid(), version: 2 });
    await checkImages(own!, base!);
  }
  expect((await templates.metadata(template)).templateVersion).toBe(2);
  await (await other.start()).waitForAgent();
  expect(await other.sh('cat /mnt/vda/hello')).toBe('template');
  await other.destroy();
  // again, by the other one
  await scribble(await diskPath(other, 'vdb'), '3rd');
  expect(await templates.change(other)).toMatchObject({ version: 3 });
  expect(await text(changed)).toBe('3rd');
});

test('a grown disk makes the template grow, and a clone keeps what is its own', async () => {
  const own = `${await diskPath(other)}.own.qcow2`;
  await run(['qemu-img', 'create', '-q', '-f', 'qcow2', own, '1M']);
  await scribble(own, 'own');
  await virsh('attach-disk', 'other', own, 'vdz', '--driver', 'qemu', '--subdriver', 'qcow2', '--config');
  await run(['qemu-img', 'resize', '-q', await diskPath(changed, 'vdb'), '24M']);
  await run(['qemu-img', 'resize', '-q', await diskPath(other, 'vdb'), '32M']);
  await scribble(await diskPath(changed, 'vdb'), 'end', 20 * MiB);
  await templates.change(changed);
  expect(await Promise.all([template, changed, other].map(size))).toEqual([24 * MiB, 24 * MiB, 32 * MiB]);
  for (const guest of [template, changed, other])
    expect(await scribbled(await diskPath(guest, 'vdb'), 3, 20 * MiB)).toBe('end');
  expect(await scribbled(await diskPath(other, 'vdz'), 3)).toBe('own');
});

test('a raw template stays raw', async () => {
  const raw = await templates.lab.world.defineTiny({
    name: 'rawgold',
    dataDisks: [{ sizeMiB: 16, format: 'raw' }],
  });
  await templates.mark(raw, 7);
  const { guest: clone } = await templates.clone(raw, { thin: true });
  await scribble(await diskPath(clone), 'raw');
  expect(await templates.change(clone)).toMatchObject({ version: 8 });
  const read = await run(['dd', `if=${await diskPath(raw)}`, 'bs=1', 'count=1', 'status=none']);
  expect(read.stdout).toBe('r');
  expect(await scribbled(await diskPath(clone), 3)).toBe('raw');
});

describe('refused, with every reason, and nothing touched', () => {
  const reasons = async (): Promise<string> => {
    const files = templates.lab.files(0);
    const error = await templates.change(changed).then(
      () => undefined,
      (caught: Error & { msgKey: string }) => caught,
    );
    expect(error).toMatchObject({ msgKey: 'template_change_refused' });
    expect(templates.lab.files(0)).toEqual(files);
    return error!.message;
  };

  test('running clones, saved states, saved memory, another version: all at once', async () => {
    await (await other.start()).waitForAgent();
    await virsh('snapshot-create-as', 'changed', 'mine', '--disk-only');
    const { guest: stale } = await templates.clone(template, { thin: true, name: 'stale' });
    await templates.note(stale, { parent: { id: await template.uuid(), version: 9 } });
    const { guest: asleep } = await templates.clone(template, { thin: true, name: 'asleep' });
    await (await asleep.start()).waitForAgent();
    await virsh('managedsave', 'asleep');
    const told = await reasons();
    expect(told).toContain('other is running');
    expect(told).toContain('changed has saved states (mine)');
    expect(told).toContain('stale was made of version 9');
    expect(told).toContain('asleep has its memory saved');
    await other.destroy();
    expect(await reasons()).not.toContain('other is running');
  });

  test('a loan, an unmarked template, another domain on its files, a clone that is more than an overlay', async () => {
    await templates.note(other, { loans: [{ diskId: newId(), borrowerId: newId() }] });
    await templates.note(template, { template: false });
    await templates.lab.world.defineTiny({
      name: 'stranger',
      disks: [{ path: await diskPath(template, 'vdb'), readonly: true }],
    });
    const { guest: deep } = { guest: changed };
    const top = `${await diskPath(deep)}.more`;
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', await diskPath(deep), '-F', 'qcow2', top]);
    await virsh('detach-disk', 'changed', 'vda', '--config');
    await virsh('attach-disk', 'changed', top, 'vda', '--driver', 'qemu', '--subdriver', 'qcow2', '--config');
    const told = await reasons();
    expect(told).toContain('disks of other are lent');
    expect(told).toContain('golden is not marked as a template');
    expect(told).toContain('is used by the domain stranger');
    expect(told).toContain('vda of changed has more than one layer of its own');
  });

  test('a read-only pool, a clone that stands on nothing, a template that is gone', async () => {
    const { poolChanges, world } = templates.lab;
    poolChanges.set(world.node.pool(0).name, { readonly: true });
    expect(await reasons()).toContain('read-only');
    poolChanges.clear();
    for (const target of ['vda', 'vdb']) await virsh('detach-disk', 'changed', target, '--config');
    expect(await reasons()).toContain('no disk of the clone stands on a disk of the template');
    await virsh('undefine', 'golden');
    expect(await reasons()).toContain('it is not on this node');
  });

  test('what is no thin clone', async () => {
    await expect(templates.change(template)).rejects.toMatchObject({ msgKey: 'not_thin_clone' });
  });
});
