/** The guest tools image in CD-ROM drives: running and off, with a free drive, with none. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { GuestOperationsLab } from './guestops-lab.ts';

let lab: GuestOperationsLab;
let image: string;

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => 'taken',
    error => (error as { msgKey?: string }).msgKey,
  );
const attach = async (guest: Guest) => (await lab.run('attachTools', guest, {})).result;
const detach = async (guest: Guest) => (await lab.run('detachTools', guest, {})).result;

/** What a drive holds, running and defined. */
async function held(guest: Guest, target: string): Promise<(string | undefined)[]> {
  const source = (xml: string) => {
    const drive = xml
      .match(/<disk [^>]*device='cdrom'[\s\S]*?<\/disk>/g)
      ?.find(text => text.includes(`dev='${target}'`));
    return drive === undefined ? undefined : (/<source file='([^']+)'/.exec(drive)?.[1] ?? '');
  };
  return [source(await guest.xml()), source(await guest.xml(true))];
}

const EMPTY_DRIVE = "<disk type='file' device='cdrom'><target dev='sdc' bus='scsi'/><readonly/></disk>";

beforeAll(async () => {
  lab = await GuestOperationsLab.start();
  image = join(lab.lab.world.dir, 'guest-tools.iso');
  writeFileSync(image, Buffer.alloc(1024 * 1024, 1));
  lab.operations.toolsImage = image;
});
afterAll(() => lab?.stop());

describe('a running guest with a free drive', () => {
  let guest: Guest;

  beforeAll(async () => {
    guest = await lab.lab.world.defineTiny({ name: 'drive', dataDisks: [{}], devices: EMPTY_DRIVE });
    await guest.start();
    await guest.waitForAgent();
  });

  test('has the image in it, now and after a restart; mounting it again changes nothing', async () => {
    expect(await attach(guest)).toEqual({ target_dev: 'sdc', path: image });
    expect(await held(guest, 'sdc')).toEqual([image, image]);
    // its record tells so at once: libvirt has no event for it
    expect(lab.changed).toEqual([await guest.uuid()]);
    expect(await guest.sh('head -c 4 /dev/sr0 | od -An -tx1')).toContain('01 01 01 01');
    expect(await attach(guest)).toEqual({ target_dev: 'sdc', path: image });
  });

  test('has it taken out, once', async () => {
    expect(await detach(guest)).toEqual({ target_dev: 'sdc' });
    expect(await held(guest, 'sdc')).toEqual(['', '']);
    expect(await refusal(detach(guest))).toBe('guest_tools_unavailable');
  });
});

test('a running guest without a drive is given one where its controllers take it', async () => {
  const { world } = lab.lab;
  const disks = [{ path: join(world.node.pool(0).path, 'scsi.qcow2'), bus: 'scsi' as const }];
  await world.node.virsh('vol-create-as', world.node.pool(0).name, 'scsi.qcow2', '16M', '--format', 'qcow2');
  const guest = await world.defineTiny({ name: 'nodrive', disks, agent: true });
  await guest.start();
  await guest.waitForAgent();
  const { target_dev: target } = await attach(guest);
  expect(await held(guest, String(target))).toEqual([image, image]);
  await detach(guest);
  expect(await held(guest, String(target))).toEqual([undefined, undefined]);
});

describe('a guest that is off', () => {
  test('is given a drive', async () => {
    const guest = await lab.lab.world.defineTiny({ name: 'off' });
    const { target_dev: target } = await attach(guest);
    expect(await held(guest, String(target))).toEqual([image, image]);
    await guest.start();
    await guest.waitForAgent();
    expect(await detach(guest)).toEqual({ target_dev: target });
  });
});

test('without an image nothing is mounted', async () => {
  const guest = await lab.lab.world.defineTiny({ name: 'none' });
  for (const path of [undefined, '/nowhere/tools.iso', lab.lab.world.dir]) {
    lab.operations.toolsImage = path;
    expect(await refusal(attach(guest))).toBe('guest_tools_unavailable');
  }
  lab.operations.toolsImage = image;
  expect(await held(guest, 'sdb')).toEqual([undefined, undefined]);
});
