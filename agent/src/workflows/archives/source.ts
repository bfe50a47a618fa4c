/** The archive a restore reads, and the state of it that was asked for. */
import { lstat } from 'node:fs/promises';
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  type Archive,
  type Holding,
  type Manifest,
  type ManifestState,
  openArchive,
} from '../../archive/index.ts';
import { describeForeign } from '../foreign-archive/describe.ts';
import { withTruePlaces } from './places.ts';

export interface OpenedBackup {
  archive: Archive;
  /** The manifest of the state: its disks, images and saved states; its members are those of the whole file. */
  manifest: Manifest;
  state: ManifestState;
  /** Domain XML of the state. */
  xml: string;
  /** Of the whole file: its own newest manifest, or what is known of an archive that has none which can be used. */
  newest: Manifest;
  /** What is not known of such an archive; empty for one of ours. */
  unknown: string[];
}

/**
 * Opens an archive, of this product or one that holds what the specification says (2.1), and reads the state's own manifest and XML; close
 * `archive` when done. There are three sorts:
 *
 * |                                 | `archive.manifest` | `archive.again`           | `isDescribed` | `newest` is         | a state's manifest   |
 * |---------------------------------|--------------------|---------------------------|---------------|---------------------|----------------------|
 * | ours, as it was written         | the newest         | null                      | false         | `archive.manifest`  | the one of its time  |
 * | ours, packed again              | null               | the newest, places of now | false         | `archive.again`     | the one of its time  |
 * | of others, or without manifests | null               | null                      | true          | what its XML told   | the same, all it has |
 *
 * Only the first may be signed, extended and converted; of the others `unknown` tells what is not known.
 * @param requestedState number or name of the state; empty: the newest
 * @param holding `none` for a look at it that is over at once, `look` for one that unpacks one stream of zstd
 * @throws VirtkeepError archive_unsupported, archive_damaged, state_not_found, file_busy
 */
export async function openBackup(
  path: string,
  requestedState: string,
  signal: AbortSignal,
  holding: Holding = 'shared',
): Promise<OpenedBackup> {
  const archive = await openArchive(path, signal, { salvage: true, holding });
  try {
    // Of an archive that lost its end an older state is given only to who asks for that one.
    if (archive.damage !== null && requestedState === '') {
      const reason = `${archive.damage}; older states may be restored by naming one`;
      throw new VirtkeepError('archive_damaged', { path, reason });
    }
    const { newest, unknown } = await newestOf(archive, signal);
    const found = newest.states.findLast(
      candidate =>
        requestedState === '' ||
        candidate.name === requestedState ||
        String(candidate.number) === requestedState,
    );
    if (!found && archive.damage !== null) {
      const reason = `${archive.damage}; of its state "${requestedState}" nothing can be restored`;
      throw new VirtkeepError('archive_damaged', { path, reason });
    }
    if (!found) throw new VirtkeepError('state_not_found', { file: path, state: requestedState });
    const isDescribed = archive.manifest === null && archive.again === null;
    const manifest = isDescribed ? newest : withTruePlaces(await archive.manifestOfState(found.number));
    const state = manifest.states.find(candidate => candidate.number === found.number)!;
    const xml = (await archive.readMember(state.xmlMember, signal)).toString('utf8');
    return { archive, manifest, state, xml, newest, unknown };
  } catch (error) {
    await archive.close();
    throw error;
  }
}

/** @throws VirtkeepError archive_unsupported, archive_damaged, xml_invalid, io_failed, canceled */
async function newestOf(
  archive: Archive,
  signal: AbortSignal,
): Promise<Pick<OpenedBackup, 'newest' | 'unknown'>> {
  if (archive.manifest !== null) return { newest: archive.manifest, unknown: [] };
  if (archive.isUnread) throw unread(archive.path);
  const { mtime } = await lstat(archive.path);
  const { manifest, warnings } = await describeForeign(archive, mtime, signal);
  return { newest: manifest, unknown: warnings };
}

/** One stream of zstd tells what it holds only to who decompresses all of it. */
function unread(path: string): VirtkeepError {
  const reason =
    'it is one stream of zstd without seek table, which is read as a whole when it is shown or restored; unpack it first to do this';
  return new VirtkeepError('archive_unsupported', { path, reason });
}

/** As `openBackup`, for who only looks and gives the archive time: nothing is held. Errors as there, and file_not_found. */
export async function lookIntoBackup(
  path: string,
  requestedState: string,
  signal: AbortSignal,
): Promise<OpenedBackup> {
  const archive = await openArchive(path, signal, { salvage: true, holding: 'none' });
  await archive.close();
  return await openBackup(path, requestedState, signal, archive.isUnread ? 'look' : 'none');
}
