/** The backup that a foreign VM gives: its definition, with its disks at places of their own, and what goes into the archive. Pure but for ids. */
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../domain-xml/index.ts';
import { type Appliance, domainXmlOf, type NetworkTarget } from '../../ovf/index.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { withoutPlaces } from '../archives/places.ts';
import { type ArchivePlan, planArchive } from '../backup/members.ts';
import { networksOf, targetHere } from '../config-restore/networks.ts';
import type { NodeFacts } from '../config-restore/node-facts.ts';
import { definedDomain } from './definition.ts';
import { placeImages } from './drive-images.ts';
import type { ForeignDefinition, ForeignImage } from './foreign.ts';

export interface ForeignVm {
  appliance: Appliance;
  definition?: ForeignDefinition | undefined;
  /** What the guest sees of each of its disks, by the index of the disk. */
  sizesBytes: readonly number[];
  /** What is in its drives, by the index of the drive. */
  images?: readonly (ForeignImage | undefined)[];
  /** Of the archive. */
  pool: PoolRecord;
  virtio: boolean;
  /** Its drivers of virtio were put into it. */
  hasDrivers?: boolean;
  /** Chosen ones, by the names of the file. */
  networks: Readonly<Record<string, NetworkTarget>>;
}

export interface ImportedDisk {
  /** Among the appliance's disks. */
  index: number;
  /** Where it would lie on this node. */
  path: string;
  sizeBytes: number;
}

export interface PlannedImport {
  pool: PoolRecord;
  disks: ImportedDisk[];
  /** By the paths where they would lie on this node. */
  images: ReadonlyMap<string, ForeignImage>;
  archive: ArchivePlan;
  /** Sizes of all disks and images. */
  totalBytes: number;
  warnings: string[];
}

/** The same but for the ids of the VM and its disks, which are new. No disk has a fault. */
export function planImport(
  { appliance, definition, sizesBytes, images = [], pool, virtio, hasDrivers = false, networks }: ForeignVm,
  facts: NodeFacts,
): PlannedImport {
  const ids = sizesBytes.map(() => newId());
  const pathOf = (index: number) => join(pool.path!, `${ids[index]}.qcow2`);
  const here = targetHere(networksOf(appliance), facts);
  const placed = placeImages(images, pool);
  const uuid = newId();
  const { xml, disks, warnings } = definition
    ? definedDomain(definition, { uuid, virtio, networks, pathOf }, facts)
    : domainXmlOf(appliance, {
        ...here,
        networks: { ...here.networks, ...networks },
        uuid,
        virtio,
        hasDrivers,
        withDisks: true,
        diskPathOf: pathOf,
        drivePathOf: index => placed.paths[index],
      });
  const config = parseDomain(xml, appliance.name);
  const imported = disks.map(({ index, path, targetDev }) => ({
    id: ids[index]!,
    index,
    path,
    targetDev,
    sizeBytes: sizesBytes[index]!,
  }));
  const layerOf = ({ path, sizeBytes }: ImportedDisk) => ({
    ...{ path, format: 'raw', frozenBy: null, madeBy: null },
    ...{ virtualSize: sizeBytes, allocatedSize: sizeBytes, fileSize: sizeBytes },
  });
  const archive = planArchive({
    config,
    xml,
    content: {
      disks: imported.map(({ id, path, targetDev }) => ({
        config: config.disks.find(disk => disk.targetDev === targetDev)!,
        ...{ id, path, pool, format: 'raw', block: false, writable: true },
      })),
      images: config.disks
        .filter(({ path }) => placed.images.has(path ?? ''))
        .map(({ targetDev, path }) => ({ targetDev, path: path!, pool, included: true })),
      luns: [],
      recorded: [],
      warnings: [],
    },
    chains: new Map(imported.map(disk => [disk.targetDev, { layers: [layerOf(disk)], base: null }])),
    states: [],
    template: null,
    nvram: null,
    tpm: null,
    stateFirmware: new Map(),
    automatic: null,
    consistency: 'crash',
    sizes: new Map(
      [...placed.images].map(([path, { sizeBytes }]) => [
        path,
        { fileSize: sizeBytes, allocatedSize: sizeBytes },
      ]),
    ),
    continued: null,
  });
  return {
    pool,
    disks: imported,
    images: placed.images,
    archive: { ...archive, manifest: withoutPlaces(archive.manifest) },
    totalBytes: [...imported, ...placed.images.values()].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    warnings: warnings.map(({ element, text }) => `${element}: ${text}`),
  };
}
