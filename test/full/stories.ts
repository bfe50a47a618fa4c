/** The workflows of the matrix, with guests that are off where their own behaviour does not matter. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { fileOf, lostAnswer } from '../e2e/agent-alone.ts';
import { notesOf } from '../integration/archives/archive-tools.ts';
import { checkImages, diskPath, scribble, scribbled } from '../integration/templates/lab.ts';
import { makePlainDisk } from '../lab/disks.ts';
import { defineGuest, defineTinyGuest, Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import type { FullPlaces, Place, Story } from './places.ts';

const MARK_BYTES = 8;

/** A text of its own for each round, as long as all others. */
let rounds = 0;
function newText(): string {
  rounds += 1;
  return `w${String(rounds).padStart(MARK_BYTES - 1, '0')}`;
}

/** What failed for want of room says so, and of which place; what was cut off by the end of the agent says that. */
export function expectNamed(full: FullPlaces, place: Place, { error }: Operation): void {
  if (!error || error.msgKey === 'interrupted') return;
  expect(error.detail).toMatch(/no space|disk is full|bytes free/i);
  // a pool also by its name
  expect(error.detail).toMatch(place === 'backups' ? /bulk/ : new RegExp(full.seenAs(place)));
}

const isDone = ({ state }: Operation) => state === OperationState.SUCCEEDED;

async function succeeded(full: FullPlaces, id: string): Promise<Operation> {
  const operation = await full.alone.ended(id);
  expect(operation).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
  return operation;
}

/** A guest that is off, with firmware of its own: its disk and its firmware hold texts. */
class OffGuest {
  readonly full: FullPlaces;
  readonly guest: Guest;

  constructor(full: FullPlaces, guest: Guest) {
    this.full = full;
    this.guest = guest;
  }

  static async define(full: FullPlaces, name: string): Promise<OffGuest> {
    const { world } = full.alone;
    const path = join(world.node.pool(0).path, `${name}.qcow2`);
    await makePlainDisk(path, { sizeBytes: 8 << 20, dataBytes: 1 << 20 });
    const options = { name, disks: [{ path }], uefi: true, tpm: true, agent: false, memoryMiB: 64 };
    const plain = await defineTinyGuest(world.node, options);
    const vars = `/var/lib/libvirt/qemu/nvram/${name}_VARS.fd`;
    const xml = (await plain.xml(true)).replace(
      /<nvram([^>]*)(\/>|>[^<]*<\/nvram>)/,
      `<nvram$1>${vars}</nvram>`,
    );
    const guest = await defineGuest(world.node, name, xml);
    // both exist from its first start on
    await guest.start();
    await guest.destroy();
    return new OffGuest(full, guest);
  }

  /** The variables bear it at their end, the TPM's state in a file of its own: neither is read there. */
  async #firmware(): Promise<{ vars: string; tpm: string }> {
    const { dir } = this.full.alone.world;
    return {
      vars: join(dir, 'n1/lib/qemu/nvram', `${this.guest.name}_VARS.fd`),
      tpm: join(dir, 'n1/lib/swtpm', await this.guest.uuid(), 'tpm2', 'note'),
    };
  }

  async write(text: string): Promise<void> {
    await scribble(await diskPath(this.guest), text);
    const { vars, tpm } = await this.#firmware();
    writeFileSync(vars, Buffer.concat([readFileSync(vars).subarray(0, -MARK_BYTES), Buffer.from(text)]));
    writeFileSync(tpm, text);
  }

  async texts(): Promise<string[]> {
    const { vars, tpm } = await this.#firmware();
    const firmware = [readFileSync(vars).subarray(-MARK_BYTES), readFileSync(tpm)].map(String);
    return [await scribbledElsewhere(this.full, await diskPath(this.guest)), ...firmware];
  }

  /** It can be started with what it has. */
  async expectSound(text: string): Promise<void> {
    expect(await this.texts()).toEqual([text, text, text]);
    await checkImages(await diskPath(this.guest));
    await this.guest.start();
    await this.guest.destroy();
  }
}

/** As `scribbled`, which makes a file beside the image. */
async function scribbledElsewhere(full: FullPlaces, path: string): Promise<string> {
  const link = join(full.alone.world.dir, 'read.qcow2');
  rmSync(link, { force: true });
  await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', path, link]);
  return scribbled(link, MARK_BYTES);
}

