/**
 * Changes what is on the disks of a domain that is off. The programs work on overlays; only when all of them have succeeded is the
 * domain's definition given the overlays, all at once: before it has the disks of before, afterwards the changed ones, never half of
 * them. Then they are merged like those of any automatic state, also when the domain was started meanwhile.
 */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, syncFile } from '@virtkeep/shared/files';
import type { Result } from '@virtkeep/shared/operation-result';
import { changedSource, markSources, qemuImg, type SourceMark } from '../../disks/index.ts';
import { removePieces } from '../../images/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import { diskStates, planAutomaticState, withSources } from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import { baseDirectory, checkLayerPlace } from '../domain/away-layers.ts';
import { withMarks } from '../domain/forgotten-layers.ts';
import type { Effect } from '../effect.ts';
import { type GuestOperations, type OwnDisk, refuseActive } from './domain.ts';
import { runGuestfs } from './guestfs.ts';
import { withRoom } from './room.ts';

/** Images of a domain while they are changed. */
export interface OfflineImages {
  /** Runs a program of libguestfs on them. @returns its output @throws VirtkeepError guestfs_failed, timed_out, canceled */
  run(program: string, args: readonly string[]): Promise<string>;
  /** Files of the guest, one after the other; null when one of them is not there. */
  read(...paths: string[]): Promise<string | null>;
  /** A directory for files that the programs are given; it goes at the operation's end. */
  readonly directory: string;
  /** The overlays, in the order of the disks. */
  readonly overlays: readonly string[];
}

interface OfflineTarget {
  domain: Domain;
  name: string;
  disks: OwnDisk[];
  /** Completes "it cannot be …". */
  action: string;
  /** Layers of a VM whose disks are all devices may lie on a network file system. */
  allowNetworkLayers: boolean;
}

interface Overlay {
  targetDev: string;
  path: string;
}

type OverlayState = Extract<Effect, { type: 'automatic_state' }>;

/** The merge happens after the point of no return; what it does not manage is tried again. */
const MERGE_TIMEOUT_MS = 3_600_000;

/**
 * Runs `change` on the disks, makes it final and commits the operation with what `change` gives.
 * @throws VirtkeepError power_state_conflict when somebody started the domain meanwhile; the refusals of pools; what `change` throws
 */
export async function changeOffline(
  operations: GuestOperations,
  context: OperationContext,
  target: OfflineTarget,
  change: (images: OfflineImages) => Promise<Result>,
): Promise<void> {
  const directory = join(operations.scratchDirectory, `offline-${context.id}`);
  const marks = await markSources(target.disks.map(({ path }) => path));
  const state = await context.step('prepare', () => makeOverlays(operations, context, target, directory));
  const { overlays } = state;
  const result = await context.step('change', () =>
    change(imagesOf(operations, context, target.name, { overlays, directory })),
  );
  const merge = await context.step('apply', async () => {
    // what the programs wrote must outlast a power cut before the domain is told to use it
    for (const { path } of overlays) await syncFile(path);
    // from the commit on the guest may have written to them, so none is removed that was not merged
    const merged = context.effects.begin(state, 'success');
    await switchTo(operations, target, { overlays, marks }, context.signal);
    context.commit(result);
    return merged;
  });
  await context.step('merge', () => merge.undo(AbortSignal.timeout(MERGE_TIMEOUT_MS)));
}

/** Creates the overlays, and declares that they may be removed unless the domain uses them. */
async function makeOverlays(
  operations: GuestOperations,
  { id, effects, signal, warn }: OperationContext,
  { domain, name, disks, allowNetworkLayers }: OfflineTarget,
  directory: string,
): Promise<OverlayState> {
  const diskList = disks.map(({ targetDev, path, block }) => ({ targetDev, path, block, included: true }));
  const spare = await spareDirectory(operations, disks, signal);
  const plan = planAutomaticState(name, { operationId: id, mode: 'disks' }, diskList, spare);
  const overlays = plan.disks.map(({ targetDev, overlayPath }) => ({ targetDev, path: overlayPath! }));
  const type = 'automatic_state' as const;
  const state = { type, domainId: domain.uuid, name: plan.name, overlays, noted: true };
  effects.begin({ type: 'directory', path: directory, own: true }, 'always');
  await mkdir(directory, { recursive: true, mode: 0o700 }).catch(error => {
    throw fromIoError(error, 'making', directory);
  });
  const place = { domain: name, directory: spare, allowNetwork: allowNetworkLayers };
  const period = 'until the change is in its disks';
  const written = disks.map(({ block }) => ({ written: true, block }));
  await checkLayerPlace({ ...place, disks: written, period }, warn);
  effects.begin({ ...state, unusedIsNothing: true }, 'failure');
  for (const [index, { path, format }] of disks.entries()) {
    const overlay = overlays[index]!.path;
    await qemuImg('create', ['-q', '-f', 'qcow2', '-F', format, '-b', path, overlay], { signal });
  }
  return { ...state, overlays: await withMarks(overlays, true) };
}

