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
 * Notes of the layers, before their lent files change or are others, whether nobody wrote to these until now. Of a file that was written to,
 * or of which that is not known, the change must not hide it; where it is merged away, its content goes into another one, which would not
 * tell of it by itself.
 * @param merged the layers whose lent file is merged away, and the file that they stand on afterwards
 * @returns the layers to whose files nobody wrote
 * @throws LibvirtError; VirtkeepError disk_full, io_failed
 */
export async function noteMoving(
  domain: Domain,
  layers: readonly OnLent[],
  merged?: { layers: readonly string[]; to: string },
): Promise<OnLent[]> {
  if (layers.length === 0) return [];
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  const moving: LentLayer[] = [];
  const written: LentLayer[] = [];
  for (const { path, below } of layers) {
    const known = metadata.lentLayers?.find(layer => layer.path === path);
    if (known && known.below !== below && known.mark !== WRITTEN) continue;
    const since = await writtenSince(below, path, known?.mark);
    // an earlier version did not note what it lent
    const mark = known?.mark ?? (await markOf(below));
    if (since === 'same' && mark !== undefined) moving.push({ path, below, mark, moving: true });
    if (since === 'written' && merged?.layers.includes(path))
      written.push({ path, below: merged.to, mark: WRITTEN });
  }
  await noteLent(domain, [...moving, ...written]);
  return moving;
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
