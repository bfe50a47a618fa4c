// A Linux that starts from its disk by BIOS, exported as VMware does (stream-optimised VMDK with a footer), starts again out of the backup.
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { streamVmdk } from '../../../agent/src/appliance/test-kit.ts';
import { sata } from '../../../agent/src/ovf/test-kit.ts';
import { AgentAlone, fileOf } from '../../e2e/agent-alone.ts';
import { makeBootDisk } from '../../lab/boot-disk.ts';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { ConvertLab, manifestOf, ova, ovf } from './convert-lab.ts';

const FILE = randomBytes(5 * MiB);
const SHA256 = createHash('sha256').update(FILE).digest('hex');
/** The kernel finds disks in its own time, and names them as it finds them. */
const FIND_FILE = `mkdir -p /tmp/data
for try in $(seq 300); do
  for file in /mnt/*/file /tmp/data/file; do [ -f $file ] && exec sha256sum $file; done
  for disk in /dev/[sv]d[ab]; do mount -t ext4 -o ro $disk /tmp/data 2>/dev/null && break; done
  sleep 0.1
done
{ cat /proc/partitions; dmesg | tail -n 30; } >&2
exit 1`;

let alone: AgentAlone;
let lab: ConvertLab;

beforeAll(async () => {
  alone = await AgentAlone.start();
  lab = new ConvertLab(alone);
  const at = (name: string) => join(alone.world.dir, name);
  await makeBootDisk(at('boot'));
  // a file system with the file, without being mounted
  const root = at('root');
  await run(['mkdir', root]);
  writeFileSync(join(root, 'file'), FILE);
  await run(['mkfs.ext4', '-q', '-d', root, at('data'), '24M']);
  const boot = readFileSync(at('boot'));
  const data = readFileSync(at('data'));
  const files = { 'boot.vmdk': streamVmdk(boot), 'data.vmdk': streamVmdk(data) };
  const disks = [
    { href: 'boot.vmdk', bytes: boot.length },
    { href: 'data.vmdk', bytes: data.length },
  ];
  const text = (name: string) => ovf(name, disks, { controller: sata(3) });
  const whole = { 'packed.ovf': text('packed'), ...files };
  lab.put('packed.ova', ova({ ...whole, 'packed.mf': manifestOf(whole) }));
  lab.put('beside.ovf', text('beside'));
  for (const [name, bytes] of Object.entries(files)) lab.put(name, bytes);
});
afterAll(() => alone?.stop());
afterEach(() => lab.clear());

test.each([
  ['packed.ova', { virtio: true }],
  ['packed.ova', { compress: true, virtio: true }],
  ['beside.ovf', { compress: true, virtio: true }],
])('%s, converted with %j and restored, starts and has its files', async (filename, request) => {
  const file = fileOf(await alone.heard(await lab.convert(filename, request)));
  const restore = await alone.startRestore(file.filename, { domainId: newId(), allowForeign: true });
  const { name, disks } = resultOf(await alone.heard(restore), 'restore');
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(['vda', 'vdb']);
  const guest = new Guest(alone.world.node, name);
  await guest.start();
  await guest.waitForAgent();
  // it runs from what its own disk has brought
  expect(await guest.sh('cat /proc/cmdline')).toContain('BOOT_IMAGE=/vmlinuz');
  expect(await guest.sh(FIND_FILE, 120_000)).toContain(SHA256);
  await guest.destroy();
  await alone.world.node.virsh('undefine', name);
  for (const { path } of disks) rmSync(path);
});
