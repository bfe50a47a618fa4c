/**
 * A directory of virtnbdbackup's: `virtnbdrestore` makes images of its disks at a restore point, in a directory that goes with the
 * operation. Raw disks, which it keeps as they are, are read where they stand.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { roundUp } from '@virtkeep/shared/units';
import {
  inspectImage,
  openVirtnbd,
  type VirtnbdBackup,
  type VirtnbdDataFile,
  type VirtnbdState,
} from '../../appliance/index.ts';
import { markSources, SECTOR_BYTES } from '../../disks/index.ts';
import { parseDomain, parseXml } from '../../domain-xml/index.ts';
import type { Appliance } from '../../ovf/index.ts';
import { networkNamesOf } from '../config-restore/networks.ts';
import { stateOf } from '../config-restore/virtnbd-state.ts';
import type { OperationContext } from '../context.ts';
import type { ForeignDisk, ForeignFile } from './foreign.ts';
import { requireSame } from './spare.ts';
import { RestoreRoom, requireVirtnbdrestore } from './virtnbdrestore.ts';

type Chain = readonly VirtnbdDataFile[];

/**
 * @param state number or name; empty: the newest
 * @throws VirtkeepError appliance_invalid, state_not_found, tool_missing, xml_invalid, not_a_file, path_outside_pool, io_failed, canceled
 */
export async function openForeignVirtnbd(
  { path, filename }: { path: string; filename: string },
  { state: wanted }: { state: string },
  context: OperationContext,
): Promise<ForeignFile> {
  const backup = await openVirtnbd(path, context.signal);
  try {
    const state = stateOf(backup, wanted, filename);
    const disks = [...(state?.disks ?? [])];
    if (state === undefined || disks.length === 0)
      throw new VirtkeepError('appliance_invalid', { path, reason: 'there are no data of disks beside it' });
    if (disks.some(([, chain]) => isStream(chain))) await requireVirtnbdrestore();
    return await foreignOf(backup, state);
  } catch (error) {
    await backup.close();
    throw error;
  }
}

async function foreignOf(backup: VirtnbdBackup, state: VirtnbdState): Promise<ForeignFile> {
  const xml = await backup.readDefinition(state);
  const { name, disks: defined } = parseDomain(xml, backup.path);
  const targets = [...state.disks.keys()];
  for (const target of targets)
    if (!defined.some(disk => disk.targetDev === target))
      throw new VirtkeepError('appliance_invalid', {
        path: backup.path,
        reason: `its VM has no disk ${target}, of which there are data`,
      });
  const marks = await markSources([...backup.places]);
  const chains = [...state.disks.values()];
  const sizes = chains.map(chain => ({ isStream: isStream(chain), bytes: dataBytesOf(chain) }));
  const sum = (some: typeof sizes) => some.reduce((total, { bytes }) => total + bytes, 0);
  const held: { room?: RestoreRoom } = {};
  const lacking = state.lacking.map(
    target => `Disk ${target}: ${state.name} has no data of it; it is left out.`,
  );
  return {
    appliance: bareAppliance(name, networkNamesOf(parseXml(xml, 'domain', backup.path).root)),
    definition: { xml, targets },
    created: state.written,
    dataBytes: sum(sizes),
    spareBytes: sum(sizes.filter(({ isStream }) => isStream)),
    readDisks: async (context, directory) => {
      if (sizes.some(({ isStream }) => isStream)) held.room = await RestoreRoom.make(context, directory);
      return await readDisks(context, [...state.disks], held.room);
    },
    requireSame: () => requireSame(backup.path, marks),
    warnings: [...backup.warnings, ...lacking],
    close: async () => {
      await held.room?.close();
      await backup.close();
    },
  };
}

const isStream = ([base]: Chain): boolean => base!.header !== null;

/** At most what a restore of it writes. */
function dataBytesOf(chain: Chain): number {
  const { header, sizeBytes } = chain[0]!;
  if (header === null) return sizeBytes;
  const written = chain.reduce((sum, file) => sum + file.header!.dataBytes, 0);
  return Math.min(header.virtualSizeBytes, written);
}

async function readDisks(
  context: OperationContext,
  disks: readonly [string, Chain][],
  room: RestoreRoom | undefined,
): Promise<ForeignDisk[]> {
  const { progress, signal } = context;
  progress.total(disks.reduce((sum, [, chain]) => sum + dataBytesOf(chain), 0));
  const read: ForeignDisk[] = [];
  let doneBytes = 0;
  for (const [target, chain] of disks) {
    const { header, path, name, sizeBytes } = chain[0]!;
    const [source, format] =
      header === null
        ? [{ path, offset: 0, sizeBytes, name }, 'raw' as const]
        : [await room!.restore(target, chain, signal), 'qcow2' as const];
    const image = await inspectImage(source, format, signal);
    const isWhole =
      header === null || image.virtualSizeBytes === roundUp(header.virtualSizeBytes, SECTOR_BYTES);
    // the image says that its writer has not closed it, or holds what none of ours has
    if (header !== null && (image.warnings.length > 0 || !isWhole))
      throw new VirtkeepError('foreign_disk_invalid', {
        path: target,
        reason: image.warnings[0] ?? 'virtnbdrestore has made it of another size',
      });
    read.push({ sizeBytes: image.virtualSizeBytes, content: { blockdev: image.blockdev } });
    doneBytes += dataBytesOf(chain);
    progress.done(doneBytes);
  }
  return read;
}

/** A VM of which the definition tells all but this. */
const bareAppliance = (name: string, networks: readonly string[]): Appliance => ({
  systemId: name,
  name,
  description: '',
  configuration: null,
  os: { type: 'Other', id: '' } as Appliance['os'],
  cpus: 1,
  coresPerSocket: null,
  memoryMiB: 1,
  firmware: { efi: false, secureBoot: false },
  tpm: false,
  nics: networks.map(network => ({ model: 'virtio', mac: null, network })),
  usb: [],
  sound: null,
  serialPorts: 0,
  warnings: [],
  controllers: [],
  disks: [],
  drives: [],
});
