/**
 * Layers of an automatic state that their domain forgot. A transient domain is gone when it stops. Whoever keeps its XML starts
 * it again with the file below the layer, without the data that the guest has written since: only the layer has them. So the
 * layer is never dropped. It is merged into the file below when nobody else has written to that file; else it stays, and a
 * warning names it.
 *
 * | what is known of the file below                         | the layer                                                |
 * |---------------------------------------------------------|----------------------------------------------------------|
 * | as it was when the state was made, and nobody uses both | put back by qemu-img, whose locks keep everybody out     |
 * | a merge into it had begun, and nobody uses both         | the same: only together with it the file below is a disk |
 * | whether another node uses them is not known yet         | asked again for a while                                  |
 * | anything else: written to, in use, a device, not known  | stays and is named                                       |
 *
 * That a merge has begun stands in a file beside the layer, with what an administrator has to know.
 */
import { readFile } from 'node:fs/promises';
import { type Domain, ErrorCode, JobType, type Libvirt } from '@virtkeep/node-libvirt';
import { exists, removePath } from '@virtkeep/shared/files';
import { replaceWhole } from '@virtkeep/shared/foreign-file';
import { qemuImg } from '../../disks/index.ts';
import { type ImageDependencies, imagesInUse, type LeftImage, removeImages } from '../../images/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import { isAnswer } from '../../libvirt/errors.ts';
import { markedBelow, markOf, requireRoomToMerge } from '../../snapshots/index.ts';
import type { FrozenLayer } from '../effect.ts';

export interface FrozenLayers {
  domainId: string;
  name: string;
  overlays: readonly FrozenLayer[];
}

export interface LayerOptions {
  signal: AbortSignal;
  /** Tells what stays. */
  warn(text: string): void;
  /** Called with files about which another node has not answered; it throws while an answer is worth waiting for. */
  settle(left: readonly LeftImage[]): void;
}

/** `virDomainJobOperation`: a state is being made. */
const SNAPSHOT_OPERATION = 6;

/** What the file beside a layer says. */
type Merging = 'merging' | 'last_moment';

/** The layers with the files below them as they are now, right after they were frozen. @throws VirtkeepError io_failed */
export async function withMarks(
  overlays: readonly FrozenLayer[],
  isPersistent: boolean,
): Promise<FrozenLayer[]> {
  const marked: FrozenLayer[] = [];
  for (const overlay of overlays) {
    const below = await markedBelow(overlay.path);
    if (!below) marked.push(overlay);
    else marked.push(isPersistent ? { ...overlay, mark: below.mark } : { ...overlay, below });
  }
  return marked;
}

/** Whether the domain is gone, or runs again and knows nothing of the state. @throws LibvirtError */
export function isForgotten(libvirt: Libvirt, { domainId, name }: FrozenLayers): Promise<boolean> {
  return unlessGone(async () => {
    const domain = await libvirt.domainByUuid(domainId);
    if ((await domain.isPersistent()) || (await domain.findSnapshot(name))) return false;
    return !(await isBeingMade(domain));
  }, true);
}

/** libvirt goes on with a state although the client that requested it is gone. */
async function isBeingMade(domain: Domain): Promise<boolean> {
  try {
    const { type, params } = await domain.jobStats();
    return type !== JobType.NONE && params.operation === SNAPSHOT_OPERATION;
  } catch (error) {
    if (isAnswer(error, ErrorCode.OPERATION_INVALID)) return false; // it stops just now
    throw error;
  }
}

/**
 * Settles what the domain forgot, if it did. Idempotent.
 * @returns what is left for the ordinary removal of the state
 * @throws LibvirtError; VirtkeepError pool_no_space, qemu_img_failed, io_failed, image_use_unknown: tried again
 */
export async function settleForgotten<T extends FrozenLayers>(
  dependencies: ImageDependencies,
  state: T,
  options: LayerOptions,
): Promise<T> {
  if (!(await isForgotten(dependencies.libvirt(), state))) return state;
  const layers: FrozenLayer[] = [];
  for (const layer of state.overlays) if (await exists(layer.path)) layers.push(layer);
  const reason = layers.length > 0 ? await whyNotPutBack(dependencies, state, layers, options) : null;
  if (reason === null) await putBack(dependencies, state, layers, options.signal);
  else options.warn(staysText(state, layers, reason));
  return { ...state, overlays: [] };
}

