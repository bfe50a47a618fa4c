/** What the inventory tells of an archive. */
import { lstat } from 'node:fs/promises';
import { basename } from 'node:path';
import { isPackedAppliance, openVirtnbd } from '../../appliance/index.ts';
import { type Archive, openArchive } from '../../archive/index.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { systemsOf } from '../../ovf/index.ts';
import { type ArchiveSummary, backupTypeOf, type ReadArchive } from '../../pools/index.ts';
import { definitionTypeOf, readDefinitionFile } from '../config-restore/definition-file.ts';
import { listedStates } from '../config-restore/virtnbd-state.ts';
import { describeForeign } from '../foreign-archive/describe.ts';
import { describeImage } from '../import-disk/image-file.ts';
import { foreignSummaryOf, summaryOf } from './backup-file.ts';

/**
 * By its manifest, or by what stands in the place of one. Of one stream of zstd, and of an OVA that is packed as a whole, nothing is known before it is asked for: a small one may
 * hold terabytes.
 */
export const readArchive: ReadArchive = async (path, signal, isThorough) => {
  const type = definitionTypeOf(path);
  if (type === 'virtnbdbackup') return await readVirtnbd(path, signal);
  if (type === 'OVA' && !isThorough && (await isPackedAppliance(path))) return null;
  if (type !== undefined && type !== 'xml') return await readDescriptor(path, type, signal);
  if (backupTypeOf(path) === 'disk') return { image: await describeImage(path, signal) };
  // Older states of a damaged one can still be restored: it is shown with them and with its damage.
  const glance = await openArchive(path, signal, { salvage: true, holding: 'none' });
  try {
    if (glance.manifest) return { ...summaryOf(glance.manifest), ...damageOf(glance.damage) };
    if (!glance.isUnread) return await readForeign(glance, signal);
  } finally {
    await glance.close();
  }
  if (!isThorough) return null;
  const archive = await openArchive(path, signal, { salvage: true, holding: 'look' });
  try {
    return await readForeign(archive, signal);
  } finally {
    await archive.close();
  }
};

/** Of several VMs none is the one that the file is of. */
async function readDescriptor(
  path: string,
  type: 'OVF' | 'OVA' | 'vma',
  signal: AbortSignal,
): Promise<Partial<ArchiveSummary>> {
  const file = await readDefinitionFile({ path, filename: basename(path) }, type, { signal });
  if (file.type === 'xml') return {};
  if (file.type === 'vma') return { domainName: file.appliance.name };
  const systems = systemsOf(file.envelope);
  // the files of an OVA are in it
  const parts = type === 'OVF' ? [...file.envelope.files.values()].flatMap(({ paths }) => paths) : [];
  return { domainName: systems.length === 1 ? systems[0]!.name : '', parts };
}

/** Of the VM what the newest of its definitions says. */
async function readVirtnbd(path: string, signal: AbortSignal): Promise<Partial<ArchiveSummary>> {
  const backup = await openVirtnbd(path, signal);
  try {
    const { uuid, name } = parseDomain(await backup.readDefinition(backup.states.at(-1)), path);
    const [first] = backup.states;
    const states = listedStates(backup);
    return { domainId: uuid, domainName: name, states, ...(first && { created: first.written }) };
  } finally {
    await backup.close();
  }
}

const damageOf = (damage: string | null) =>
  damage === null ? {} : { damage, canBeIncremental: false, requiredStates: [] };

async function readForeign(archive: Archive, signal: AbortSignal): Promise<ArchiveSummary> {
  const { mtime } = await lstat(archive.path);
  const { manifest } = await describeForeign(archive, mtime, signal);
  return { ...foreignSummaryOf(manifest), ...damageOf(archive.damage) };
}
