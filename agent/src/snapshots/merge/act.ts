/** Does the steps of a merge. */
import { stat } from 'node:fs/promises';
import {
  BlockCommit,
  BlockJobAbort,
  type Domain,
  DomainXml,
  isLibvirtError,
  type Libvirt,
  SnapshotCreate,
  SnapshotDelete,
  SnapshotXml,
} from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { syncFile } from '@virtkeep/shared/files';
import { MiB } from '@virtkeep/shared/units';
import { qemuImg, readImageHeader, readLayers, rebaseUnsafe } from '../../disks/index.ts';
import {
  type DomainMetadata,
  editSnapshot,
  type LooseLayer,
  parseDomain,
  parseSnapshot,
  setMetadata,
  stripBackingStore,
} from '../../domain-xml/index.ts';
import { listSnapshots, snapshotXml } from '../../libvirt/domains.ts';
import { isPassing } from '../../libvirt/errors.ts';
import { type DiskSource, diskStates, withKeptFile, withoutChains, withSources } from '../state-xml.ts';
import { requireRoomFor, writeMetadata } from '../write-metadata.ts';
import { writeState } from '../write-state.ts';
import { firstShrunk, fitLower } from './fit.ts';
import { lentAmong, noteMoved, noteMoving } from './lent-moved.ts';
import type { MergeStep } from './step.ts';

export interface ActOptions {
  signal: AbortSignal;
  /** Bound of the merge, MiB/s, may be a fraction; 0 or absent = none. */
  bandwidthMiB?: number;
  /** Told how much the merge of the present layer moves, bytes. */
  progress?: { total(bytes: number): void; done(bytes: number): void };
  /** Removes an image that nobody uses. */
  removeLayer(path: string): Promise<void>;
  /** Removes the memory file of a state. */
  removeMemory(path: string): Promise<void>;
  /** How long a step that waits does so. */
  pollMs: number;
  /** The layers that stand on lent files, with these. */
  lent: ReadonlyMap<string, string>;
}

/** Does one step. @throws LibvirtError, VirtkeepError */
export async function act(
  libvirt: Libvirt,
  domain: Domain,
  step: MergeStep,
  options: ActOptions,
): Promise<void> {
  const { signal, pollMs } = options;
  const bytesPerSecond = Math.round((options.bandwidthMiB ?? 0) * MiB);
  switch (step.do) {
    case 'note':
      return writeMetadata(domain, step.metadata);
    case 'remove_memory':
      return options.removeMemory(step.path);
    case 'native_delete':
      return domain.snapshot(step.name).delete(0, { timeoutMs: 0 });
    case 'reparent':
      return reparent(domain, step);
    case 'forget':
      return domain.snapshot(step.name).delete(SnapshotDelete.METADATA_ONLY);
    case 'commit_active':
    case 'commit_middle':
      return commitOnline(domain, step, bytesPerSecond, options);
    case 'wait':
      await sleep(pollMs, signal);
      return report(domain, step.targetDev, options);
    case 'wait_for_job':
    case 'wait_for_state':
      return sleep(pollMs, signal);
    case 'abort_save':
      await domain.abortJob();
      return sleep(pollMs, signal);
    case 'pivot':
      await requireRoomFor(domain);
      await endBlockJob(domain, step.targetDev, BlockJobAbort.PIVOT);
      // else it has failed, and the disk is where it was: the next look goes on from there
      return (await writesTo(domain, step.layer)) ? noteMerged(domain, step) : undefined;
    case 'commit_offline':
      await commitOffline(step.above, bytesPerSecond, options);
      // nobody writes to what others stand on or keep; else the definition that names the lower file brings the note with it
      if (step.readers.length + step.states.length > 0) await noteMerged(domain, step);
      await moveUsers(libvirt, domain, step, options);
      return rename(domain, step);
    case 'commit_detached':
      await commitOffline(step.above, bytesPerSecond, options);
      await syncFile(step.layer);
      // the upper file may have to stay, and must not come over what is written to the lower one meanwhile
      return noteMerged(domain, step);
    case 'move_readers':
      return moveUsers(libvirt, domain, step, options);
    case 'rename':
      return rename(domain, step);
    case 'remove_file':
      // QEMU does not flush a header that it lets name another file below: a power cut would bring the removed one's name back
      for (const path of step.heirs ?? []) await syncFile(path);
      await noteMovedLive(domain, step.heirs ?? [], options);
      await forgetChain(libvirt, domain, step.path);
      await forgetInnerChains(domain, step.path);
      return options.removeLayer(step.path);
    case 'done':
      return;
  }
}

/**
 * Starts a merge of a running disk. Both ends are named: without a base everything would be merged into the bottom file, be
 * it a template or an archive, and without a top into the base whatever lies on the disk by then.
 */
