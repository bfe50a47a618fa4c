/** Writing the files of a restore; each one is declared before it appears. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, syncFile } from '@virtkeep/shared/files';
import { newId } from '@virtkeep/shared/ids';
import { roundUp } from '@virtkeep/shared/units';
import { assertSelfContained, convertImage, readImageHeader, SECTOR_BYTES } from '../../disks/index.ts';
import { type Identity, parseSnapshot, type Sanitized } from '../../domain-xml/index.ts';
import { removePieces } from '../../images/index.ts';
import { editMemoryFile, memoryFileXml, savedStateId } from '../../snapshots/index.ts';
import { judgeStack, MERGED_AT_ONCE, mergeImages } from '../archives/image-stack.ts';
import type { OpenedBackup } from '../archives/source.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { EffectHandle } from '../effect.ts';
import { variablesOfName } from '../firmware/named-variables.ts';
import { keepFirmware, keptFirmwarePaths } from '../firmware/state-firmware.ts';
import { MAX_TPM_STATE_BYTES, unpackTpmState } from '../firmware/tpm-state.ts';
import { makeNewFile } from '../new-file.ts';
import type { RestorePlan } from './check.ts';
import { foreignDisks, keptPaths, movedPaths, restoredMemoryXml, topPaths } from './definition.ts';
import { leftOutWarnings, stateSubject } from './gate.ts';
import type { DiskShape, FilePlacement, LayerPlacement } from './placement.ts';
import type { ResumeMemory } from './start.ts';
import type { RestoredState } from './states.ts';

/** UEFI variables are at most a few MiB. */
const MAX_NVRAM_BYTES = 16 * 1024 * 1024;

/** The extracted files. */
export interface Extracted {
  memory: ExtractedMemory;
  /** By their paths the files that do not stay: they can be taken back before the operation's end. */
  passing: ReadonlyMap<string, EffectHandle>;
}

export interface ExtractedMemory {
  /** Memory files of the saved states that come back. */
  saved: { state: RestoredState; path: string }[];
  /** Memory of the restored state's own instant, to resume from; null when it has none. */
  resume: string | null;
}

interface FileToExtract {
  member: string;
  path: string;
  keep: boolean;
  /** Of the layers of one disk. */
  stack?: string;
}

/**
 * Extracts disks, images and memory files. Of a disk that is to stand on the archive nothing is extracted.
 * @throws VirtkeepError file_exists, disk_full, hash_mismatch, archive_damaged, canceled
 */
export async function extractFiles(
  context: OperationContext,
  { archive, state }: OpenedBackup,
  { placement, identity, states }: RestorePlan,
  shape: DiskShape,
): Promise<Extracted> {
  const { disks, images } = placement;
  const memoryPath = (name: string) =>
    freePath(placement.memory.directory, `${identity.uuid}.${name}`, '.memory');
  const files: FileToExtract[] = [];
  if (shape !== 'overlay') for (const { layers } of disks) files.push(...filesOfLayers(layers));
  files.push(...images.map(image => ({ ...image, keep: true })));
  const saved: ExtractedMemory['saved'] = [];
  for (const [index, restored] of states.entries()) {
    const { memoryMember } = restored.record;
    if (memoryMember === null) continue;
    const path = await memoryPath(`state${index + 1}`);
    saved.push({ state: restored, path });
    files.push({ member: memoryMember, path, keep: true });
  }
  const resume = state.memoryMember === null ? null : await memoryPath('resume');
  if (resume !== null) files.push({ member: state.memoryMember!, path: resume, keep: false });
  return { passing: await extractAll(context, archive, files), memory: { saved, resume } };
}

function filesOfLayers(layers: readonly LayerPlacement[]): FileToExtract[] {
  const stack = layers[0]!.path;
  return layers.flatMap(({ member, path, merged, packed }) => [
    packed ? { ...packed, keep: false, stack } : { member, path, keep: true, stack },
    ...merged.map(layer => ({ ...layer, keep: false, stack })),
  ]);
}

/** What a lost VM of the same id has left behind is not overwritten. */
async function freePath(directory: string, stem: string, ending: string): Promise<string> {
  const path = join(directory, `${stem}${ending}`);
  return (await exists(path)) ? join(directory, `${stem}.${newId()}${ending}`) : path;
}

