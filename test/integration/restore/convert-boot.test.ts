// Linux VMs of two disks, exported as VMware does (stream-optimised VMDK with a footer), are uploaded and become VMs that start from
// their own disks, by BIOS and by UEFI, each on another kind of controller.
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { streamVmdk } from '../../../agent/src/appliance/test-kit.ts';
import { EFI, scsi } from '../../../agent/src/ovf/test-kit.ts';
import { type Firmware, makeBootDisk, startedBy } from '../../lab/boot-disk.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import { Guest } from '../../lab/guest.ts';
import { startWorld, type World } from '../../lab/world.ts';
import { type Files, manifestOf, type OvfOf, ova, ovf } from './convert-lab.ts';

const SYSTEM_FILE = randomBytes(2 * MiB);
const DATA_FILE = randomBytes(5 * MiB);
const sha256 = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');
/** The kernel finds disks in its own time, and names them as it finds them; its guest may have mounted some. */
const HASH_FILES = `for try in $(seq 300); do
  for disk in /dev/[sv]d[ab]*; do
    at=/tmp/disks/\${disk#/dev/}
    mkdir -p $at
    [ -e $at/file ] || mount -t ext4 -o ro $disk $at 2>/dev/null
  done
  files=$(ls /mnt/*/file /tmp/disks/*/file 2>/dev/null)
  [ $(echo $files | wc -w) -ge 2 ] && exec sha256sum $files
  sleep 0.1
done
{ cat /proc/partitions; dmesg | tail -n 30; } >&2
exit 1`;

interface Exported {
  bytes: number;
  image: Buffer;
}

let world: World;
let data: Exported;
/** Disks that a firmware starts from, by its name. */
const systems = new Map<Firmware, Exported>();

beforeAll(async () => {
  world = await startWorld({ controller: true });
  const files = { file: DATA_FILE };
  data = diskOf(await makeDataDisk(join(world.dir, 'data'), { format: 'raw', sizeMiB: 24, files }));
  for (const firmware of ['bios', 'efi'] as const) {
    const path = join(world.dir, firmware);
    await makeBootDisk(path, firmware, SYSTEM_FILE);
    systems.set(firmware, diskOf(path));
  }
});
afterAll(() => world?.stop());

const poolId = () => world.node.pool(1).uuid;

function diskOf(path: string): Exported {
  const raw = readFileSync(path);
  return { bytes: raw.length, image: streamVmdk(raw) };
}

/** What an export of a VM of that name has, the descriptor last. */
function exported(name: string, firmware: Firmware, options: OvfOf = {}): Files {
  const disks = [systems.get(firmware)!, data].map((disk, index) => ({
    ...disk,
    href: `${name}-${index + 1}.vmdk`,
  }));
  const images = Object.fromEntries(disks.map(({ href, image }) => [href, image]));
  const descriptor = ovf(name, disks, { ...options, settings: firmware === 'efi' ? EFI : '' });
  const whole = { ...images, [`${name}.ovf`]: descriptor };
  return { ...images, [`${name}.mf`]: manifestOf(whole), [`${name}.ovf`]: descriptor };
}

/** In the order that an OVA has. */
const ovaOf = (name: string, { [`${name}.ovf`]: descriptor, ...files }: Files): Buffer =>
  ova({ [`${name}.ovf`]: descriptor!, ...files });

/** @returns id of the backup file, if it is one */
async function uploaded(filename: string, bytes: Buffer | string): Promise<string | undefined> {
  const query = new URLSearchParams({ datapool: poolId(), filename, sha256: sha256(bytes) });
  const type = { 'content-type': 'application/octet-stream' };
  const { status, body } = await world.rest.send<{ status: string; file: { id: string } | null }>(
    'POST',
    `/api/library/upload/?${query}`,
    Buffer.from(bytes),
    type,
  );
  expect({ status, body }).toMatchObject({ status: 200, body: { status: 'DONE' } });
  return body.file?.id;
}

/** Restores the file and starts its VM. */
async function restored(file: string, options: object): Promise<Guest> {
  const request = { file, node: world.agent.nodeId, datapool: poolId(), start_on: true, ...options };
  const { entity } = await world.rest.action('/api/domains/automated-restore/', request);
  return new Guest(world.node, (await world.node.virsh('domname', entity)).trim());
}

async function converted(file: string, options: object): Promise<Guest> {
  const { entity } = await world.rest.action(`/api/library/${file}/convert-backup/`, options);
  return restored(entity, { allow_foreign: true });
}

/** It runs from what its own disks have brought, and they have their files. */
async function expectStarted(guest: Guest, firmware: Firmware): Promise<void> {
  await guest.waitForAgent();
  expect(await guest.sh('cat /proc/cmdline')).toContain(startedBy(firmware));
  expect(await guest.sh('ls /sys/firmware')).toEqual(
    firmware === 'efi' ? expect.stringMatching(/^efi$/m) : expect.not.stringMatching(/^efi$/m),
  );
  const hashes = await guest.sh(HASH_FILES, 120_000);
  for (const bytes of [SYSTEM_FILE, DATA_FILE]) expect(hashes).toContain(sha256(bytes));
  await guest.destroy();
}

test('an OVA with BIOS, converted as it is: on the controller that it had', async () => {
  const file = await uploaded('bios.ova', ovaOf('bios', exported('bios', 'bios')));
  const guest = await converted(file!, {});
  expect(await guest.xml()).toContain("model='vmpvscsi'");
  expect(await guest.disks()).toMatchObject({ sda: expect.any(String), sdb: expect.any(String) });
  await expectStarted(guest, 'bios');
});

test('an OVA with UEFI, compressed: with variables of its own', async () => {
  const options = { controller: scsi(3, 'virtio lsilogic') };
  const file = await uploaded('efi.ova', ovaOf('efi', exported('efi', 'efi', options)));
  const guest = await converted(file!, { compress: true });
  const xml = await guest.xml();
  expect(xml).toContain("model='virtio-scsi'");
  expect(xml).toContain('efi_VARS.fd');
  await expectStarted(guest, 'efi');
});

test('an OVF with its disks beside it, without a backup in between: on virtio', async () => {
  let file: string | undefined;
  for (const [name, bytes] of Object.entries(exported('beside', 'bios')))
    file = await uploaded(`beside/${name}`, bytes);
  const guest = await restored(file!, { virtio: true });
  expect(await guest.disks()).toMatchObject({ vda: expect.any(String), vdb: expect.any(String) });
  await expectStarted(guest, 'bios');
});
