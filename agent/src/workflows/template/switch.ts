/** The second half of a template's change, after its commit: new files take the place of the former ones. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import type { DomainMetadata } from '../../domain-xml/index.ts';
import { type ImageDependencies, removePieces, replaceImages } from '../../images/index.ts';
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
 * @throws VirtkeepError domain_running, image_in_use, io_failed: tried again later
 */
export async function switchTemplate(
  images: ImageDependencies,
  change: TemplateChange,
  signal: AbortSignal,
  progress?: ProgressReporter,
): Promise<void> {
  const ids = [change.templateId, ...change.cloneIds];
  const family = await patiently(signal, async () => {
    const found = new Map<string, Relative>();
    for (const id of ids) {
      const relative = await relativeOf(images.libvirt(), id);
      if (relative) found.set(id, relative);
    }
    return found;
  });
  await refuseRunning([...family.values()], signal);
  await replaceAll(images, change, new Set(family.keys()), signal, progress);
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

/**
 * Puts the new files in their places, those of domains that exist; the others are nobody's. That only the family uses the
 * former ones was proven before the commit, so that a node which does not answer now holds nothing up.
 */
async function replaceAll(
  images: ImageDependencies,
  { templateId, cloneIds, files }: TemplateChange,
  known: ReadonlySet<string>,
  signal: AbortSignal,
  progress?: ProgressReporter,
): Promise<void> {
  const due: { from: string; to: string }[] = [];
  const unclaimed: string[] = [];
  for (const { domainId, from, to } of files) {
    const isMade = await exists(from);
    if (isMade && known.has(domainId)) due.push({ from, to });
    else if (isMade) unclaimed.push(from);
    else if (known.has(domainId) && !(await exists(to)))
      throw new VirtkeepError('io_failed', {
        operation: 'replacing',
        path: to,
        reason: 'neither it nor its new content is there (is its pool mounted?)',
      });
  }
  let done = files.length - due.length;
  progress?.total(files.length);
  const onReplaced = () => {
    done += 1;
    progress?.done(done);
  };
  const leaving = [templateId, ...cloneIds];
  await patiently(signal, () => {
    const left = due.slice(done - (files.length - due.length));
    return replaceImages(images, left, { leaving, unanswered: 'take', signal, onReplaced });
  });
  await removePieces(unclaimed, signal);
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
