/** Reads from libvirt and the images' headers what merging and reverting decide upon. */
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { exists } from '@virtkeep/shared/files';
import { readLayers } from '../disks/index.ts';
import { parseDomain } from '../domain-xml/index.ts';
import { unlessGone } from '../libvirt/domains.ts';
import { isNoDomain } from '../libvirt/errors.ts';
import { loadStates } from './load.ts';
import type { ChainPicture, LiveTop } from './picture.ts';
import { diskStates } from './state-xml.ts';

export interface Look {
  domain: Domain;
  picture: ChainPicture;
}

/**
 * The domain's disks and states as they are now; null when there is no such domain.
 * @param foreign files that others use, from `foreignFiles`
 * @throws LibvirtError, VirtkeepError io_failed
 */
export function lookAt(
  libvirt: Libvirt,
  domainId: string,
  foreign: ReadonlyMap<string, string>,
): Promise<Look | null> {
  return unlessGone(async () => {
    const domain = await libvirt.domainByUuid(domainId);
    return { domain, picture: await pictureOf(domain, foreign) };
  }, null);
}

async function pictureOf(domain: Domain, foreign: ReadonlyMap<string, string>): Promise<ChainPicture> {
  const running = await domain.isActive();
  const live = running ? await domain.xml() : null;
  const persistent = await domain.isPersistent();
  const config = persistent ? await domain.xml(DomainXml.INACTIVE) : null;
  const states = await loadStates(domain);
  const { metadata } = parseDomain(live ?? config ?? '', domain.name);
  const liveTops = live === null ? new Map<string, LiveTop>() : await liveTopsOf(domain, live);
  const configTops = config === null ? new Map<string, string>() : topsOf(config);
  const files = new Files();
  for (const xml of [live, config]) if (xml !== null) await files.addDisks(xml);
  for (const { overlays, frozen, frozenFormats = {}, memoryPath } of states) {
    for (const [target, overlay] of Object.entries(overlays)) {
      await files.addChain(overlay, 'qcow2');
      if (frozen[target]) await files.addChain(frozen[target], frozenFormats[target]);
    }
    if (memoryPath !== null) await files.addPlain(memoryPath);
  }
  for (const { path, overlay, merging } of metadata.looseLayers ?? []) {
    if (merging !== undefined) await files.addChain(merging, 'qcow2');
    await files.addChain(path, overlay ? 'qcow2' : 'raw');
  }
  return {
    domainId: domain.uuid,
    power: running ? 'running' : 'off',
    persistent,
    memorySaved: !running && (await domain.hasManagedSave()),
    live: liveTops,
    config: configTops,
    states,
    files: files.found,
    metadata,
    foreign,
  };
}

async function liveTopsOf(domain: Domain, xml: string): Promise<Map<string, LiveTop>> {
  const tops = new Map<string, LiveTop>();
  for (const [targetDev, { sourcePath, mirror }] of diskStates(xml)) {
    if (sourcePath === null) continue;
    const job = mirror !== null || (await domain.blockJobInfo(targetDev)) !== null;
    tops.set(targetDev, { path: sourcePath, mirror, job });
  }
  return tops;
}

function topsOf(xml: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const [targetDev, { sourcePath }] of diskStates(xml))
    if (sourcePath !== null) found.set(targetDev, sourcePath);
  return found;
}

/** The existing files and what each stands on; headers are read once. */
class Files {
  readonly found = new Map<string, string | null>();

  async addDisks(domainXml: string): Promise<void> {
    for (const { sourcePath, driverType } of diskStates(domainXml).values())
      if (sourcePath !== null) await this.addChain(sourcePath, driverType ?? 'raw');
  }

  /** @param format of the top; a file without one is not looked into: its first bytes may be the guest's. */
  async addChain(top: string, format: string | undefined): Promise<void> {
    if (this.found.has(top) || !(await exists(top))) return;
    const layers = await readLayers(top, format ?? 'raw');
    for (const [index, { path }] of layers.entries()) {
      if (!this.found.has(path)) this.found.set(path, layers[index + 1]?.path ?? null);
    }
  }

  async addPlain(path: string): Promise<void> {
    if (!this.found.has(path) && (await exists(path))) this.found.set(path, null);
  }
}

/**
 * Files that other domains than the given ones use, and which: their disks with all layers, what they have attached, what
 * their saved states keep, what their saved memory goes on with. Reads the XML of every other domain.
 * @throws LibvirtError
 */
export async function foreignFiles(libvirt: Libvirt, ...domainIds: string[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const other of await libvirt.domains()) {
    if (domainIds.includes(other.uuid)) continue;
    const user = `the domain ${other.name}`;
    try {
      for (const xml of await definitionsOf(other)) {
        for (const { path } of parseDomain(xml, other.name).metadata.attachments) found.set(path, user);
        for (const { sourcePath, driverType } of diskStates(xml).values()) {
          if (sourcePath === null) continue;
          found.set(sourcePath, user);
          if (driverType === 'qcow2')
            for (const { path } of await readLayers(sourcePath, driverType).catch(() => []))
              found.set(path, user);
        }
      }
      for (const { frozen, overlays } of await loadStates(other))
        for (const target of Object.keys(overlays)) if (frozen[target]) found.set(frozen[target], user);
    } catch (error) {
      if (!isNoDomain(error)) throw error;
    }
  }
  return found;
}

/** As it runs, as it is defined, and as its saved memory knows it. */
async function definitionsOf(domain: Domain): Promise<Set<string>> {
  const found = new Set([await domain.xml(), await domain.xml(DomainXml.INACTIVE)]);
  if (await domain.hasManagedSave()) found.add(await domain.managedSaveXml());
  return found;
}