function staysText({ domainId }: FrozenLayers, layers: readonly FrozenLayer[], reason: string): string {
  const paths = layers.map(({ path }) => path).join(', ');
  return (
    `KEEP ${paths}: the VM ${domainId} was stopped or undefined while its disks were frozen, and what it wrote since is in ` +
    `there alone. It was not put back, since ${reason}. Nothing removes it.`
  );
}

/** Null when all of the layers may go into the files below them: none without the others. */
async function whyNotPutBack(
  dependencies: ImageDependencies,
  { domainId }: FrozenLayers,
  layers: readonly FrozenLayer[],
  { signal, settle }: LayerOptions,
): Promise<string | null> {
  const files: string[] = [];
  for (const { path, below } of layers) {
    if (!below) return `it cannot be told whether the disk below ${path} was written to since`;
    const merging = await mergingOf(path);
    if (merging === 'last_moment')
      return `its merge into ${below.path} was at its very end, and that may be newer by now`;
    if (merging === null && (await markOf(below.path).catch(() => null)) !== below.mark)
      return `${below.path} was written to since`;
    files.push(path, below.path);
  }
  const left = await imagesInUse(dependencies, files, { ownerId: domainId, signal });
  const used = left.find(({ why }) => why === 'used') ?? left[0];
  if (used?.why === 'unknown') settle(left);
  return used ? used.text.replace(/\.$/, '') : null;
}

/**
 * All at once, so that no disk can be opened before the others are whole, too. Without `-d` the layers are empty in the end,
 * so that doing it again after a crash changes nothing.
 */
async function putBack(
  dependencies: ImageDependencies,
  { domainId }: FrozenLayers,
  layers: readonly FrozenLayer[],
  signal: AbortSignal,
): Promise<void> {
  const paths = layers.map(({ path }) => path);
  await requireRoomToMerge(paths, [], signal);
  await noteMerging(layers, 'merging');
  const ends = await Promise.allSettled(
    paths.map(path => qemuImg('commit', ['-q', '-f', 'qcow2', path], { signal })),
  );
  const failed = ends.find(end => end.status === 'rejected');
  if (failed) throw failed.reason;
  const left = await removeImages(dependencies, paths, { ownerId: domainId, unanswered: 'take', signal });
  if (left.length > 0) throw new Error(left[0]!.text);
  await forgetMerging(layers);
}

const noteOf = (path: string) => `${path}.merging`;
const unfinishedNoteOf = (path: string) => `${noteOf(path)}.new`;

/** Notes durably, beside each layer, that its merge begins. */
export async function noteMerging(layers: readonly FrozenLayer[], merging: Merging): Promise<void> {
  for (const { path, below } of layers) {
    if (!below || !(await exists(path))) continue;
    const text =
      `${merging}\n\n${path} is on its way into ${below.path}. Neither alone is the disk until this file is gone.\n` +
      `To complete it by hand, with the VM off on all nodes: qemu-img commit -f qcow2 ${path}\n`;
    await replaceWhole(noteOf(path), text, unfinishedNoteOf(path));
  }
}

/** Removes what was noted about layers that are gone. */
export async function forgetMerging(layers: readonly FrozenLayer[]): Promise<void> {
  for (const { path, below } of layers) {
    if (!below || (await exists(path))) continue;
    await removePath(unfinishedNoteOf(path));
    await removePath(noteOf(path));
  }
}

async function mergingOf(path: string): Promise<Merging | null> {
  if (!(await exists(noteOf(path)))) return null;
  const [stage] = (await readFile(noteOf(path), 'utf8')).split('\n');
  return stage === 'last_moment' ? 'last_moment' : 'merging';
}

/** Watches until the domain forgot the state, or the signal fires. @returns whether it did */
export async function untilForgotten(
  libvirt: Libvirt,
  state: FrozenLayers,
  signal: AbortSignal,
): Promise<boolean> {
  while (!signal.aborted) {
    const looked = new AbortController();
    const waiting = { signal: AbortSignal.any([signal, looked.signal]), timeoutMs: LOOK_MS };
    const event = libvirt.waitFor('lifecycle', ({ uuid }) => uuid === state.domainId, waiting);
    event.catch(() => {});
    // the event may have come before anybody waited for it; while libvirt cannot be asked nothing is known
    const isGone = await isForgotten(libvirt, state).catch(() => false);
    if (isGone) looked.abort();
    if (isGone) return true;
    await event.catch(() => {});
  }
  return false;
}

/** An event may be lost with the connection. */
const LOOK_MS = 5_000;
