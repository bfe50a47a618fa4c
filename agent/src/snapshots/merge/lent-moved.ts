/**
 * virtkeep itself writes to a lent file when a merge below lets it stand on another one: to its header. What is known of it is noted
 * before, since after a crash in between nobody could tell that from the write of another node, and what it is then after.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { type LentLayer, parseDomain } from '../../domain-xml/index.ts';
import { writeMetadata } from '../write-metadata.ts';
import { markOf, WRITTEN, writtenSince } from './mark.ts';

type OnLent = Pick<LentLayer, 'path' | 'below'>;

/** Those of the layers, each with the lent file that it stands on, that are among these files or stand right on one. */
export function lentAmong(lent: ReadonlyMap<string, string>, files: readonly string[]): OnLent[] {
  return [...lent].flatMap(([path, below]) =>
    files.includes(below) || files.includes(path) ? [{ path, below }] : [],
  );
}

/**
 * Notes, before their lent files change or are others, those of the layers whose files nobody wrote to until now. Of a file that was
 * written to, or of which that is not known, the change must not hide it.
 * @returns these layers
 * @throws LibvirtError; VirtkeepError disk_full, io_failed
 */
export async function noteMoving(domain: Domain, layers: readonly OnLent[]): Promise<OnLent[]> {
  if (layers.length === 0) return [];
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  const moving: LentLayer[] = [];
  for (const { path, below } of layers) {
    const known = metadata.lentLayers?.find(layer => layer.path === path);
    if (known && known.below !== below) continue;
    // an earlier version did not note what it lent
    const mark = known?.mark ?? (await markOf(below));
    if (mark === undefined || (await writtenSince(below, path, known?.mark)) !== 'same') continue;
    moving.push({ path, below, mark, moving: true });
  }
  await noteLent(domain, moving);
  return moving;
}

/**
 * Notes those of the layers whose lent files were written to, before these are merged into another one: that one has what was written
 * then, and nothing else would tell of it any more.
 * @param to the file that they stand on afterwards
 * @throws LibvirtError; VirtkeepError disk_full, io_failed
 */
export async function noteWritten(domain: Domain, layers: readonly OnLent[], to: string): Promise<void> {
  if (layers.length === 0) return;
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  const written: LentLayer[] = [];
  for (const { path, below } of layers) {
    const known = metadata.lentLayers?.find(layer => layer.path === path);
    if (known && known.below !== below && known.mark !== WRITTEN) continue;
    if ((await writtenSince(below, path, known?.mark)) === 'written')
      written.push({ path, below: to, mark: WRITTEN });
  }
  await noteLent(domain, written);
}

/** Notes what the files are now, on which these layers stand. @throws LibvirtError; VirtkeepError disk_full, io_failed */
export async function noteMoved(domain: Domain, layers: readonly OnLent[]): Promise<void> {
  const moved: LentLayer[] = [];
  for (const { path, below } of layers) {
    const mark = await markOf(below);
    if (mark !== undefined) moved.push({ path, below, mark });
  }
  await noteLent(domain, moved);
}

/** What is noted of other layers stays: they may still be there. @throws LibvirtError; VirtkeepError disk_full, io_failed */
export async function noteLent(domain: Domain, layers: readonly LentLayer[]): Promise<void> {
  if (layers.length === 0) return;
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  const others = (metadata.lentLayers ?? []).filter(({ path }) => !layers.some(layer => layer.path === path));
  await writeMetadata(domain, { ...metadata, lentLayers: [...others, ...layers] });
}
