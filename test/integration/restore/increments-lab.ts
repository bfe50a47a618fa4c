/** What is asked of an archive that grew by increments, in either form. */
import { rmSync } from 'node:fs';
import { expect } from '@jest/globals';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInside } from '../archives/archive-tools.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { firstBackup, increment, type Made, write } from '../increments/lab.ts';

async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}

async function remove(guest: Guest): Promise<void> {
  if ((await guest.state()) !== 'shut off') await guest.destroy();
  const chains = await Promise.all(Object.values(await guest.disks()).map(chainOf));
  await guest.node.virsh('undefine', guest.name, '--snapshots-metadata');
  for (const path of new Set(chains.flat())) rmSync(path);
}

/** Each state comes back with all below it, also those that were merged on the VM, and the VM in place of the lost one works. */
export async function everyStateComesBack(lab: WorkflowLab, compress: boolean): Promise<void> {
  const virsh = (...args: string[]) => lab.world.node.virsh(...args);
  const guest = await lab.world.defineTiny();
  await (await guest.start()).waitForAgent();
  const notes = ['one', 'two', 'three', 'four', 'five'];
  let made: Made | undefined;
  for (const note of notes) {
    await write(guest, '/mnt/vda/note', note);
    made = made ? await increment(lab, guest, made) : await firstBackup(lab, guest, { compress });
  }
  const names: string[] = made!.manifest.states.map(({ name }: { name: string }) => name);
  expect(await guest.snapshots()).toEqual(names.slice(-3));
  for (const [index, note] of notes.entries()) {
    const state = String(index + 1);
    const { result, operation } = await lab.restore(made!.file, { state });
    expect(operation.warnings).toEqual([]);
    const copy = new Guest(lab.world.node, result.name);
    expect(await copy.snapshots()).toEqual(names.slice(0, index));
    const chain = (await chainOf(result.disks[0]!.path)).toReversed();
    expect(chain).toHaveLength(index + 1);
    for (const [layer, path] of chain.entries())
      expect(await fileInside(path, 'note')).toBe(`${notes[layer]}\n`);
    if (index > 0)
      expect((await virsh('snapshot-current', copy.name, '--name')).trim()).toBe(names[index - 1]);
    const { result: flat } = await lab.restore(made!.file, { state, flatten: true });
    expect(await fileInside(flat.disks[0]!.path, 'note')).toBe(`${note}\n`);
    await remove(copy);
    await remove(new Guest(lab.world.node, flat.name));
  }
  await remove(guest);

  // in place of the lost VM: it works, and what was backed up before goes on no more
  await lab.restore(made!.file, { keepIdentity: true, startOn: true });
  await guest.waitForAgent();
  expect((await guest.sh('cat /mnt/vda/note')).trim()).toBe('five');
  await expect(increment(lab, guest, made!)).rejects.toMatchObject({ msgKey: 'not_extendable' });
  const again = await firstBackup(lab, guest, { compress });
  await write(guest, '/mnt/vda/note', 'six');
  const six = await increment(lab, guest, again);
  const { result } = await lab.restore(six.file, { flatten: true });
  expect(await fileInside(result.disks[0]!.path, 'note')).toBe('six\n');
  await remove(guest);
}
