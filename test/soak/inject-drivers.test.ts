// The real virt-v2v puts drivers into a Debian, in libguestfs's appliance; one that it cannot change is refused, and nothing is left.
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { AgentAlone, fileOf } from '../e2e/agent-alone.ts';
import { ovaOf, ovfOf, STREAM, signed } from '../integration/restore/appliance-lab.ts';
import { debianSuite, debianTree } from '../lab/debian-guest.ts';
import { makeExt4 } from '../lab/disks.ts';
import { guestfsMissing } from '../lab/guestfs.ts';
import { run } from '../lab/run.ts';

// an emulated appliance makes an initial RAM disk anew
jest.setTimeout(3_600_000);

const SIZE_MIB = 1536;
const ASKED = { virtio: true, injectDrivers: true };
const missing = await guestfsMissing('virt-v2v-in-place');
if (missing) process.stderr.write(`inject-drivers: ${missing}\n`);
const suite = missing ? describe.skip : describe;

suite('drivers of virtio', () => {
  let alone: AgentAlone;
  let given: string[];
  const directory = () => join(alone.world.node.pool(1).path, 'backups');
  const made = () => readdirSync(directory()).filter(name => !given.includes(name));

  /** A Debian on one disk, with or without a kernel, as an OVA. */
  async function put(name: string, packages: string[]): Promise<void> {
    const dir = mkdtempSync(join(alone.world.dir, 'tree-'));
    const [root, raw] = [join(dir, 'root'), join(dir, 'disk')];
    await debianTree(debianSuite(), packages, root);
    writeFileSync(join(root, 'etc/fstab'), '/dev/sda / ext4 defaults 0 0\n');
    const kernel = readdirSync(join(root, 'boot')).find(file => file.startsWith('vmlinuz-'));
    if (kernel) {
      const version = kernel.slice('vmlinuz-'.length);
      mkdirSync(join(root, 'boot/grub'), { recursive: true });
      writeFileSync(
        join(root, 'boot/grub/grub.cfg'),
        `menuentry 'Debian' {\n  linux /boot/${kernel} root=/dev/sda ro\n  initrd /boot/initrd.img-${version}\n}\n`,
      );
      for (const file of ['vmlinuz', 'initrd.img']) {
        rmSync(join(root, file), { force: true });
        symlinkSync(`boot/${file}-${version}`, join(root, file));
      }
    }
    await makeExt4(raw, root, SIZE_MIB);
    const bytes = SIZE_MIB * 2 ** 20;
    const descriptor = ovfOf({ name, disks: [{ href: 'disk.vmdk', bytes }] });
    const vmdk = `${raw}.vmdk`;
    await run(['qemu-img', 'convert', '-f', 'raw', '-O', ...STREAM, raw, vmdk]);
    const image = readFileSync(vmdk);
    writeFileSync(
      join(directory(), `${name}.ova`),
      ovaOf(signed(name, { [`${name}.ovf`]: descriptor, 'disk.vmdk': image })),
    );
    rmSync(dir, { recursive: true });
  }

  beforeAll(async () => {
    alone = await AgentAlone.start({ guestfs: { force_tcg: true } });
    mkdirSync(directory(), { recursive: true });
    await put('whole', [
      'linux-image-cloud-amd64',
      'initramfs-tools',
      'grub2-common',
      'systemd-sysv',
      'udev',
    ]);
    await put('bare', ['udev']);
    given = readdirSync(directory());
  });
  afterAll(() => alone?.stop());

  const request = (filename: string) => ({
    ...{ operationId: newId(), fileId: newId(), ...ASKED },
    file: { poolId: alone.world.node.pool(1).uuid, filename },
  });

  test('are in a backup, and the file is as it was', async () => {
    const before = readFileSync(join(directory(), 'whole.ova'));
    const asked = request('whole.ova');
    await alone.backups.convert(asked);
    const operation = await alone.heard(asked.operationId);
    expect(resultOf(operation, 'convertBackup').driversInjected).toBe(true);
    expect(readFileSync(join(directory(), 'whole.ova')).equals(before)).toBe(true);
    const { path, filename } = fileOf(operation);
    expect(made()).toEqual([filename]);
    await run([
      'tar',
      '-C',
      alone.world.dir,
      '--wildcards',
      '-xf',
      path,
      '*.qcow2',
      '--transform=s,.*,driven,',
    ]);
    const driven = join(alone.world.dir, 'driven');
    await run(['qemu-img', 'check', '-q', driven]);
    await run(['qemu-img', 'convert', '-O', 'raw', driven, `${driven}.raw`]);
    await run(['e2fsck', '-fn', `${driven}.raw`]);
    // the kernel finds its root by another name now
    const { stdout } = await run(['debugfs', '-R', 'cat /etc/fstab', `${driven}.raw`]);
    expect(stdout).toMatch(/^(\/dev\/vda|UUID=\S+) \/ /m);
    for (const file of [path, driven, `${driven}.raw`]) rmSync(file);
  });

  test('are not put into a guest without a bootloader, which becomes neither a backup nor a VM', async () => {
    const files = alone.files(1);
    const asked = request('bare.ova');
    await alone.backups.convert(asked);
    const restoring = { ...request('bare.ova'), domainId: newId() };
    const ended = [await alone.ended(asked.operationId, 3_000_000)];
    await alone.restores.startAppliance(restoring);
    ended.push(await alone.ended(restoring.operationId, 3_000_000));
    for (const { state, error } of ended) {
      expect({ state, error }).toMatchObject({
        state: OperationState.FAILED,
        error: { msgKey: 'driver_injection_failed' },
      });
      expect(error!.detail).toMatch(/"bare": .*(bootloader|kernel)/);
    }
    expect(alone.files(1)).toEqual(files);
    expect((await alone.world.node.virsh('list', '--all', '--name')).trim()).toBe('');
  });
});
