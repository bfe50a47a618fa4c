/** The backup that a foreign VM gives: its definition, with its disks at places of their own, and what goes into the archive. Pure but for ids. */
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../domain-xml/index.ts';
import { type Appliance, domainXmlOf } from '../../ovf/index.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { type ArchivePlan, planArchive } from '../backup/members.ts';
import { networksOf, targetHere } from '../config-restore/networks.ts';
import type { NodeFacts } from '../config-restore/node-facts.ts';

export interface ForeignVm {
  appliance: Appliance;
  /** Names of the data of each of its disks, by the index of the disk. */
  devices: readonly string[];
  /** Of the archive. */
  pool: PoolRecord;
  virtio: boolean;
}

export interface ImportedDisk {
  /** Name of its data. */
  device: string;
  /** Where it would lie on this node. */
  path: string;
  sizeBytes: number;
}

export interface PlannedImport {
  pool: PoolRecord;
  disks: ImportedDisk[];
  archive: ArchivePlan;
  /** Sizes of all disks. */
  totalBytes: number;
  warnings: string[];
}

/** The same but for the ids of the VM and its disks, which are new. Each disk has data, and a capacity. */
export function planImport({ appliance, devices, pool, virtio }: ForeignVm, facts: NodeFacts): PlannedImport {
  const ids = devices.map(() => newId());
  const pathOf = (index: number) => join(pool.path!, `${ids[index]}.qcow2`);
  const { xml, disks, warnings } = domainXmlOf(appliance, {
    ...targetHere(networksOf(appliance), facts),
    uuid: newId(),
    virtio,
    withDisks: true,
    diskPathOf: pathOf,
  });
  const config = parseDomain(xml, appliance.name);
  const imported = disks.map(({ index, path, targetDev, capacityBytes }) => ({
    id: ids[index]!,
    device: devices[index]!,
    path,
    targetDev,
    sizeBytes: capacityBytes!,
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
      images: [],
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
    sizes: new Map(),
    continued: null,
  });
  return {
    pool,
    disks: imported,
    archive,
    totalBytes: imported.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    warnings: warnings.map(({ element, text }) => `${element}: ${text}`),
  };
}
