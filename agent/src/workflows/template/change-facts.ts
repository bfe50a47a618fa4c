/** What a change of a template decides on: the template and all its thin clones as they are now. */
import { realpath } from 'node:fs/promises';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Layer, readLayers } from '../../disks/index.ts';
import { isLent } from '../../domain-xml/index.ts';
import { backupTargetRefusal, type PoolRecord, poolOfPath } from '../../pools/index.ts';
import { foreignFiles, loadStates } from '../../snapshots/index.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import { type Relative, relativeOf, thinClonesOf } from '../family/family.ts';
import type { ChangeFacts, MemberDisk, MemberFacts } from './change-plan.ts';

/**
 * @param cloneId the clone that holds the changes
 * @param heldIds the domains that the operation holds; one that is not among them appeared meanwhile
 * @throws VirtkeepError domain_not_found, not_thin_clone, template_change_refused when the template is not there
 */
export async function readChangeFacts(
  libvirt: Libvirt,
  cloneId: string,
  heldIds: readonly string[],
  pools: readonly PoolRecord[],
): Promise<ChangeFacts> {
  const clone = await relativeOf(libvirt, cloneId);
  if (!clone) throw new VirtkeepError('domain_not_found', { id: cloneId });
  const { parent } = clone.config.metadata;
  if (!parent) throw new VirtkeepError('not_thin_clone', { domain: clone.config.name });
  const refuse = (name: string, reasons: string) =>
    new VirtkeepError('template_change_refused', { domain: name, reasons });
  const template = await relativeOf(libvirt, parent.id);
  if (!template) throw refuse(parent.id, 'it is not on this node');
  const clones = await thinClonesOf(libvirt, parent.id);
  const added = clones.find(({ config }) => !heldIds.includes(config.uuid));
  if (added) throw refuse(template.config.name, `${added.config.name} was cloned just now; try again`);
  return {
    template: await readMember(libvirt, template),
    clones: await Promise.all(clones.map(relative => readMember(libvirt, relative))),
    changingId: cloneId,
    foreign: await foreignFiles(libvirt, ...heldIds),
    refusalOf: path => refusalOf(path, pools),
  };
}

/** The template or a clone as it is now. @throws LibvirtError */
export async function readMember(libvirt: Libvirt, { domain, config }: Relative): Promise<MemberFacts> {
  const disks: MemberDisk[] = [];
  for (const disk of await resolveVolumes(libvirt, config.disks)) {
    const { device, type, path, targetDev, format = 'raw' } = disk;
    if (device !== 'disk' || path === undefined || isLent(disk, config.metadata)) continue;
    if (type !== 'file' && type !== 'block') continue;
    const realPath = await realOr(path);
    const layers = await realLayers(path, format);
    disks.push({ targetDev, path, realPath, format, block: type === 'block', layers });
  }
  return {
    id: config.uuid,
    name: config.name,
    running: await domain.isActive(),
    managedSave: await domain.hasManagedSave(),
    states: (await loadStates(domain)).map(({ name }) => name),
    metadata: config.metadata,
    disks,
  };
}

async function realLayers(path: string, format: string): Promise<Layer[]> {
  const layers = await readLayers(path, format).catch(() => []);
  return Promise.all(layers.map(async layer => ({ ...layer, path: await realOr(layer.path) })));
}

const realOr = (path: string): Promise<string> => realpath(path).catch(() => path);

function refusalOf(path: string, pools: readonly PoolRecord[]): string | null {
  const pool = poolOfPath(path, pools);
  return (pool && backupTargetRefusal(pool)?.message) ?? null;
}
