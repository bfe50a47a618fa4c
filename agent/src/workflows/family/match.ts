/**
 * Whether the templates of this node fit a thin clone's backup (specification 2.1 rule 5, 2.3 rule 3): by the recorded
 * version, and by the content of the disks that the clone stands on, never by dates.
 */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest } from '../../archive/index.ts';
import { diskId, fingerprintOf } from '../../disks/index.ts';
import type { DomainConfig } from '../../domain-xml/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { readableRelative, relativeOf } from './family.ts';

export interface TemplateFault {
  /** As in the warnings of a backup. `template_disk_unchecked` hinders nothing. */
  key: 'template_missing' | 'template_incompatible' | 'template_disk_mismatch' | 'template_disk_unchecked';
  text: string;
}

export interface TemplateMatch {
  /** Null when there is none, or the backup is not of a thin clone. */
  templateId: string | null;
  /** Per target of the clone the template's file that its first layer stands on. */
  bases: Map<string, { path: string; format: string }>;
  faults: TemplateFault[];
}

type Standing = { target: string; base: NonNullable<Manifest['disks'][number]['base']> };

export interface TemplateDisk {
  path: string;
  format: string;
  /** Null when the file cannot be read. */
  fingerprint: string | null;
}

type Dependencies = Pick<WorkflowDependencies, 'libvirt' | 'settings'>;

/**
 * The template with the recorded id. When there is none: one that was restored under another id, known by its version and
 * the content of all its disks.
 * @throws LibvirtError; VirtkeepError canceled
 */
export async function matchTemplate(
  dependencies: Dependencies,
  manifest: Manifest,
  signal: AbortSignal,
): Promise<TemplateMatch> {
  const standing = standingDisks(manifest);
  if (standing.length === 0) return { templateId: null, bases: new Map(), faults: [] };
  const libvirt = dependencies.libvirt();
  const id = manifest.template?.domainId;
  const own = id ? await relativeOf(libvirt, id) : null;
  if (own) return judgeTemplate(manifest, own.config, await disksOf(dependencies, own.config, signal));
  if (standing.every(({ base }) => base.fingerprint !== undefined)) {
    for (const { uuid } of await libvirt.domains()) {
      const config = (await readableRelative(libvirt, uuid, null))?.config;
      if (!config?.metadata.template || !hasVersion(manifest, config)) continue;
      const found = judgeTemplate(manifest, config, await disksOf(dependencies, config, signal));
      if (found.faults.length === 0) return found;
    }
  }
  const text = `The template ${nameOf(manifest)} is not on this node; restore it first.`;
  return { templateId: null, bases: new Map(), faults: [{ key: 'template_missing', text }] };
}

/**
 * Refuses to restore a thin clone onto anything but what it stood on.
 * @throws VirtkeepError template_missing, template_mismatch
 */
export function requireMatch(manifest: Manifest, { faults }: TemplateMatch, filename: string): void {
  const template = nameOf(manifest);
  if (faults.some(({ key }) => key === 'template_missing'))
    throw new VirtkeepError('template_missing', { file: filename, template });
  const wrong = faults.filter(({ key }) => key !== 'template_disk_unchecked');
  if (wrong.length === 0) return;
  const reason = wrong.map(({ text }) => text.replace(/\.$/, '')).join('; ');
  throw new VirtkeepError('template_mismatch', { template, file: filename, reason });
}

/**
 * The match for a foreign archive: content that could not be compared counts as different. Otherwise an archive could get itself
 * restored onto any template by naming its path.
 */
export function provenOnly(manifest: Manifest, match: TemplateMatch): TemplateMatch {
  const unproven = standingDisks(manifest).filter(({ base }) => base.fingerprint === undefined);
  const faults = match.faults.map(fault =>
    fault.key === 'template_disk_unchecked' ? mismatch(fault.text) : fault,
  );
  const further = unproven.map(({ target }) =>
    mismatch(`The backup does not tell what ${target} stood on, and is not signed by this node.`),
  );
  return { ...match, faults: [...faults, ...further] };
}

/** Whether a domain is the template that a clone stood on; pure. @param disks the domain's, by target */
export function judgeTemplate(
  manifest: Manifest,
  config: Pick<DomainConfig, 'uuid' | 'name' | 'metadata'>,
  disks: readonly TemplateDisk[],
): TemplateMatch {
  const { name, metadata } = config;
  const faults: TemplateFault[] = [];
  const incompatible = (text: string) => faults.push({ key: 'template_incompatible', text });
  if (!metadata.template) incompatible(`${name} is not marked as a template any more.`);
  if (!hasVersion(manifest, config))
    incompatible(
      `The template ${name} has version ${metadata.templateVersion}; the backup needs ${manifest.template?.version}.`,
    );
  const bases: TemplateMatch['bases'] = new Map();
  for (const { target, base } of standingDisks(manifest)) {
    const found = findBase(base, disks);
    if (found.fault) faults.push({ ...found.fault, text: `The template ${name} ${found.fault.text}` });
    if (found.disk) bases.set(target, { path: found.disk.path, format: found.disk.format });
  }
  return { templateId: config.uuid, bases, faults };
}

/** The disk at the same place, or with the same id; when its content differs, any that has the content. */
function findBase(
  base: Standing['base'],
  disks: readonly TemplateDisk[],
): { disk?: TemplateDisk; fault?: TemplateFault } {
  const named =
    disks.find(({ path }) => path === base.path) ?? disks.find(({ path }) => diskId(path) === base.diskId);
  const fingerprint = base.fingerprint;
  if (fingerprint === undefined)
    return named ? { disk: named } : { fault: mismatch(`has no disk ${base.path}.`) };
  const same =
    named?.fingerprint === fingerprint ? named : disks.find(disk => disk.fingerprint === fingerprint);
  if (same) return { disk: same };
  if (named && named.format !== base.format)
    return {
      disk: named,
      fault: {
        key: 'template_disk_unchecked',
        text: `has the disk ${named.path} as ${named.format}, the clone stood on ${base.format}; only the versions could be compared.`,
      },
    };
  if (named?.fingerprint === null)
    return { fault: mismatch(`has a disk that cannot be read: ${named.path}.`) };
  return {
    fault: mismatch(
      named ? `has other content on the disk ${named.path} than it had.` : `has no disk ${base.path}.`,
    ),
  };
}

const mismatch = (text: string): TemplateFault => ({ key: 'template_disk_mismatch', text });

/** Disks of the backup that stand on a file outside of it. */
export function standingDisks(manifest: Manifest): Standing[] {
  return manifest.disks.flatMap(({ target, base }) => (base ? [{ target, base }] : []));
}

function hasVersion(manifest: Manifest, { metadata }: Pick<DomainConfig, 'metadata'>): boolean {
  const version = manifest.template?.version;
  return !version || version === String(metadata.templateVersion);
}

function nameOf({ template }: Manifest): string {
  return template?.name ?? template?.domainId ?? 'unknown';
}

async function disksOf(
  { settings: store }: Dependencies,
  { disks }: DomainConfig,
  signal: AbortSignal,
): Promise<TemplateDisk[]> {
  const found: TemplateDisk[] = [];
  for (const { device, path, format = 'raw' } of disks) {
    if (device !== 'disk' || path === undefined) continue;
    const fingerprint = await fingerprintOf(path, { signal, store }).catch(error => {
      throwIfAborted(signal);
      if (hasKey(error, 'io_failed')) return null;
      throw error;
    });
    found.push({ path, format, fingerprint });
  }
  return found;
}