async function extractAll(
  context: OperationContext,
  archive: OpenedBackup['archive'],
  files: FileToExtract[],
): Promise<Map<string, EffectHandle>> {
  const passing = new Map<string, EffectHandle>();
  const sizes = new Map(archive.members.map(member => [member.name, member.sizeBytes]));
  context.progress.total(files.reduce((sum, file) => sum + (sizes.get(file.member) ?? 0), 0));
  let doneBytes = 0;
  for (const { member, path, keep, stack } of files) {
    const { handle, mark } = await makeNewFile(context, path, keep, { stack, inPool: true });
    if (!keep) passing.set(path, handle);
    await archive.extractMember(member, path, {
      signal: context.signal,
      existing: true,
      mark,
      checkHash: true,
      onProgress: bytes => context.progress.done(doneBytes + bytes),
    });
    doneBytes += sizes.get(member) ?? 0;
  }
  return passing;
}

/** What a guest sees of a disk. Older archives record a raw disk's bytes, of which the last sector may lack some. */
export const guestBytes = ({ virtualSizeBytes }: { virtualSizeBytes: number }): number =>
  roundUp(virtualSizeBytes, SECTOR_BYTES);

/**
 * Joins the layers of each disk and judges every image before anything opens it in earnest: its header may name other
 * files of the host, which QEMU would read for it. Then merges the layers that are to be one image, some at a time: QEMU
 * opens no chain of many hundreds.
 * @throws VirtkeepError archive_damaged, qemu_img_failed, disk_full, canceled
 */
export async function joinLayers(
  context: OperationContext,
  path: string,
  plan: RestorePlan,
  passing: Extracted['passing'],
): Promise<void> {
  const { signal } = context;
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path, reason });
  const { disks } = plan.placement;
  const allMerged = disks.flatMap(({ layers }) => layers.flatMap(({ merged }) => merged));
  context.progress.total(allMerged.reduce((sum, layer) => sum + layer.sizeBytes, 0));
  let doneBytes = 0;
  for (const { disk, layers } of disks) {
    const images = layers.map(layer => layer.packed ?? layer);
    const top = await readImageHeader((layers.at(-1)!.merged.at(-1) ?? images.at(-1)!).path);
    const virtualSize = guestBytes(disk);
    if (top.format === 'qcow2' && top.virtualSize !== virtualSize)
      throw damaged(`the disk ${disk.target} has ${top.virtualSize} bytes, ${virtualSize} are recorded`);
    await judgeStack(images, plan.bases.get(disk.target) ?? null, damaged, signal);
    for (const { path: into, merged, packed } of layers) {
      if (packed) await unpack(context, packed, into, passing);
      for (let at = 0; at < merged.length; at += MERGED_AT_ONCE) {
        const some = merged.slice(at, at + MERGED_AT_ONCE);
        await judgeStack(some, { path: into, format: 'qcow2' }, damaged, signal);
        const bytes = some.reduce((sum, layer) => sum + layer.sizeBytes, 0);
        await mergeImages(into, some, signal, share => context.progress.done(doneBytes + share * bytes));
        // from the top: none goes while another stands on it
        for (const layer of some.toReversed()) await removePiece(layer.path, passing, signal);
        doneBytes += bytes;
      }
    }
  }
}

/** What the image holds becomes the file: an encrypted disk in the form that its VM knows. */
async function unpack(
  context: OperationContext,
  packed: FilePlacement,
  path: string,
  passing: Extracted['passing'],
): Promise<void> {
  const { signal } = context;
  await makeNewFile(context, path, true, { inPool: true });
  await convertImage(packed.path, path, { signal, sourceFormat: 'qcow2', targetFormat: 'raw' });
  await syncFile(path);
  await removePiece(packed.path, passing, signal);
}

/** Removes a file whose content is elsewhere now. No domain can name it, since its name is random, so none is looked for. */
async function removePiece(path: string, passing: Extracted['passing'], signal: AbortSignal): Promise<void> {
  await removePieces([path], signal);
  passing.get(path)?.keep();
}

/**
 * Gives the memory files the new domain's XML, so that libvirt accepts them for it.
 * @returns the memory to resume from with the definition that was judged, or null when there is none or it needs disks that did not come back
 */
export async function patchMemory(
  context: OperationContext,
  plan: RestorePlan,
  memory: ExtractedMemory,
): Promise<ResumeMemory | null> {
  const paths = movedPaths(plan, memoryPaths(memory));
  const cleaned = (subject: string, sanitized: Sanitized) => {
    for (const warning of leftOutWarnings(subject, sanitized)) context.warn(warning);
    return sanitized.xml;
  };
  for (const { state, path } of memory.saved) {
    const disks = keptPaths(state, plan.placement);
    const subject = `the memory of ${stateSubject(state.record.name)}`;
    await editMemoryFile(path, xml => cleaned(subject, restoredMemoryXml(xml, plan, disks, paths)));
  }
  if (memory.resume === null) return null;
  const foreign = foreignDisks(await memoryFileXml(memory.resume), plan);
  if (foreign.length > 0) {
    context.warn(
      `The saved memory is not used, since ${foreign.join(', ')} did not come back; the VM starts as after a power cut.`,
    );
    return null;
  }
  const tops = topPaths(plan.placement);
  let resumed = '';
  await editMemoryFile(memory.resume, xml => {
    resumed = cleaned('the saved memory', restoredMemoryXml(xml, plan, tops, paths));
    return resumed;
  });
  return { path: memory.resume, xml: resumed };
}

