/** Reads what the chain is computed from: libvirt's states and the images' headers. */
import { type Domain, type Libvirt, SnapshotList, SnapshotXml } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { type Layer, MOST_READ_LAYERS, readLayers } from '../disks/index.ts';
import { KnownTexts } from '../domain-xml/index.ts';
import { listSnapshots, snapshotXml, unlessGone } from '../libvirt/domains.ts';
import type { ChainFile, SavedState } from './chain.ts';
import type { AutomaticState } from './merge/step.ts';
import { AUTOMATIC_PREFIX } from './plan.ts';
import { savedStateOf } from './state-xml.ts';

/** All saved states of a domain, parents first; automatic ones of a backup are left out. */
export async function loadStates(domain: Domain): Promise<SavedState[]> {
  return (await loadAllStates(domain)).states;
}

/** All saved states of a domain, parents first, and apart from them the automatic ones of backups. */
export async function loadAllStates(
  domain: Domain,
): Promise<{ states: SavedState[]; automatic: SavedState[] }> {
  const current = (await domain.currentSnapshot())?.name ?? null;
  const snapshots = await listSnapshots(domain, SnapshotList.TOPOLOGICAL);
  const states: SavedState[] = [];
  for (const snapshot of snapshots) {
    const xml = await snapshotXml(snapshot, SnapshotXml.SECURE);
    if (xml !== null) states.push(await withVolumes(savedStateOf(xml, snapshot.name === current)));
  }
  const isAutomatic = ({ name }: SavedState) => name.startsWith(AUTOMATIC_PREFIX);
  return { states: states.filter(state => !isAutomatic(state)), automatic: states.filter(isAutomatic) };
}

const KEPT = new KnownTexts(xml => {
  const { overlays, frozen, frozenFormats = {} } = savedStateOf(xml, false);
  return { overlays, frozen, frozenFormats };
});

/** The files that the saved states of a domain keep below their overlays; automatic ones of a backup are left out. */
export async function filesKeptBy(domain: Domain): Promise<string[]> {
  const found: string[] = [];
  for (const snapshot of await listSnapshots(domain)) {
    const xml = await snapshotXml(snapshot);
    if (xml === null || snapshot.name.startsWith(AUTOMATIC_PREFIX)) continue;
    const { overlays, frozen } = await withVolumes(KEPT.of(xml, snapshot.name));
    found.push(...Object.keys(overlays).flatMap(target => frozen[target] ?? []));
  }
  return found;
}

/**
 * A disk that was given as a volume has no path in the state's XML. What the state keeps of it is what the overlay that it
 * made stands on.
 */
async function withVolumes<T extends Pick<SavedState, 'overlays' | 'frozen' | 'frozenFormats'>>(
  state: T,
): Promise<T> {
  const { frozen, frozenFormats } = state;
  const unknown = Object.entries(state.overlays).filter(([target]) => frozen[target] === undefined);
  if (unknown.length === 0) return state;
  const found = { frozen: { ...frozen }, frozenFormats: { ...frozenFormats } };
  for (const [target, overlay] of unknown) {
    const below = (await exists(overlay)) ? (await readLayers(overlay, 'qcow2'))[1] : undefined;
    if (!below) continue;
    found.frozen[target] = below.path;
    found.frozenFormats[target] = below.format;
  }
  return { ...state, ...found };
}

/** Automatic states a domain bears, ready to be removed; none when there is no such domain. */
export function leftoverStates(libvirt: Libvirt, domainId: string): Promise<AutomaticState[]> {
  const domain = libvirt.domain(domainId);
  return unlessGone(async () => {
    const found: AutomaticState[] = [];
    for (const snapshot of await domain.snapshots()) {
      if (!snapshot.name.startsWith(AUTOMATIC_PREFIX)) continue;
      const { name, overlays, memoryPath } = savedStateOf(await snapshot.xml(), false);
      found.push({
        domainId,
        name,
        noted: true,
        overlays: Object.entries(overlays).map(([targetDev, path]) => ({ targetDev, path })),
        ...(memoryPath === null ? {} : { memoryPath }),
      });
    }
    return found;
  }, []);
}

/**
 * The files of one disk, top to bottom, from their headers.
 * @throws VirtkeepError snapshot_chain_unsupported when a layer cannot be read or keeps data elsewhere, or there are too many; io_failed
 */
export async function readDiskFiles(domainName: string, path: string, format: string): Promise<ChainFile[]> {
  const layers = await readLayers(path, format);
  const bottom = layers.at(-1)!;
  const fault = layers.find(layer => layer.dataFile || layer.unknownFeatures);
  if (!fault && !bottom.backingFile) return layers;
  const reason = fault
    ? `${fault.path} keeps data in another file, or uses features that are not known`
    : whyCut(layers, bottom);
  throw new VirtkeepError('snapshot_chain_unsupported', { domain: domainName, reason });
}

function whyCut([top, ...others]: Layer[], { path, backingFile }: Layer): string {
  if (others.length + 1 < MOST_READ_LAYERS) return `${path} stands on ${backingFile}, which cannot be read`;
  return `${top!.path} stands on more than ${MOST_READ_LAYERS - 1} others`;
}
