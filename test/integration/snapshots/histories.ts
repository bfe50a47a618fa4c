/**
 * The random histories of the unit tests, short ones, on a real guest: after each step every state, the disks and the
 * images are what they should be.
 */
import { expect } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import type { SnapshotLab } from './lab.ts';

function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 12_345;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
}

async function change(
  lab: SnapshotLab,
  guest: Guest,
  random: (below: number) => number,
  step: number,
): Promise<string> {
  const states = await guest.snapshots();
  const targets = await lab.targets(guest);
  const target = targets[random(targets.length)]!;
  const state = states[random(states.length || 1)];
  const isRunning = (await guest.state()) === 'running';
  const kept = await lab.statesContents(guest);
  switch (random(8)) {
    case 0:
      await (isRunning ? guest.destroy() : guest.start());
      return 'power';
    case 1:
    case 2:
      if (state) {
        const now = await lab.contents(guest);
        await lab.remove(guest, state);
        delete kept[state];
        expect(await lab.contents(guest)).toEqual(now);
        expect(await lab.statesContents(guest)).toEqual(kept);
      }
      return `remove ${state}`;
    case 3:
      if (state) {
        await lab.revert(guest, state);
        expect(await lab.contents(guest)).toMatchObject(kept[state]!);
        expect(await lab.statesContents(guest)).toEqual(kept);
      }
      return `revert ${state}`;
    case 4:
      if (!isRunning && targets.length < 3)
        await lab.world.node.virsh(
          'attach-disk',
          guest.name,
          await lab.plainDisk(),
          'vdc',
          '--subdriver',
          'qcow2',
          '--config',
        );
      return 'attach';
    case 5:
      if (isRunning) await lab.world.node.virsh('blockresize', guest.name, target, `${2048 + step * 64}KiB`);
      else if (targets.length > 2) await lab.world.node.virsh('detach-disk', guest.name, target, '--config');
      return 'resize or detach';
    default: {
      const now = await lab.contents(guest);
      await lab.create(guest, `s${step}`);
      expect(await lab.statesContents(guest)).toEqual({ ...kept, [`s${step}`]: now });
      return `create s${step}`;
    }
  }
}

/** Twelve random steps, and then every saved state is removed. @param seed as the unit tests count them */
export async function walkHistory(lab: SnapshotLab, seed: number): Promise<void> {
  const random = randomOf(seed);
  const guest = await lab.plainGuest(['qcow2', 'qcow2']);
  const done: string[] = [];
  for (let step = 0; step < 12; step++) {
    done.push(await change(lab, guest, random, step));
    const [target] = await lab.targets(guest);
    await lab.write(guest, target!, random(20));
    await lab.check(guest);
  }
  if ((await guest.state()) === 'running') await guest.destroy();
  for (const name of await guest.snapshots()) await lab.remove(guest, name);
  for (const path of Object.values(await guest.disks()).filter(file => file?.startsWith('/')))
    await run(['qemu-img', 'check', '-q', path]);
  expect(done).toHaveLength(12);
}