/**
 * For overlays of block devices: where QEMU may read, since the guest may be started before they are merged.
 * @throws the refusals of pools
 */
async function spareDirectory(
  { pools, scratchDirectory }: GuestOperations,
  disks: readonly OwnDisk[],
  signal: AbortSignal,
): Promise<string> {
  const beside = disks.find(({ block }) => !block);
  if (beside) return dirname(beside.path);
  return baseDirectory(await pools(signal)) ?? scratchDirectory;
}

/** Gives the definition the overlays, unless the domain was used meanwhile: then what it wrote would be lost. */
async function switchTo(
  { libvirt }: GuestOperations,
  { domain, name, disks, action }: OfflineTarget,
  { overlays, marks }: { overlays: readonly Overlay[]; marks: SourceMark[] },
  signal: AbortSignal,
): Promise<void> {
  const refused = () =>
    new VirtkeepError('power_state_conflict', { domain: name, state: 'not what it was', action });
  const isUsed = async () => (await changedSource(marks)) !== undefined;
  await refuseActive(domain, name, action);
  const former = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const tops = diskStates(former);
  // a volume of libvirt's pools has no path there
  const isOther = disks.some(({ targetDev, path }) => (tops.get(targetDev)?.sourcePath ?? path) !== path);
  if (isOther || (await isUsed())) throw refused();
  throwIfAborted(signal);
  const sources = overlays.map(({ targetDev, path }) => [targetDev, { path, format: 'qcow2', block: false }]);
  await libvirt().defineDomain(withSources(former, Object.fromEntries(sources)));
  if (!(await isUsed()) && !(await writesBelow(domain, disks))) return;
  await libvirt().defineDomain(former);
  throw refused();
}

/** It was started between the look and the definition. */
async function writesBelow(domain: Domain, disks: readonly OwnDisk[]): Promise<boolean> {
  if (!(await domain.isActive())) return false;
  const tops = [...diskStates(await domain.xml()).values()].map(({ sourcePath }) => sourcePath);
  return disks.some(({ path }) => tops.includes(path));
}

/**
 * Completes what an agent of before, which did without the definition, left half done. A domain that was started meanwhile (by
 * libvirt itself, after a crash of the node) has written to its images since: what is still in the overlays must not come over that.
 */
export async function completeChange(
  libvirt: Libvirt,
  { domainId, paths }: { domainId?: string; paths: readonly string[] },
  { signal, warn }: { signal: AbortSignal; warn: (text: string) => void },
): Promise<void> {
  const isActive = (id: string) => unlessGone(() => libvirt.domain(id).isActive(), false);
  if (domainId === undefined || !(await isActive(domainId))) return commitOverlays(paths, signal);
  warn(
    `The change of the disks of ${domainId} was cut off and the VM was started before it could be completed: its file systems may hold a part of it. Check them, or restore a backup.`,
  );
  await removePieces(paths, signal);
}

/** Puts what overlays hold into the images below. Idempotent: one that is gone was put in before. */
export async function commitOverlays(overlays: readonly string[], signal: AbortSignal): Promise<void> {
  for (const path of overlays) {
    if (!(await exists(path))) continue;
    await qemuImg('commit', ['-q', '-f', 'qcow2', '-d', path], { signal });
    await removePieces([path], signal);
  }
}

function imagesOf(
  { forceTcg, log }: GuestOperations,
  { signal }: OperationContext,
  domain: string,
  { overlays, directory }: { overlays: readonly Overlay[]; directory: string },
): OfflineImages {
  const images = overlays.flatMap(({ path }) => ['--format=qcow2', '-a', path]);
  const paths = overlays.map(({ path }) => path);
  const run = (program: string, args: readonly string[]) =>
    withRoom(paths, signal, ending =>
      runGuestfs(program, [...images, ...args], { domain, signal: ending, forceTcg, log }),
    );
  return {
    directory,
    overlays: paths,
    run,
    read: (...paths) =>
      run('virt-cat', paths).catch(error => {
        if (/No such file or directory/.test(String(error?.params?.reason))) return null;
        throw error;
      }),
  };
}