const snapshotId = async (full: FullPlaces, domainId: string, name: string): Promise<string> => {
  const { snapshots } = await full.alone.snapshots.list({ domainId });
  return snapshots.find(snapshot => snapshot.name === name)!.id;
};

async function createState(full: FullPlaces, guest: Guest, name: string): Promise<void> {
  const operationId = newId();
  await full.alone.snapshots.create({ operationId, domainId: await guest.uuid(), name });
  await succeeded(full, operationId);
}

/** What stays of a domain, but for what it is about. */
const definitionOf = async (guest: Guest) => ({
  disks: await guest.disks(),
  states: await guest.snapshots(),
});

/** To the one of two states, of a guest that is off. */
export async function revertStory(full: FullPlaces): Promise<Story> {
  const own = await OffGuest.define(full, 'reverted');
  const domainId = await own.guest.uuid();
  const then = newText();
  await own.write(then);
  await createState(full, own.guest, 's1');
  await own.write(newText());
  await createState(full, own.guest, 's2');
  let now = '';
  let before: { files: string[]; definition: Awaited<ReturnType<typeof definitionOf>> };
  return {
    kind: 'revert_snapshot',
    prepare: async () => {
      now = newText();
      await own.write(now);
      before = { files: full.files(), definition: await definitionOf(own.guest) };
    },
    start: async () => {
      const operationId = newId();
      const request = { operationId, domainId, snapshotId: await snapshotId(full, domainId, 's1') };
      await full.alone.snapshots.revert(request).catch(lostAnswer);
      return operationId;
    },
    check: async operation => {
      const { files, definition } = before;
      expect(await own.guest.snapshots()).toEqual(definition.states);
      if (!isDone(operation)) {
        expect(await definitionOf(own.guest)).toEqual(definition);
        expect(full.files()).toEqual(files);
      } else expect(withoutLayers(full.files())).toEqual(withoutLayers(files));
      await own.expectSound(isDone(operation) ? then : now);
    },
  };
}

/** Layers bear the id of the operation that made them. */
const withoutLayers = (files: string[]) =>
  files.map(name => name.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|\.[0-9a-z]{8,}(?=\.qcow2)/g, '…')).sort();

/** A new VM from an archive with a saved state and firmware. */
export async function restoreStory(full: FullPlaces): Promise<Story> {
  const own = await OffGuest.define(full, 'original');
  const text = newText();
  await own.write(newText());
  await createState(full, own.guest, 's1');
  await own.write(text);
  const { filename } = fileOf(await succeeded(full, await full.alone.startBackup(own.guest)));
  let files: string[] = [];
  let domains = '';
  const list = () => full.alone.world.node.virsh('list', '--all', '--name');
  return {
    kind: 'restore',
    prepare: async () => {
      files = full.files();
      domains = await list();
    },
    start: () =>
      full.alone.startRestore(filename, {
        file: { poolId: full.alone.world.node.pool(1).uuid, filename },
        poolId: full.alone.world.node.pool(0).uuid,
      }),
    check: async operation => {
      if (isDone(operation)) {
        const { name } = JSON.parse(operation.resultJson) as { name: string };
        const copy = new OffGuest(full, new Guest(full.alone.world.node, name));
        expect(await copy.guest.snapshots()).toEqual(['s1']);
        await copy.expectSound(text);
        const operationId = newId();
        await full.alone.domains.remove({ operationId, domainId: await copy.guest.uuid(), full: true });
        await succeeded(full, operationId);
      }
      expect(await list()).toBe(domains);
      expect(full.files()).toEqual(files);
      await own.expectSound(text);
    },
  };
}

/** In the place of libguestfs's: what they write goes into the overlays as theirs does, in a moment. */
const PROGRAMS = {
  'virt-customize': `#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in -a) image=$2;; --hostname) name=$2;; esac
  shift
done
out=$(qemu-io -f qcow2 -c "write -P 0x$(printf '%x' "'\${name:1:1}") 0 4M" "$image" 2>&1)
[[ $out == wrote* ]] || { echo "error: $out" >&2; exit 1; }
`,
  'virt-cat': `#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = -a ] && image=$2; shift; done
byte=$(qemu-io -r -U -f qcow2 -c 'read -v 0 512' "$image" | sed -n 's/^00000000: *\\([0-9a-f][0-9a-f]\\).*/\\1/p')
printf "h\\\\x$byte\\n"
`,
};

