/** What the tests of increments share: a guest that tells the hash of its files, and the states of an archive rebuilt by hand. */
import { createHash } from 'node:crypto';
import { createReadStream, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Manifest } from '../../../agent/src/archive/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInsideSound, joinLayers, untar } from '../archives/archive-tools.ts';
import type { WorkflowLab } from '../backup/lab.ts';

export type Made = Awaited<ReturnType<WorkflowLab['backup']>>;

/** A new backup that can be extended. */
export function firstBackup(lab: WorkflowLab, guest: Guest, request: Partial<StartBackupRequest> = {}) {
  return lab.backup(guest, { canBeIncremental: true, ...request });
}

/** Extends an archive. */
export function increment(
  lab: WorkflowLab,
  guest: Guest,
  base: Pick<Made, 'file'>,
  request: Partial<StartBackupRequest> = {},
): Promise<Made> {
  const { filename, id } = base.file;
  const extend = { poolId: lab.world.node.pool(1).uuid, filename };
  return lab.backup(guest, { extend, extendFileId: id, ...request });
}

/** Writes a file inside the guest, durably. */
export async function write(guest: Guest, path: string, text: string): Promise<void> {
  await guest.sh(`echo '${text}' > ${path} && sync`);
}

/** Unpacks an archive by GNU tar. @returns the directory and the manifest of each state, by its number */
export async function unpack(
  lab: WorkflowLab,
  path: string,
): Promise<{ directory: string; manifests: Map<number, Manifest> }> {
  const directory = await untar(path, join(lab.world.dir, 'unpacked'));
  const manifests = new Map<number, Manifest>();
  for (const name of readdirSync(directory).filter(one => one.endsWith('_manifest.json')))
    manifests.set(
      Number(name.slice(0, 4)),
      JSON.parse(readFileSync(join(directory, name), 'utf8')) as Manifest,
    );
  return { directory, manifests };
}

/**
 * Puts the layers of a disk of a state together; each is checked.
 * @param joined see `joinLayers`
 * @returns the top
 */
export async function diskOf(
  directory: string,
  manifest: Manifest,
  target = 'vda',
  joined?: Map<string, string | undefined>,
): Promise<string> {
  const disk = manifest.disks.find(candidate => candidate.target === target)!;
  const raw = disk.layers.map(({ member }) => member);
  return joinLayers(directory, raw, joined);
}

/** The first line of a file on the first disk of a state; the file system is checked. @param joined see `joinLayers` */
export async function contentOf(
  directory: string,
  manifest: Manifest,
  path: string,
  joined?: Map<string, string | undefined>,
): Promise<string> {
  const image = await diskOf(directory, manifest, 'vda', joined);
  return (await fileInsideSound(image, path)).trim();
}

/** Per disk the hash of what a guest sees on it, or saw when its last state was made. The guest is off, or just backed up. */
export async function diskHashes(lab: WorkflowLab, guest: Guest): Promise<Record<string, string>> {
  const running = (await guest.state()) !== 'shut off';
  const hashes: Record<string, string> = {};
  for (const [target, path] of Object.entries(await guest.disks())) {
    if (!path?.startsWith('/') || path.endsWith('.iso')) continue;
    hashes[target] = await imageHash(lab, running ? await below(path) : path);
  }
  return hashes;
}

/** What an image stands on. */
async function below(path: string): Promise<string> {
  const info = await run(['qemu-img', 'info', '-U', '--output=json', path]);
  return (JSON.parse(info.stdout) as { 'full-backing-filename': string })['full-backing-filename'];
}

/** Hash of what an image shows, whatever its format and layers. */
export async function imageHash(lab: WorkflowLab, image: string): Promise<string> {
  const raw = join(lab.world.dir, 'hashed.raw');
  await run(['qemu-img', 'convert', '-U', '-O', 'raw', image, raw]);
  const hash = createHash('sha256');
  for await (const piece of createReadStream(raw, { highWaterMark: 1 << 20 })) hash.update(piece);
  return hash.digest('hex');
}

/** Compares all disks of all states with what they were. */
export async function compareStates(
  lab: WorkflowLab,
  path: string,
  wanted: Record<string, string>[],
): Promise<void> {
  const { directory, manifests } = await unpack(lab, path);
  const found: Record<string, string>[] = [];
  const joined = new Map<string, string | undefined>();
  for (let number = 1; number <= manifests.size; number += 1) {
    const manifest = manifests.get(number)!;
    const hashes: Record<string, string> = {};
    for (const { target } of manifest.disks)
      hashes[target] = await imageHash(lab, await diskOf(directory, manifest, target, joined));
    found.push(hashes);
  }
  expect(found).toEqual(wanted);
}