async function commitOnline(
  domain: Domain,
  step: Extract<MergeStep, { do: 'commit_active' | 'commit_middle' }>,
  bytesPerSecond: number,
  { lent }: ActOptions,
): Promise<void> {
  const { targetDev, layer, above } = step;
  if ((await firstShrunk([above])) !== undefined)
    throw new Error(`${above} is smaller than what it stands on; switch the VM off for it`);
  if (step.do === 'commit_middle') {
    const { metadata } = parseDomain(await domain.xml(), domain.name);
    const note = metadata.looseLayers?.find(({ path, merging }) => path === layer && merging === above);
    if (note?.reader !== undefined) await noteMoving(domain, lentAmong(lent, [note.reader]));
  }
  const active = step.do === 'commit_active' ? BlockCommit.ACTIVE : 0;
  const flags = active | BlockCommit.SHALLOW | BlockCommit.BANDWIDTH_BYTES;
  await domain.blockCommit(targetDev, { base: layer, top: above, bandwidth: bytesPerSecond }, flags);
  // libvirt makes no state while a job is there, but may have made one just before
  if ((await readImageHeader(above)).internalStates === undefined) return;
  await endBlockJob(domain, targetDev);
  throw new Error(`an internal state was made in ${above} meanwhile`);
}

async function report(domain: Domain, targetDev: string, { progress }: ActOptions): Promise<void> {
  const info = progress && (await domain.blockJobInfo(targetDev));
  if (!info) return;
  progress.total(info.end);
  progress.done(info.cur);
}

/** QEMU's image locks keep the guest from starting while qemu-img writes; `-d` leaves the upper file whole until it is unused. */
async function commitOffline(
  above: string,
  bytesPerSecond: number,
  { signal, progress }: ActOptions,
): Promise<void> {
  const total = (await stat(above)).blocks * 512;
  progress?.total(total);
  const rate = bytesPerSecond > 0 ? ['-r', String(bytesPerSecond)] : [];
  await qemuImg('commit', ['-d', ...rate, '-f', 'qcow2', above], {
    signal,
    onProgress: percent => progress?.done(Math.round((total * percent) / 100)),
  });
  await fitLower(above, signal);
}

/** How long libvirt may take to pass on that a job is to end, and QEMU to end it; each may write what it has in its caches. */
const END_MS = 60_000;
/** Most end at once, and a guest that goes off before the end is noted leaves a merge of which nobody knows whether it was done. */
const END_POLL_MS = { soon: 10, later: 160 };
const SOON_MS = 1_000;

/**
 * Ends a block job, whatever way it ends. Asked to wait for it, libvirt holds the domain until QEMU tells the end, without limit, also when it has missed that.
 * @throws Error it is still there after a minute; LibvirtError
 */
export async function endBlockJob(domain: Domain, targetDev: string, flags = 0): Promise<void> {
  await domain.blockJobAbort(targetDev, flags | BlockJobAbort.ASYNC, { timeoutMs: END_MS });
  const sinceMs = performance.now();
  for (;;) {
    const disk = diskStates(await domain.xml()).get(targetDev);
    if (!disk?.mirror && (await domain.blockJobInfo(targetDev)) === null) return;
    const waitedMs = performance.now() - sinceMs;
    if (waitedMs > END_MS) throw new Error(`the block job of ${targetDev} does not end`);
    await sleep(waitedMs < SOON_MS ? END_POLL_MS.soon : END_POLL_MS.later);
  }
}

/**
 * A merge that runs no more says nothing of what the disk has: others may put the lower file there.
 * @param above the running disk's top
 */
export async function noteStopped(domain: Domain, above: string): Promise<void> {
  const xml = await domain.xml();
  // it may have ended by its pivot
  if (![...diskStates(xml).values()].some(disk => disk.sourcePath === above && !disk.mirror)) return;
  const { metadata } = parseDomain(xml, domain.name);
  const isOfIt = ({ merging, stage }: LooseLayer) => merging === above && stage === 'live';
  if (!metadata.looseLayers?.some(isOfIt)) return;
  const looseLayers = metadata.looseLayers.map(
    (loose): LooseLayer => (isOfIt(loose) ? { ...loose, stage: 'begun' } : loose),
  );
  await writeMetadata(domain, { ...metadata, looseLayers });
}

/** What others wrote into the metadata meanwhile stays. */
async function noteMerged(domain: Domain, merge: { layer: string; above: string }): Promise<void> {
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  await writeMetadata(domain, withMerged(metadata, merge));
}

function withMerged(
  metadata: DomainMetadata,
  { layer, above }: { layer: string; above: string },
): DomainMetadata {
  const looseLayers = metadata.looseLayers?.map(
    (loose): LooseLayer =>
      loose.path === layer && loose.merging === above ? { ...loose, stage: 'merged' } : loose,
  );
  return { ...metadata, ...(looseLayers ? { looseLayers } : {}) };
}

