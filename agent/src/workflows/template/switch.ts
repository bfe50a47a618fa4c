/** The second half of a template's change, after its commit: new files take the place of the former ones. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { isEmptyOverlay, readImageHeader } from '../../disks/index.ts';
import type { DomainMetadata } from '../../domain-xml/index.ts';
import { type ImageDependencies, removePieces, replaceImages } from '../../images/index.ts';
import { patiently } from '../../libvirt/errors.ts';
import { writeMetadata } from '../../snapshots/index.ts';
import type { ProgressReporter } from '../context.ts';
import type { TemplateChange } from '../effect.ts';
import { type Relative, relativeOf } from '../family/family.ts';
import { readMember } from './change-facts.ts';
import type { MemberFacts } from './change-plan.ts';
import { makeOverlay } from './images.ts';

interface SwitchOptions {
  signal: AbortSignal;
  warn: (text: string) => void;
  progress?: ProgressReporter;
}

/**
 * Brings the new world about, from wherever it is. Idempotent: a new file that is gone has taken its place. Nothing happens
 * while one of the domains runs: it would lose its disk under it; nor while saved memory, a saved state or a layer that somebody
 * has made since goes with a former file.
 * @throws VirtkeepError domain_running, image_in_use, io_failed: tried again later
 */
export async function switchTemplate(
  images: ImageDependencies,
  change: TemplateChange,
  options: SwitchOptions,
): Promise<void> {
  const { signal } = options;
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
  await replaceAll(images, change, family, options);
  for (const id of change.cloneIds) {
    const parent = { id: change.templateId, version: change.version };
    await note(family.get(id), { parent }, signal);
  }
  await note(family.get(change.templateId), { templateVersion: change.version }, signal);
  // last: a domain that is defined again until then has its new file
  const pieces = change.files.flatMap(({ from }) => [from, anewBeside(from)]);
  await removePieces(pieces, signal);
}

/** Those that exist, by their ids. */
type Family = ReadonlyMap<string, Relative>;

async function refuseRunning(family: Relative[], signal: AbortSignal): Promise<void> {
  for (const { domain, config } of family)
    if (await patiently(signal, () => domain.isActive()))
      throw new VirtkeepError('domain_running', { domain: config.name });
}

/** Until the commit the operation refused all this; who did it since, by other means, decides whether to keep it. */
async function refuseKept(
  images: ImageDependencies,
  { files }: TemplateChange,
  family: Family,
  signal: AbortSignal,
): Promise<void> {
  const places = new Set(files.map(({ to }) => to));
  for (const [id, relative] of family) {
    const own = files.find(({ domainId }) => domainId === id);
    if (!own) continue;
    const member = await patiently(signal, () => readMember(images.libvirt(), relative));
    const kept = keptOf(member, own.to, places);
    if (kept) throw new VirtkeepError('image_in_use', kept);
  }
}

/** An image that is to be replaced, and what of the domain goes with its former content alone. */
function keptOf(
  { name, managedSave, states, disks }: MemberFacts,
  own: string,
  places: ReadonlySet<string>,
): { path: string; user: string } | null {
  if (managedSave) return { path: own, user: `the saved memory of ${name}` };
  if (states.length > 0) return { path: own, user: `the saved states of ${name} (${states.join(', ')})` };
  for (const { path: top, realPath, layers } of disks) {
    const below = places.has(realPath) ? undefined : layers.find(({ path }) => places.has(path));
    if (below) return { path: below.path, user: `${top}, which stands on it` };
  }
  return null;
}

type Replacement = Pick<TemplateChange['files'][number], 'from' | 'to'>;

/**
 * Puts the new files of domains that exist in their places; files of other domains belong to nobody. Before the commit it was
 * proven that only the family uses the old files. So neither a node that does not answer now nor the disk of a clone that was
 * undefined since then delays this.
 */
async function replaceAll(
  images: ImageDependencies,
  change: TemplateChange,
  family: Family,
  { signal, warn, progress }: SwitchOptions,
): Promise<void> {
  const { templateId, cloneIds, files } = change;
  const due = await dueOf(change, family);
  if (due.length > 0) await refuseKept(images, change, family, signal);
  const templates = due.filter(({ to }) => isTemplates(change, to));
  const anew = await spoiledOverlays(change, templates, family, signal);
  const all: Replacement[] = [];
  for (const file of anew) all.push(await makeAnew(file, signal));
  all.push(...due);
  let done = files.length - all.length;
  progress?.total(files.length);
  const onReplaced = () => {
    done += 1;
    progress?.done(done);
  };
  await patiently(signal, () => {
    const left = all.slice(done - (files.length - all.length));
    return replaceImages(images, left, {
      leaving: [templateId, ...cloneIds],
      leavingFiles: files.map(({ to }) => to),
      arriving: files.map(({ from }) => from),
      unanswered: 'take',
      signal,
      onReplaced,
    });
  });
  for (const { to } of anew)
    warn(
      `${to} was written to while its template was being changed; it is empty again, as that of every clone.`,
    );
}

const isTemplates = ({ templateId, files }: TemplateChange, path: string): boolean =>
  files.some(({ domainId, to }) => domainId === templateId && to === path);

/** The new files that have not taken their places. Clones stand on the template's also when its domain is gone. */
async function dueOf({ templateId, files }: TemplateChange, family: Family): Promise<Replacement[]> {
  const due: Replacement[] = [];
  for (const { domainId, from, to } of files) {
    const isMade = await exists(from);
    if (isMade && (family.has(domainId) || (domainId === templateId && family.size > 0)))
      due.push({ from, to });
    if (!isMade && family.has(domainId) && !(await exists(to)))
      throw new VirtkeepError('io_failed', {
        operation: 'replacing',
        path: to,
        reason: 'neither it nor its new content is there (is its pool mounted?)',
      });
  }
  return due;
}

/**
 * Overlays that took their places before the images below them, and were written to since, because their domain was started in
 * between (by virsh, or with the node after a crash). Together with the new image below they would hold a mixture of both disks.
 */
async function spoiledOverlays(
  { templateId, files }: TemplateChange,
  templates: readonly Replacement[],
  family: Family,
  signal: AbortSignal,
): Promise<Replacement[]> {
  const found: Replacement[] = [];
  if (templates.length === 0) return found;
  for (const { domainId, from, to } of files) {
    if (domainId === templateId || !family.has(domainId) || (await exists(from))) continue;
    if (!(await isEmptyOverlay(to, { signal }))) found.push({ from, to });
  }
  return found;
}

/** Name of an overlay that is created again; under the name of the first one it would count as complete. */
const anewBeside = (from: string): string => `${from}.anew`;

async function makeAnew({ from, to }: Replacement, signal: AbortSignal): Promise<Replacement> {
  const { backingPath, backingFormat, virtualSize } = await readImageHeader(to);
  const path = anewBeside(from);
  await removePieces([path], signal);
  await makeOverlay(path, { path: backingPath!, format: backingFormat! }, virtualSize, signal);
  return { from: path, to };
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
