/**
 * Whether a template can be changed by one of its thin clones, and which files are made for it; pure (specification 4.7).
 * A disk of a clone that stands on none of the template's files is its own, and stays as it is.
 */
import { basename, dirname, join } from 'node:path';
import type { Layer } from '../../disks/index.ts';
import type { DomainMetadata } from '../../domain-xml/index.ts';
import { describeLoans, isLending } from '../../domain-xml/index.ts';

/** The template or one of its thin clones. */
export interface MemberFacts {
  id: string;
  name: string;
  running: boolean;
  managedSave: boolean;
  /** Names of the saved states. */
  states: string[];
  metadata: DomainMetadata;
  disks: MemberDisk[];
}

export interface MemberDisk {
  targetDev: string;
  /** As the definition names it, and without links. */
  path: string;
  realPath: string;
  format: string;
  block: boolean;
  /** Top to bottom, each named without links; empty when they cannot be read. */
  layers: readonly Layer[];
}

export interface ChangeFacts {
  template: MemberFacts;
  /** Every thin clone of it on this node, the changing one among them. */
  clones: MemberFacts[];
  /** The clone that holds the changes. */
  changingId: string;
  /** Files that domains outside of the family use, and which. */
  foreign: ReadonlyMap<string, string>;
  /** Why nothing may be written beside a file; null when it may. */
  refusalOf(path: string): string | null;
}

/** A file that is made beside the one it is to replace. */
export interface Replacement {
  domainId: string;
  from: string;
  to: string;
}

export interface NewTemplateDisk extends Replacement {
  targetDev: string;
  /** The template's former image, and the changing clone's on top of it. */
  former: MemberDisk;
  changed: MemberDisk;
}

export interface NewOverlay extends Replacement {
  backing: { path: string; format: string };
  virtualSize: number;
}

export interface ChangePlan {
  disks: NewTemplateDisk[];
  overlays: NewOverlay[];
  warnings: string[];
}

/** The plan, or every reason against it. @param operationId part of the names of the new files */
export function planChange(facts: ChangeFacts, operationId: string): ChangePlan | { reasons: string[] } {
  const { template, clones, changingId } = facts;
  const members = [template, ...clones];
  const reasons = [
    ...(template.metadata.template ? [] : [`${template.name} is not marked as a template`]),
    ...members.flatMap(whyNotNow),
    ...clones.flatMap(clone => whyNotSame(clone, template)),
    ...template.disks.flatMap(disk => whyNotReplaced(disk, template, facts)),
  ];
  const stands = standing(template, clones, reasons);
  for (const { clone, disk } of stands) reasons.push(...whyNotReplaced(disk, clone, facts));
  const unreadable = members.flatMap(({ name, disks }) =>
    disks
      .filter(({ layers }) => layers.length === 0)
      .map(disk => `${disk.targetDev} of ${name} cannot be read`),
  );
  reasons.push(...unreadable);
  const changing = stands.filter(({ clone }) => clone.id === changingId);
  if (changing.length === 0 && reasons.length === 0)
    reasons.push('no disk of the clone stands on a disk of the template');
  if (reasons.length > 0) return { reasons: [...new Set(reasons)] };
  return planFiles(template, stands, changingId, operationId);
}

function whyNotNow({ name, running, managedSave, states, metadata }: MemberFacts): string[] {
  const reasons: string[] = [];
  if (running) reasons.push(`${name} is running`);
  if (managedSave) reasons.push(`${name} has its memory saved; start it once and shut it down`);
  if (states.length > 0) reasons.push(`${name} has saved states (${states.join(', ')})`);
  if (metadata.looseLayers?.length)
    reasons.push(`a deleted saved state of ${name} is not merged yet; back it up once`);
  if (isLending(metadata)) reasons.push(`disks of ${name} are lent: ${describeLoans(metadata.loans!, {})}`);
  return reasons;
}

function whyNotSame({ name, metadata }: MemberFacts, template: MemberFacts): string[] {
  const [origin, now] = [metadata.parent?.version, template.metadata.templateVersion];
  return origin === now
    ? []
    : [`${name} was made of version ${origin ?? 'unknown'} of the template, which has ${now}`];
}

/** A file that takes the place of another one needs a directory of ours, and nobody else who has the old one. */
function whyNotReplaced(disk: MemberDisk, { name }: MemberFacts, facts: ChangeFacts): string[] {
  const what = `${disk.targetDev} of ${name} (${disk.path})`;
  if (disk.block) return [`${what} is a device`];
  if (disk.layers.some(({ encrypted }) => encrypted)) return [`${what} is encrypted`];
  if (disk.layers.some(layer => layer.dataFile || layer.unknownFeatures))
    return [`${what} keeps data in another file, or uses features that are not known`];
  const refusal = facts.refusalOf(disk.realPath);
  const user = facts.foreign.get(disk.path) ?? facts.foreign.get(disk.realPath);
  return [
    ...(refusal === null ? [] : [`${what}: ${refusal.replace(/\.$/, '')}`]),
    ...(user === undefined ? [] : [`${what} is used by ${user}`]),
  ];
}

interface Standing {
  clone: MemberFacts;
  disk: MemberDisk;
  base: MemberDisk;
}

/** The clones' disks that stand on the template's; what is not one overlay on one file is a reason. */
function standing(template: MemberFacts, clones: MemberFacts[], reasons: string[]): Standing[] {
  for (const { targetDev, layers } of template.disks)
    if (layers.length > 1 || layers[0]?.backingFile !== undefined)
      reasons.push(`${targetDev} of ${template.name} stands on other files`);
  const found: Standing[] = [];
  for (const clone of clones) {
    for (const disk of clone.disks) {
      // headers and definitions may come to the same file by different links
      const at = disk.layers.findIndex(({ path }) => template.disks.some(base => base.realPath === path));
      if (at < 0) continue;
      const base = template.disks.find(({ realPath }) => realPath === disk.layers[at]!.path)!;
      if (at === 0) reasons.push(`${disk.targetDev} of ${clone.name} is the template's own file`);
      else if (at > 1) reasons.push(`${disk.targetDev} of ${clone.name} has more than one layer of its own`);
      else found.push({ clone, disk, base });
    }
  }
  return found;
}

function planFiles(
  template: MemberFacts,
  stands: Standing[],
  changingId: string,
  operationId: string,
): ChangePlan {
  let count = 0;
  const beside = (path: string) => {
    count += 1;
    return join(dirname(path), `.virtkeep-${operationId}-${count}.new`);
  };
  const disks: NewTemplateDisk[] = [];
  const warnings: string[] = [];
  for (const former of template.disks) {
    const { targetDev, realPath } = former;
    const changed = stands.find(({ clone, base }) => clone.id === changingId && base === former)?.disk;
    if (changed)
      disks.push({
        domainId: template.id,
        from: beside(realPath),
        to: realPath,
        targetDev,
        former,
        changed,
      });
    else
      warnings.push(
        `${targetDev} of the template (${basename(former.path)}) stays as it is: the clone does not have it.`,
      );
  }
  const sizes = new Map(disks.map(({ former, changed }) => [former, virtualSizeOf(changed)]));
  const overlays = stands.map(({ clone, disk, base }) => ({
    domainId: clone.id,
    from: beside(disk.realPath),
    to: disk.realPath,
    backing: { path: base.path, format: base.format },
    virtualSize: Math.max(virtualSizeOf(disk), sizes.get(base) ?? virtualSizeOf(base)),
  }));
  return { disks, overlays, warnings };
}

export const virtualSizeOf = ({ layers }: Pick<MemberDisk, 'layers'>): number => layers[0]!.virtualSize;
