import { hasKey, type VirtkeepError } from '@virtkeep/shared/errors';
import { END_BYTES } from '../format/layout.ts';
import { digestOf, isHashed } from '../format/manifest.ts';
import { isManifestName, memberNames } from '../format/names.ts';
import { needsOf, restorableStates, type StateNeeds } from '../format/restorable.ts';
import { FRAME_START_BYTES, frameAt, hasChecksum, type SeekTable } from '../format/seek-table.ts';
import { flattened, type WalkedMember, walkTar } from '../format/tar-format.ts';
import type { ArchiveMember, ArchiveProblem, VerifyOptions, VerifyResult } from '../format/types.ts';
import type { Inspection } from './inspect.ts';
import type { PackedAgain } from './packed-again.ts';
import { readManifest, type Salvaged } from './salvage.ts';
import { readerOf, type TarSource } from './tar-source.ts';

/** Zeros that may follow the end-of-archive mark. */
const MAX_PADDING_BYTES = 1024 * 1024;

/** Reads one member's data; throws archive_damaged or returns the problem found. */
export type CheckMember = (
  member: ArchiveMember,
  onProgress: (bytesDone: number) => void,
) => Promise<ArchiveProblem | undefined>;

/** Checks structure, order and content of an archive. @throws VirtkeepError only canceled and io_failed */
export async function verifyInspected(
  inspection: Inspection,
  options: VerifyOptions,
  check: CheckMember,
): Promise<VerifyResult> {
  const { access, members, fault } = inspection;
  const problems: ArchiveProblem[] = [];
  if (fault !== undefined) problems.push(...wholeProblems(fault, inspection));
  if (access.kind === 'stream') {
    // Decompressing it all, with those checksums that it has, was part of opening it.
    const read = fault === undefined ? members.length : 0;
    const [provenMembers, unprovenMembers] = access.checked ? [read, 0] : [0, read];
    const states = await readableStates(inspection, problems);
    const restorable = fault === undefined || inspection.salvaged ? restorableStates(states, problems) : [];
    return { problems, provenMembers, unprovenMembers, restorableStates: restorable, hashed: false };
  }
  options.onTotal?.(members.reduce((sum, member) => sum + member.sizeBytes, 0));
  problems.push(...(await structureProblems(access.source, inspection, options.signal)));
  const frames = access.kind === 'seekable' ? await frameChecksums(access.table, inspection) : undefined;
  problems.push(...(frames?.problems ?? []));
  const isProven = (member: ArchiveMember) =>
    digestOf(member) !== null ||
    (access.kind === 'seekable' ? isChecked(member, access.table, frames!.has) : member.kind === 'manifest');
  let proven = 0;
  let unproven = 0;
  let bytesDone = 0;
  for (const member of members) {
    if (problems.some(problem => problem.member === member.name && problem.problem !== 'wrong_order'))
      continue;
    const problem = await checked(
      member,
      inspection,
      bytes => options.onProgress?.(bytesDone + bytes),
      check,
    );
    bytesDone += member.sizeBytes;
    options.onProgress?.(bytesDone);
    if (problem !== undefined) problems.push(problem);
    else if (isProven(member)) proven++;
    else unproven++;
  }
  const needs = await readableStates(inspection, problems);
  return {
    problems,
    provenMembers: proven,
    unprovenMembers: unproven,
    restorableStates: restorableStates(needs, problems),
    hashed: inspection.manifest !== null && isHashed(inspection.manifest),
  };
}

/** What the states need whose manifests can be read; one that cannot be is a problem. */
async function readableStates(
  { manifest, manifests: reader, members, again, file }: Inspection,
  problems: ArchiveProblem[],
): Promise<StateNeeds[]> {
  if (again !== undefined) return await needsAgain(again, file.path, problems);
  if (manifest === null || reader === undefined) return [];
  const needs: StateNeeds[] = [];
  for (const member of members) {
    if (member.kind !== 'manifest' || problems.some(problem => problem.member === member.name)) continue;
    const read = await readManifest(reader, member);
    if (read !== undefined) needs.push(needsOf(read.manifest));
    else problems.push({ member: member.name, problem: 'damaged', text: 'it cannot be read as a manifest' });
  }
  return needs;
}

/** The same of an archive that was packed again. */
async function needsAgain(
  again: PackedAgain,
  path: string,
  problems: ArchiveProblem[],
): Promise<StateNeeds[]> {
  const needs: StateNeeds[] = [];
  for (const { number } of again.manifest.states) {
    try {
      needs.push(needsOf(await again.manifestOfState(number, path)));
    } catch (error) {
      if (!hasKey(error, 'archive_damaged', 'archive_unsupported', 'member_not_found')) throw error;
      const member = memberNames.manifest(number);
      problems.push({ member, problem: 'damaged', text: error.params.reason ?? error.message });
    }
  }
  return needs;
}

/** Which frames have a checksum of their own content, which decompressing them compares. */
type CheckedFrames = (frame: number) => boolean;

/** Looks for the frames' own checksums, and compares those that are there with the seek table's. */
async function frameChecksums(
  table: SeekTable,
  { file }: Inspection,
): Promise<{ has: CheckedFrames; problems: ArchiveProblem[] }> {
  const { checksums, fileOffsets, frameCount } = table;
  const has = new Uint8Array(frameCount);
  // the end of one frame and the beginning of the next are read at once
  let start = await file.read(0, FRAME_START_BYTES);
  for (let frame = 0; frame < frameCount; frame++) {
    has[frame] = Number(hasChecksum(start));
    const border = await file.read(fileOffsets[frame + 1]! - 4, 4 + FRAME_START_BYTES);
    start = border.subarray(4);
    const differs = border.length < 4 || border.readUInt32LE(0) !== checksums?.[frame];
    if (checksums === undefined || has[frame] === 0 || !differs) continue;
    const text = `the checksum of frame ${frame} is another one in the seek table`;
    return { has: () => false, problems: [{ member: null, problem: 'structure', text }] };
  }
  return { has: frame => has[frame] === 1, problems: [] };
}

