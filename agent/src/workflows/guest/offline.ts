/**
 * Changes what is on the disks of a domain that is off. The programs work on overlays; only when all of them have succeeded is
 * what they wrote put into the images, so that a failure, a cancel or a crash before leaves the disks as they were.
 */
import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { qemuImg } from '../../disks/index.ts';
import { removePieces } from '../../images/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import { changedSource, markSources } from '../backup/source-guard.ts';
import type { OperationContext } from '../context.ts';
import { type GuestOperations, type OwnDisk, refuseActive } from './domain.ts';
import { runGuestfs } from './guestfs.ts';

/** Images of a domain while they are changed. */
export interface OfflineImages {
  /** Runs a program of libguestfs on them. @returns its output @throws VirtkeepError guestfs_failed, timed_out, canceled */
  run(program: string, args: readonly string[]): Promise<string>;
  /** Files of the guest, one after the other; null when one of them is not there. */
  read(...paths: string[]): Promise<string | null>;
  /** A directory for files that the programs are given; it goes at the operation's end. */
  readonly directory: string;
}

/**
 * Runs `change` on the disks and makes it final.
 * @param action completes "it cannot be …"
 * @throws VirtkeepError power_state_conflict when somebody started the domain meanwhile; what `change` throws
 */
export async function changeOffline<T>(
  operations: GuestOperations,
  context: OperationContext,
  target: { domain: Domain; name: string; disks: OwnDisk[]; action: string },
  change: (images: OfflineImages) => Promise<T>,
): Promise<T> {
  const { domain, name, disks, action } = target;
  const { signal } = context;
  const directory = join(operations.scratchDirectory, `offline-${context.id}`);
  const marks = await markSources(disks.map(({ path }) => path));
  const overlays = disks.map(({ targetDev }) => join(directory, `${targetDev}.qcow2`));
  await context.step('prepare', async () => {
    context.effects.begin({ type: 'directory', path: directory, own: true }, 'always');
    await mkdir(directory, { recursive: true, mode: 0o700 }).catch(error => {
      throw fromIoError(error, 'making', directory);
    });
    for (const [index, { path, format }] of disks.entries())
      await qemuImg('create', ['-q', '-f', 'qcow2', '-F', format, '-b', path, overlays[index]!], { signal });
  });
  const result = await context.step('change', () =>
    change(imagesOf(operations, context, name, overlays, directory)),
  );
  await context.step('apply', async () => {
    await refuseActive(domain, name, action);
    if ((await changedSource(marks)) !== undefined)
      throw new VirtkeepError('power_state_conflict', { domain: name, state: 'not what it was', action });
    const change = { type: 'changed_disks', domainId: domain.uuid, paths: overlays } as const;
    const effect = context.effects.begin(change, 'failure');
    // from here on it is completed, also by the next run of the agent
    await commitOverlays(overlays, new AbortController().signal);
    effect.keep();
  });
  return result;
}

/**
 * Completes a change that was cut off. A domain that was started meanwhile (by libvirt itself, after a crash of the node) has
 * written to its images since: what is still in the overlays must not come over that.
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
    const isThere = await stat(path).then(
      () => true,
      error => {
        if (errnoOf(error) === 'ENOENT') return false;
        throw fromIoError(error, 'looking at', path);
      },
    );
    if (!isThere) continue;
    await qemuImg('commit', ['-q', '-f', 'qcow2', '-d', path], { signal });
    await removePieces([path], signal);
  }
}

function imagesOf(
  { forceTcg, log }: GuestOperations,
  { signal }: OperationContext,
  domain: string,
  overlays: string[],
  directory: string,
): OfflineImages {
  const images = overlays.flatMap(path => ['--format=qcow2', '-a', path]);
  const run = (program: string, args: readonly string[]) =>
    runGuestfs(program, [...images, ...args], { domain, signal, forceTcg, log });
  return {
    directory,
    run,
    read: (...paths) =>
      run('virt-cat', paths).catch(error => {
        if (/No such file or directory/.test(String(error?.params?.reason))) return null;
        throw error;
      }),
  };
}