/** Before the agent is started anew: it is the PATH that it has. */
export function standInPrograms(directory: string): void {
  mkdirSync(directory, { recursive: true });
  for (const [name, text] of Object.entries(PROGRAMS))
    writeFileSync(join(directory, name), text, { mode: 0o755 });
  process.env.PATH = `${directory}:${process.env.PATH}`;
}

/** The host name of a guest that is off. */
export async function offlineStory(full: FullPlaces): Promise<Story> {
  standInPrograms(join(full.alone.world.dir, 'programs'));
  await full.alone.restart();
  const { world } = full.alone;
  const path = join(world.node.pool(0).path, 'named.qcow2');
  await makePlainDisk(path, { sizeBytes: 8 << 20 });
  const guest = await defineTinyGuest(world.node, { name: 'named', disks: [{ path }], memoryMiB: 64 });
  const domainId = await guest.uuid();
  let letter = 0;
  let last = '';
  let files: string[] = [];
  return {
    kind: 'set_hostname',
    prepare: async () => {
      letter += 1;
      files = full.files();
    },
    start: async () => {
      const operationId = newId();
      const hostname = `h${String.fromCharCode('a'.charCodeAt(0) + (letter % 26))}`;
      await full.alone.guests
        .setHostname({ operationId, domainId, hostname, restart: false })
        .catch(lostAnswer);
      return operationId;
    },
    check: async operation => {
      if (isDone(operation)) last = String.fromCharCode('a'.charCodeAt(0) + (letter % 26));
      expect(await guest.disks()).toEqual({ vda: path });
      expect(full.files()).toEqual(files);
      await checkImages(path);
      const link = join(world.dir, 'read.qcow2');
      rmSync(link, { force: true });
      await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', path, link]);
      // first and last cluster: all of the change or nothing of it
      const texts = [await scribbled(link, 2), await scribbled(link, 2, (4 << 20) - 1024)];
      expect(texts).toEqual(last === '' ? ['\0\0', '\0\0'] : [last + last, last + last]);
      await guest.start();
      await guest.destroy();
    },
  };
}

/** The change of a template with two thin clones. */
export async function templateStory(full: FullPlaces): Promise<Story> {
  const { world } = full.alone;
  const plain = async (name: string) => {
    const path = join(world.node.pool(0).path, `${name}.qcow2`);
    await makePlainDisk(path, { sizeBytes: 8 << 20, dataBytes: 1 << 20 });
    return { path };
  };
  const template = await defineTinyGuest(world.node, {
    name: 'golden',
    disks: [await plain('golden'), await plain('golden2')],
    memoryMiB: 64,
    metadata: "<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' template='yes' version='1'/>",
  });
  let held = { text: newText(), version: 1 };
  const targets = ['vda', 'vdb'];
  const write = async (guest: Guest, text: string) => {
    for (const target of targets) await scribble(await diskPath(guest, target), text);
  };
  const read = async (guest: Guest) => {
    const found = [];
    for (const target of targets) found.push(await scribbledElsewhere(full, await diskPath(guest, target)));
    return found;
  };
  await write(template, held.text);
  for (const name of ['changed', 'other']) {
    const operationId = newId();
    const domainId = await template.uuid();
    await full.alone.templates.clone({ operationId, domainId, newDomainId: newId(), name, thin: true });
    await succeeded(full, operationId);
  }
  const [changed, other] = ['changed', 'other'].map(name => new Guest(world.node, name)) as [Guest, Guest];
  let [next, mine] = ['', ''];
  let files: string[] = [];
  return {
    kind: 'change_template',
    prepare: async () => {
      [next, mine] = [newText(), newText()];
      await write(changed, next);
      await write(other, mine);
      files = full.files();
    },
    start: async () => {
      const operationId = newId();
      await full.alone.templates.change({ operationId, domainId: await changed.uuid() }).catch(lostAnswer);
      return operationId;
    },
    check: async operation => {
      if (isDone(operation)) held = { text: next, version: held.version + 1 };
      const both = (text: string) => [text, text];
      expect(await read(template)).toEqual(both(held.text));
      expect(await read(changed)).toEqual(both(next));
      expect(await read(other)).toEqual(both(isDone(operation) ? next : mine));
      expect(full.files()).toEqual(files);
      const metadata = async (guest: Guest) => parseDomain(await guest.xml(true)).metadata;
      expect((await metadata(template)).templateVersion).toBe(held.version);
      for (const guest of [changed, other]) {
        expect((await metadata(guest)).parent?.version).toBe(held.version);
        for (const target of targets) await checkImages(await diskPath(guest, target));
      }
      await other.start();
      await other.destroy();
    },
  };
}