/** Whether decompressing proves a member's content: those who write such files may leave the checksums out. */
function isChecked({ dataOffset, sizeBytes }: ArchiveMember, table: SeekTable, has: CheckedFrames): boolean {
  if (sizeBytes === 0) return true;
  const last = frameAt(table, dataOffset + sizeBytes - 1);
  for (let frame = frameAt(table, dataOffset); frame <= last; frame++) if (!has(frame)) return false;
  return last >= 0;
}

async function checked(
  member: ArchiveMember,
  { access }: Inspection,
  onProgress: (bytesDone: number) => void,
  check: CheckMember,
): Promise<ArchiveProblem | undefined> {
  const tarBytes = access.kind === 'stream' ? Number.POSITIVE_INFINITY : access.source.tarBytes;
  if (member.dataOffset + member.sizeBytes > tarBytes)
    return { member: member.name, problem: 'truncated', text: 'the file ends inside this member' };
  try {
    return await check(member, onProgress);
  } catch (error) {
    if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
    return { member: member.name, problem: 'damaged', text: error.params.reason ?? error.message };
  }
}

/** Why the archive could not be opened. When the file is cut off, that is a problem of its last member. */
function wholeProblems(fault: VirtkeepError, { members, salvaged }: Inspection): ArchiveProblem[] {
  const text = fault.params.reason ?? fault.message;
  if (salvaged !== undefined) return salvagedProblems(text, salvaged);
  const cut = /ends|cut|truncated|torn/.test(text);
  const last = members.at(-1);
  if (cut) return [{ member: last?.name ?? null, problem: 'truncated', text }];
  if (last !== undefined && isManifestName(last.name))
    return [{ member: last.name, problem: 'damaged', text }];
  return [{ member: null, problem: 'structure', text }];
}

function salvagedProblems(text: string, { unreadable, cut }: Salvaged): ArchiveProblem[] {
  if (unreadable !== null) return [{ member: unreadable, problem: 'damaged', text }];
  const torn: ArchiveProblem = { member: null, problem: 'torn_tail', text };
  if (cut === null) return [torn];
  return [torn, { member: cut, problem: 'truncated', text: 'the file ends inside this member' }];
}

/** Compares what the headers say with what the manifest says. */
async function structureProblems(
  source: TarSource,
  inspection: Inspection,
  signal: AbortSignal,
): Promise<ArchiveProblem[]> {
  // What a salvage takes from the file was compared with its headers then.
  if (inspection.salvaged !== undefined) return [];
  const walked: WalkedMember[] = [];
  const problems: ArchiveProblem[] = [];
  try {
    const end = await walkTar(readerOf(source, signal), walked);
    if (end.fault !== undefined) problems.push(placed(end.endOffset, end.fault, inspection));
    else if (await somethingFollows(source, end.endOffset + END_BYTES))
      problems.push({
        member: null,
        problem: 'structure',
        text: 'something follows the end-of-archive mark',
      });
  } catch (error) {
    if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
    const last = walked.at(-1);
    const offset = last === undefined ? 0 : last.dataOffset + last.sizeBytes;
    problems.push(placed(offset, error.params.reason ?? error.message, inspection));
  }
  if (inspection.fault !== undefined && inspection.manifest === null) return [];
  const flat = inspection.manifest === null ? flattened(walked) : walked;
  return [...problems, ...orderProblems(flat, inspection.members, problems.length > 0)];
}

/** Tars may be padded with zeros, by the usual tools to less than a MiB. */
async function somethingFollows(source: TarSource, offset: number): Promise<boolean> {
  if (source.tarBytes - offset > MAX_PADDING_BYTES) return true;
  return (await source.read(offset, MAX_PADDING_BYTES)).some(byte => byte !== 0);
}

/** Damage of a header belongs to the member whose data follows. */
function placed(offset: number, text: string, { members }: Inspection): ArchiveProblem {
  const member = members.find(({ dataOffset }) => dataOffset > offset);
  return { member: member?.name ?? null, problem: member === undefined ? 'structure' : 'damaged', text };
}

function orderProblems(
  walked: readonly WalkedMember[],
  members: readonly ArchiveMember[],
  walkFailed: boolean,
): ArchiveProblem[] {
  const problems: ArchiveProblem[] = [];
  const found = new Map(walked.map((member, index) => [member.name, { ...member, index }]));
  let lastIndex = -1;
  for (const { name, dataOffset, sizeBytes } of members) {
    const at = found.get(name);
    if (at === undefined) {
      if (!walkFailed)
        problems.push({ member: name, problem: 'missing', text: 'it is in the manifest and not in the tar' });
      continue;
    }
    if (at.index < lastIndex)
      problems.push({ member: name, problem: 'wrong_order', text: 'it stands before its predecessor' });
    else if (at.dataOffset !== dataOffset || at.sizeBytes !== sizeBytes)
      problems.push({
        member: name,
        problem: 'damaged',
        text: 'its header does not agree with the manifest',
      });
    lastIndex = Math.max(lastIndex, at.index);
  }
  const listedNames = new Set(members.map(member => member.name));
  for (const { name } of walked)
    if (!listedNames.has(name))
      problems.push({ member: name, problem: 'unexpected', text: 'it is not in the manifest' });
  return problems;
}