/** Old → new path of the saved states' memory files. */
export function memoryPaths(memory: ExtractedMemory): Map<string, string> {
  const moved = new Map<string, string>();
  for (const { state, path } of memory.saved) {
    const { formerMemoryPath } = state.record;
    if (formerMemoryPath !== null) moved.set(formerMemoryPath, path);
  }
  return moved;
}

/**
 * UEFI variables and TPM state, where libvirt looks for them, and the copies that the saved states have of both.
 * @returns path of the variables, null when there are none
 */
export async function writeFirmwareState(
  context: OperationContext,
  dependencies: WorkflowDependencies,
  backup: OpenedBackup,
  { identity, states }: RestorePlan,
): Promise<string | null> {
  const { signal } = context;
  const { archive, state } = backup;
  for (const saved of states)
    await writeKeptFirmware(context, dependencies, backup, { domainId: identity.uuid, saved });
  return makeFirmware(context, dependencies, identity, {
    tpm: state.tpm && (await archive.readMember(state.tpm.member, signal, MAX_TPM_STATE_BYTES)),
    nvram: state.nvram && (await archive.readMember(state.nvram.member, signal, MAX_NVRAM_BYTES)),
  });
}

/**
 * Makes UEFI variables and TPM state of a new domain; each is declared before it appears.
 * @returns path of the variables, null when there are none
 * @throws VirtkeepError file_exists, disk_full, archive_damaged for a TPM state that is none, qemu_img_failed for variables
 *   that stand on another file
 */
export async function makeFirmware(
  context: OperationContext,
  { nvramDirectory, swtpmDirectory }: Pick<WorkflowDependencies, 'nvramDirectory' | 'swtpmDirectory'>,
  identity: Identity,
  { nvram, tpm }: { nvram: Buffer | null; tpm: Buffer | null },
): Promise<string | null> {
  if (tpm) {
    const path = join(swtpmDirectory, identity.uuid);
    if (await exists(path)) throw new VirtkeepError('file_exists', { path });
    context.effects.begin({ type: 'directory', path, own: true }, 'failure');
    await unpackTpmState(tpm, swtpmDirectory, identity.uuid);
  }
  if (!nvram) return null;
  const named = variablesOfName(nvramDirectory, identity.name);
  const path = (await exists(named)) ? await freePath(nvramDirectory, identity.uuid, '_VARS.fd') : named;
  await makeNewFile(context, path, true, { inPool: true });
  try {
    await writeFile(path, nvram, { flag: 'r+', flush: true });
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
  await judgeVariables(path, context.signal);
  return path;
}

/** A definition may say that they are a qcow2 image, and QEMU would open the files that its header names. */
async function judgeVariables(path: string, signal: AbortSignal): Promise<void> {
  if ((await readImageHeader(path)).format === 'qcow2') await assertSelfContained(path, { signal });
}

/** A state that an increment made is one of the archive's own, and its firmware stands there. */
async function writeKeptFirmware(
  context: OperationContext,
  dependencies: WorkflowDependencies,
  { archive, manifest }: OpenedBackup,
  { domainId, saved }: { domainId: string; saved: RestoredState },
): Promise<void> {
  const { record, xml } = saved;
  const own = manifest.states.find(({ name }) => name === record.name);
  const [nvram, tpm] = [record.nvram ?? own?.nvram, record.tpm ?? own?.tpm];
  if (!nvram && !tpm) return;
  const { name, creationTime: createdUnix } = parseSnapshot(xml, record.xmlMember);
  const key = savedStateId(domainId, { name, createdUnix });
  const read = (member: string, limit: number) => archive.readMember(member, context.signal, limit);
  const firmware = {
    ...(nvram && { nvram: await read(nvram.member, MAX_NVRAM_BYTES) }),
    ...(tpm && { tpm: await read(tpm.member, MAX_TPM_STATE_BYTES) }),
  };
  const paths = keptFirmwarePaths(dependencies, domainId, key);
  for (const path of Object.values(paths)) context.effects.begin({ type: 'file', path }, 'failure');
  await keepFirmware(dependencies, domainId, key, firmware);
  if (firmware.nvram) await judgeVariables(paths.nvram, context.signal);
}