/** Lets the files that stand on the upper one, and the definition when it writes to it, use the lower one. */
async function moveUsers(
  libvirt: Libvirt,
  domain: Domain,
  step: Extract<MergeStep, { do: 'commit_offline' | 'move_readers' }>,
  { signal, lent }: ActOptions,
): Promise<void> {
  const layer = await layerBelow(step);
  const merged = { layers: step.readers, to: layer.path };
  const moving = await noteMoving(domain, lentAmong(lent, step.readers), merged);
  for (const reader of step.readers) await rebaseUnsafe(reader, layer, { signal });
  await noteMoved(
    domain,
    moving.map(({ path, below }) => ({ path, below: step.readers.includes(path) ? layer.path : below })),
  );
  // started in between: it writes to the upper file again, merge it while it runs
  if (!(await domain.isPersistent())) return;
  const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const targets = [...diskStates(xml)].filter(([, disk]) => disk.sourcePath === step.above);
  const live = (await domain.isActive()) ? [...diskStates(await domain.xml()).values()] : [];
  if (live.some(disk => disk.sourcePath === step.above)) return;
  // libvirt lets the definition follow the running disk only where both name it by the same text
  const path = live.find(disk => disk.sourcePath === layer.path)?.spelling ?? layer.path;
  const sources = Object.fromEntries(targets.map(([target]) => [target, { ...layer, path }]));
  const next = withSources(stripBackingStore(xml), sources);
  const { metadata } = parseDomain(xml, domain.name);
  await libvirt.defineDomain(
    step.do === 'commit_offline' ? setMetadata(next, withMerged(metadata, step)) : next,
  );
}

/**
 * Of a domain that is off libvirt keeps the chains as it last found them in the definition (`<backingStore>`), and the next
 * start fails when a file named there is gone. `moveUsers` drops them together with the last name of the upper file; when the
 * agent or the machine ended after it had set the readers on the lower file and before that, nothing stands on the upper file any
 * more, so the step is not done again and only this name is left.
 */
async function forgetChain(libvirt: Libvirt, domain: Domain, path: string): Promise<void> {
  if (!(await domain.isPersistent())) return;
  const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const { disks } = parseDomain(xml, domain.name);
  if (disks.some(({ backingChain = [] }) => backingChain.some(layer => layer.path === path)))
    await libvirt.defineDomain(stripBackingStore(xml));
}

/**
 * An internal state of a running domain holds its chains, too, and libvirt goes back to it only while all files are there that are named
 * in them; it stops the domain before it looks (measured on 9.0). A state that libvirt does not take again stays as it is: what it holds is whole.
 */
async function forgetInnerChains(domain: Domain, path: string): Promise<void> {
  for (const snapshot of await listSnapshots(domain)) {
    const xml = await snapshotXml(snapshot, SnapshotXml.SECURE);
    if (xml === null) continue;
    const { domain: running, inactiveDomain, disks } = parseSnapshot(xml);
    if (!disks.some(({ mode }) => mode === 'internal')) continue;
    const named = [running, inactiveDomain].flatMap(config => config?.disks ?? []);
    if (!named.some(({ backingChain = [] }) => backingChain.some(layer => layer.path === path))) continue;
    await writeState(domain, withoutChains(xml), SnapshotCreate.REDEFINE).catch((error: unknown) => {
      if (!isLibvirtError(error) || isPassing(error)) throw error;
    });
  }
}

/** QEMU has moved them. The running domain goes on from what its lent files are now. */
async function noteMovedLive(domain: Domain, moved: readonly string[], { lent }: ActOptions): Promise<void> {
  const among = lentAmong(lent, moved);
  if (among.length === 0) return;
  const { metadata } = parseDomain(await domain.xml(), domain.name);
  const moving = new Set(metadata.lentLayers?.flatMap(layer => (layer.moving ? [layer.path] : [])));
  for (const layer of among)
    if (moving.has(layer.path) && (await writesTo(domain, layer.path))) await noteMoved(domain, [layer]);
}

async function writesTo(domain: Domain, path: string): Promise<boolean> {
  if (!(await domain.isActive())) return false;
  return [...diskStates(await domain.xml()).values()].some(disk => disk.sourcePath === path);
}

/** The upper file still names the lower one and its format. */
async function rename(
  domain: Domain,
  step: { states: string[]; layer: string; above: string },
): Promise<void> {
  const layer = await layerBelow(step);
  for (const name of step.states) {
    const xml = await domain.snapshot(name).xml(SnapshotXml.SECURE);
    await writeState(domain, withKeptFile(xml, step.above, layer), SnapshotCreate.REDEFINE);
  }
}

async function reparent(domain: Domain, step: Extract<MergeStep, { do: 'reparent' }>): Promise<void> {
  for (const name of step.states) {
    const xml = await domain.snapshot(name).xml(SnapshotXml.SECURE);
    await writeState(domain, editSnapshot(xml, { parent: step.parent }), SnapshotCreate.REDEFINE);
  }
}

async function layerBelow(step: { layer: string; above: string }): Promise<DiskSource> {
  const below = (await readLayers(step.above, 'qcow2'))[1];
  if (below?.path !== step.layer) throw new Error(`${step.above} does not stand on ${step.layer}`);
  const { path, format } = below;
  return { path, format, block: (await stat(path)).isBlockDevice() };
}
