/** A guest with a history: what a long test does to it, and how a state's content is told on both sides of a backup. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { makeDataDisk } from '../lab/disks.ts';
import { type Guest, untilThere } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import type { World } from '../lab/world.ts';

/** Hash of the file tree per target, as the guest sees it. */
export type Trees = Record<string, string>;

export class LivingGuest {
  readonly #world: World;
  readonly guest: Guest;
  readonly #random: (below: number) => number;
  #targets: string[];
  #files = 0;

  constructor(world: World, guest: Guest, targets: string[], random: (below: number) => number) {
    this.#world = world;
    this.guest = guest;
    this.#targets = targets;
    this.#random = random;
  }

  get targets(): readonly string[] {
    return this.#targets;
  }

  /** One random change. @returns what it was */
  async change(): Promise<string> {
    const kinds = ['write', 'write', 'write', 'overwrite', 'remove', 'add_disk', 'resize', 'reboot'] as const;
    const kind = kinds[this.#random(kinds.length)]!;
    const target = this.#targets[this.#random(this.#targets.length)]!;
    const directory = `/mnt/${target}`;
    switch (kind) {
      case 'write': {
        const kib = 16 + this.#random(2000);
        this.#files += 1;
        await this.guest.sh(
          `dd if=/dev/urandom of=${directory}/f${this.#files} bs=1k count=${kib} conv=fsync 2>/dev/null`,
        );
        return `${kib} KiB into a new file on ${target}`;
      }
      case 'overwrite':
        await this.guest.sh(
          `[ -e ${directory}/same ] || dd if=/dev/zero of=${directory}/same bs=64k count=16 2>/dev/null; ` +
            `dd if=/dev/urandom of=${directory}/same bs=4k count=1 seek=${this.#random(256)} conv=notrunc,fsync 2>/dev/null`,
        );
        return `a block of a file on ${target}`;
      case 'remove':
        await this.guest.sh(`ls ${directory}/f* 2>/dev/null | head -n 1 | xargs -r rm; sync`);
        return `a file of ${target} removed`;
      case 'add_disk':
        return this.#targets.length < 4 ? this.#addDisk() : this.#reboot();
      case 'resize':
        return this.#resize(target);
      case 'reboot':
        return this.#reboot();
    }
  }

  /** What the guest says of its file systems now. Nothing writes to them meanwhile. */
  async trees(): Promise<Trees> {
    const trees: Trees = {};
    for (const target of this.#targets) {
      const script = `cd /mnt/${target} && sync && find . -type f | sort | while read -r f; do sha256sum "$f"; done | sha256sum`;
      trees[target] = (await this.guest.sh(script)).split(' ')[0]!;
    }
    return trees;
  }

  async #addDisk(): Promise<string> {
    const target = `vd${'abcd'[this.#targets.length]}`;
    const path = join(this.#world.node.pool(0).path, `${randomUUID()}.qcow2`);
    await makeDataDisk(path, { sizeMiB: 32 });
    const args = ['--targetbus', 'virtio', '--driver', 'qemu', '--subdriver', 'qcow2', '--live', '--config'];
    await this.guest.node.virsh('attach-disk', this.guest.name, path, target, ...args);
    await this.guest.sh(
      `${untilThere(`/dev/${target}`)}; mkdir -p /mnt/${target}; mount -t ext4 /dev/${target} /mnt/${target}`,
    );
    this.#targets = [...this.#targets, target];
    return `disk ${target} added`;
  }

  async #resize(target: string): Promise<string> {
    const { stdout } = await run([
      'qemu-img', 'info', '-U', '--output=json', (await this.guest.disks())[target]!,
    ]); // biome-ignore format: one command
    const bytes = (JSON.parse(stdout) as { 'virtual-size': number })['virtual-size'] + 4 * 1024 * 1024;
    await this.guest.node.virsh('blockresize', this.guest.name, target, `${bytes}B`);
    return `${target} grown to ${bytes} bytes`;
  }

  async #reboot(): Promise<string> {
    await this.guest.sh('sync');
    await this.guest.node.virsh('reset', this.guest.name);
    await this.guest.waitForAgent();
    // the agent answers when the file systems are mounted: init mounts before it starts it
    return 'rebooted';
  }
}

/** The same hash of an image's file system, read by debugfs without mounting it. */
export async function treeOfImage(image: string, scratch: string): Promise<string> {
  const [raw, files] = [`${scratch}.raw`, `${scratch}.files`];
  try {
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', image, raw]);
    await run(['e2fsck', '-fn', raw]);
    rmSync(files, { recursive: true, force: true });
    mkdirSync(files);
    await run(['debugfs', '-R', `rdump / ${files}`, raw]);
    const lines = filesBelow(files)
      .map(path => `./${relative(files, path)}`)
      .sort((a, b) => (a < b ? -1 : 1))
      .map(name => `${sha256(readFileSync(join(files, name)))}  ${name}\n`);
    return sha256(lines.join(''));
  } finally {
    rmSync(raw, { force: true });
    rmSync(files, { recursive: true, force: true });
  }
}

const sha256 = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex');

function filesBelow(directory: string): string[] {
  return readdirSync(directory)
    .map(name => join(directory, name))
    .flatMap(path => (statSync(path).isDirectory() ? filesBelow(path) : [path]));
}
