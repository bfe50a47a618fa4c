/** The second half of a template's change, after its commit: new files take the place of the former ones. */
import { rename, rm } from 'node:fs/promises';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, syncDirectoryOf } from '@virtkeep/shared/files';
import type { DomainMetadata } from '../../domain-xml/index.ts';
import { patiently } from '../../libvirt/errors.ts';
import { writeMetadata } from '../../snapshots/index.ts';
import type { ProgressReporter } from '../context.ts';
import { type Relative, relativeOf } from './family.ts';

export interface TemplateChange {
  templateId: string;
  /** The template's new version. */
  version: number;
  cloneIds: string[];
  /** In this order: the clones' new overlays, then the template's new images. */
  files: { domainId: string; from: string; to: string }[];
}

/**
 * Brings the new world about, from wherever it is. Idempotent: a new file that is gone has taken its place. Nothing happens
 * while one of the domains runs: it would lose its disk under it.
 * @throws VirtkeepError domain_running, io_failed: tried again later
 */
export async function switchTemplate(
  libvirt: Libvirt,
  change: TemplateChange,
  signal: AbortSignal,
  progress?: ProgressReporter,
): Promise<void> {
  const ids = [change.templateId, ...change.cloneIds];
  const family = await patiently(signal, async () => {
    const found = new Map<string, Relative>();
    for (const id of ids) {
      const relative = await relativeOf(libvirt, id);
      if (relative) found.set(id, relative);
    }
    return found;
  });
  await refuseRunning([...family.values()], signal);
  progress?.total(change.files.length);
  for (const [index, file] of change.files.entries()) {
    throwIfAborted(signal);
    await replace(file, family.has(file.domainId));
    progress?.done(index + 1);
  }
  for (const id of change.cloneIds) {
    const parent = { id: change.templateId, version: change.version };
    await note(family.get(id), { parent }, signal);
  }
  await note(family.get(change.templateId), { templateVersion: change.version }, signal);
}

async function refuseRunning(family: Relative[], signal: AbortSignal): Promise<void> {
  for (const { domain, config } of family)
    if (await patiently(signal, () => domain.isActive()))
      throw new VirtkeepError('domain_running', { domain: config.name });
}

/** @param known its domain exists; without it the new file is nobody's */
async function replace({ from, to }: { from: string; to: string }, known: boolean): Promise<void> {
  try {
    if (await exists(from)) {
      if (known) await rename(from, to);
      else await rm(from, { force: true });
      await syncDirectoryOf(to);
    } else if (known && !(await exists(to)))
      throw new VirtkeepError('io_failed', {
        operation: 'replacing',
        path: to,
        reason: 'neither it nor its new content is there (is its pool mounted?)',
      });
  } catch (error) {
    if (known || errnoOf(error) !== 'ENOENT') throw fromIoError(error, 'replacing', to);
  }
}

async function note(
  relative: Relative | undefined,
  change: Partial<DomainMetadata>,
  signal: AbortSignal,
): Promise<void> {
  if (!relative) return;
  const { domain, config } = relative;
  await patiently(signal, () => writeMetadata(domain, { ...config.metadata, ...change }));
}
