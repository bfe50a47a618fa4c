/** Writing the files of a restore; each one is declared before it appears. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { assertSelfContained, checkImage, readImageHeader, rebaseUnsafe } from '../../disks/index.ts';
import { editMemoryFile } from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { MAX_TPM_STATE_BYTES, unpackTpmState } from '../tpm-state.ts';
import type { RestorePlan } from './check.ts';
import { movedPaths, restoredMemoryXml } from './definition.ts';
import type { OpenedBackup } from './source.ts';

/** UEFI variables are at most a few MiB. */
const MAX_NVRAM_BYTES = 16 * 1024 * 1024;

export interface ExtractedMemory {
  /** Old → new path of the saved states' memory files. */
  moved: Map<string, string>;
  /** Memory of the backup's own instant, to resume from; null when it has none. */
  resume: string | null;
}

/**
 * Extracts disks, images and memory files.
 * @throws VirtkeepError file_exists, disk_full, hash_mismatch, archive_damaged, canceled
 */
export async function extractFiles(
  context: OperationContext,
  { archive, manifest, state }: OpenedBackup,
  { placement, identity }: RestorePlan,
): Promise<ExtractedMemory> {
  const moved = new Map<string, string>();
  const wanted = [...placement.disks.flatMap(disk => disk.layers), ...placement.images].map(file => ({
    ...file,
    keep: true,
  }));
  const memoryPath = (name: string) => join(placement.memory.directory, `${identity.uuid}.${name}.memory`);
  for (const [index, snapshot] of manifest.snapshots.entries()) {
    if (snapshot.memoryMember === null) continue;
    const path = memoryPath(`state${index + 1}`);
    if (snapshot.formerMemoryPath !== null) moved.set(snapshot.formerMemoryPath, path);
    wanted.push({
      member: snapshot.memoryMember,
      path,
      pool: placement.memory.pool,
      sizeBytes: 0,
      keep: true,
    });
  }
  const resume = state.memoryMember === null ? null : memoryPath('resume');
  if (resume !== null)
    wanted.push({
      member: state.memoryMember!,
      path: resume,
      pool: placement.memory.pool,
      sizeBytes: 0,
      keep: false,
    });

  const sizes = new Map(archive.members.map(member => [member.name, member.sizeBytes]));
  context.progress.total(wanted.reduce((sum, file) => sum + (sizes.get(file.member) ?? 0), 0));
  let doneBytes = 0;
  for (const { member, path, keep } of wanted) {
    await declareNewFile(context, path, keep);
    await archive.extractMember(member, path, {
      signal: context.signal,
      checkHash: true,
      onProgress: bytes => context.progress.done(doneBytes + bytes),
    });
    doneBytes += sizes.get(member) ?? 0;
  }
  return { moved, resume };
}

/** Declares a file that must not exist yet; what is missing of its directory is made and declared too. */
async function declareNewFile(context: OperationContext, path: string, keep: boolean): Promise<void> {
  if (await exists(path)) throw new VirtkeepError('file_exists', { path });
  let missing: string | undefined;
  for (let directory = dirname(path); !(await exists(directory)); directory = dirname(directory))
    missing = directory;
  if (missing !== undefined) {
    context.effects.begin({ type: 'directory', path: missing }, 'failure');
    await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  }
  context.effects.begin({ type: 'file', path }, keep ? 'failure' : 'always');
}

/**
 * Joins the layers of each disk and judges every image before anything opens it in earnest: its header may name other
 * files of the host, which QEMU would read for it.
 * @throws VirtkeepError archive_damaged, qemu_img_failed, canceled
 */
export async function joinLayers(context: OperationContext, path: string, plan: RestorePlan): Promise<void> {
  const { signal } = context;
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path, reason });
  for (const { disk, layers } of plan.placement.disks) {
    let below = plan.bases.get(disk.target) ?? null;
    for (const layer of layers) {
      const header = await readImageHeader(layer.path);
      if (header.format !== 'qcow2') throw damaged(`${layer.member} is not a qcow2 image`);
      if (header.dataFile || header.unknownFeatures)
        throw damaged(`${layer.member} names another file, or uses features that are not known`);
      if (below) await rebaseUnsafe(layer.path, below, { signal });
      await assertSelfContained(layer.path, { signal, ...(below ? { allowedBacking: below.path } : {}) });
      const found = await checkImage(layer.path, { signal, format: 'qcow2', untrusted: true });
      if (!found.ok) throw damaged(`${layer.member} has ${found.corruptions} errors in its metadata`);
      below = { path: layer.path, format: 'qcow2' };
    }
    const top = await readImageHeader(layers.at(-1)!.path);
    if (top.virtualSize !== disk.virtualSizeBytes)
      throw damaged(
        `the disk ${disk.target} has ${top.virtualSize} bytes, ${disk.virtualSizeBytes} are recorded`,
      );
  }
}

/** Gives the memory files the new domain's XML, so that libvirt accepts them for it. */
export async function patchMemory(plan: RestorePlan, memory: ExtractedMemory): Promise<void> {
  const paths = movedPaths(plan, memory.moved);
  for (const path of [...memory.moved.values(), ...(memory.resume ? [memory.resume] : [])])
    await editMemoryFile(path, xml => restoredMemoryXml(xml, plan, paths));
}

/** UEFI variables and TPM state, where libvirt looks for them. @returns path of the variables, null when there are none */
export async function writeFirmwareState(
  context: OperationContext,
  dependencies: WorkflowDependencies,
  { archive, state }: OpenedBackup,
  { identity }: RestorePlan,
): Promise<string | null> {
  const { signal } = context;
  if (state.tpm) {
    const bytes = await archive.readMember(state.tpm.member, signal, MAX_TPM_STATE_BYTES);
    const path = join(dependencies.swtpmDirectory, identity.uuid);
    if (await exists(path)) throw new VirtkeepError('file_exists', { path });
    context.effects.begin({ type: 'directory', path }, 'failure');
    await unpackTpmState(bytes, dependencies.swtpmDirectory, identity.uuid);
  }
  if (!state.nvram) return null;
  const bytes = await archive.readMember(state.nvram.member, signal, MAX_NVRAM_BYTES);
  const named = join(dependencies.nvramDirectory, `${identity.name}_VARS.fd`);
  const path = (await exists(named)) ? join(dependencies.nvramDirectory, `${identity.uuid}_VARS.fd`) : named;
  await declareNewFile(context, path, true);
  try {
    await writeFile(path, bytes, { flag: 'wx', flush: true, mode: 0o600 });
    await chmod(path, 0o600);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
  return path;
}