/** A running guest's increment, with the merge of the oldest of its states. */
export async function incrementStory(full: FullPlaces): Promise<Story> {
  const { world } = full.alone;
  const guest = await world.defineTiny({ name: 'extended', dataDisks: [{ sizeMiB: 32 }] });
  await (await guest.start()).waitForAgent();
  const pid = guest.qemuPid();
  const texts: string[] = [];
  const write = async () => {
    texts.push(newText());
    await guest.sh(
      `echo ${texts.at(-1)} > /mnt/vda/note; dd if=/dev/urandom of=/mnt/vda/big bs=64k count=16; sync`,
    );
  };
  const fileId = newId();
  await write();
  const first = await full.alone.startBackup(guest, { fileId, canBeIncremental: true, hashSum: true });
  const archive = fileOf(await succeeded(full, first));
  const start = () => {
    const extend = { poolId: world.node.pool(1).uuid, filename: archive.filename };
    return full.alone.startBackup(guest, { extend, extendFileId: fileId, fileId: newId() });
  };
  for (let count = 0; count < 2; count += 1) {
    await write();
    await succeeded(full, await start());
  }
  let before: { files: string[]; bytes: Buffer; definition: Awaited<ReturnType<typeof definitionOf>> };
  return {
    kind: 'backup',
    prepare: async () => {
      await write();
      before = {
        files: full.files(),
        bytes: readFileSync(archive.path),
        definition: await definitionOf(guest),
      };
    },
    start,
    check: async operation => {
      // a guest that wanted to write stands still, and goes on
      if ((await guest.state()) === 'paused') await world.node.virsh('resume', guest.name);
      await guest.waitForAgent();
      expect(guest.qemuPid()).toBe(pid);
      expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
      expect((await guest.sh('cat /mnt/vda/note')).trim()).toBe(texts.at(-1));
      await guest.sh('echo more > /mnt/vda/more; sync; rm /mnt/vda/more');
      if (isDone(operation)) return;
      texts.pop();
      expect(await definitionOf(guest)).toEqual(before.definition);
      // what an earlier increment left to be merged may be merged by now
      expect(before.files).toEqual(expect.arrayContaining(full.files()));
      expect(readFileSync(archive.path).equals(before.bytes)).toBe(true);
    },
    whileFull: async place => {
      // QEMU has no room for it, and stops the guest
      if (place !== 'pool') return;
      await guest.background('/bin/dd', ['if=/dev/urandom', 'of=/mnt/vda/more', 'bs=64k', 'count=64']);
      await guest.background('/bin/sync');
      await waitFor('the stop of the guest', async () => (await guest.state()) === 'paused', 60_000);
    },
    finish: async () => {
      await full.alone.arm('');
      await write();
      await succeeded(full, await start());
      expect(await guest.snapshots()).toHaveLength(3);
      expect(full.files().filter(name => /^n1\/pools\/fast\/.*qcow2$/.test(name))).toHaveLength(4);
      expect(await notesOf(archive.path, join(world.dir, 'unpacked'), texts.length)).toEqual(texts);
    },
  };
}

/** Each with the moments at which something is different. */
export const STORIES = {
  revert: {
    make: revertStory,
    moments: ['check.before', 'check.after', 'prepare.after', 'stop.after', 'define.after', 'start.after'],
  },
  restore: {
    make: restoreStory,
    moments: ['check.after', 'extract.mid', 'extract.after', 'join.after', 'define.before', 'define.after'],
  },
  offline: {
    make: offlineStory,
    moments: ['check.after', 'prepare.after', 'change.after', 'apply.before', 'apply.after', 'merge.before'],
  },
  template: {
    make: templateStory,
    moments: ['check.after', 'copy.mid', 'copy.after', 'prepare.after', 'switch.before', 'switch.mid'],
  },
  increment: {
    make: incrementStory,
    moments: [
      'check.after',
      'state.before',
      'state.after',
      'copy.mid',
      'copy.after',
      'publish.after',
      'merge.before',
      'merge.mid',
    ],
  },
};
