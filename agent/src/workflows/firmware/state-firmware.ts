/**
 * The firmware's state of a VM: UEFI variables and the software TPM's state, as they are now and as its saved states have
 * them.
 *
 * libvirt's external states hold neither, so a copy of both is kept for each saved state in the directory of the UEFI
 * variables, as `virtkeep_<domain uuid>_<state id>.nvram.fd` and `.tpm.tar`. The names alone tell whose they are: nothing
 * else is to be kept in step with them, and what no state needs any more is seen by its name. An empty file says that
 * there was nothing yet (the VM had never been started); none at all, that nobody looked.
 */
import { constants } from 'node:fs';
import { mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Domain, DomainXml } from '@virtkeep/node-libvirt';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';
import { replaceWhole } from '@virtkeep/shared/foreign-file';
import { type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import { loadStates, savedStateId } from '../../snapshots/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { variablesOfName } from './named-variables.ts';
import { packTpmState, replaceTpmState } from './tpm-state.ts';

type Dependencies = Pick<WorkflowDependencies, 'nvramDirectory' | 'swtpmDirectory'>;

/** Null: there is none; absent: nothing is known of it. */
export interface Firmware {
  nvram?: Buffer | null;
  tpm?: Buffer | null;
}

/** What of it a VM has. */
export interface FirmwareParts {
  domainId: string;
  nvramPath: string | null;
  /** No definition names the file: libvirt finds it by the domain's name. Absent in a journal of an earlier version. */
  nvramByName?: boolean;
  tpm: boolean;
}

/** What of a domain's firmware has a state of its own: UEFI variables, software TPM. */
export function firmwarePartsOf(
  { nvramDirectory }: Pick<Dependencies, 'nvramDirectory'>,
  config: DomainConfig,
): FirmwareParts {
  const byName = config.nvram?.byName === true;
  const named = byName ? variablesOfName(nvramDirectory, config.name) : null;
  return {
    domainId: config.uuid,
    nvramPath: config.nvram?.path ?? named,
    ...(byName && { nvramByName: true }),
    tpm: config.tpm?.backend === 'emulator' && config.tpm.elsewhere === undefined,
  };
}

/** What of a VM's firmware has a state that nobody copies, as a sentence; null: there is none. */
export function notCopiedFirmware({ tpm }: DomainConfig): string | null {
  if (tpm?.backend !== 'emulator' || tpm.elsewhere === undefined) return null;
  return `The state of the TPM lies in ${tpm.elsewhere}, not where libvirt has it, and is not copied: what the guest sealed with it needs its recovery key elsewhere.`;
}

/** The parts of the VM's next start. @throws LibvirtError */
export async function definedFirmware(
  dependencies: Pick<Dependencies, 'nvramDirectory'>,
  domain: Domain,
): Promise<FirmwareParts> {
  return firmwarePartsOf(dependencies, parseDomain(await domain.xml(DomainXml.INACTIVE), domain.name));
}

/** The VM's own state as it is now. @throws VirtkeepError io_failed */
export async function readFirmware(
  { swtpmDirectory }: Dependencies,
  { domainId, nvramPath, tpm }: FirmwareParts,
): Promise<Firmware> {
  return {
    ...(nvramPath === null ? {} : { nvram: await readIfThere(nvramPath) }),
    ...(tpm ? { tpm: await packTpmState(swtpmDirectory, domainId) } : {}),
  };
}

/** Replaces the VM's own state; it is off. What is absent stays. @throws VirtkeepError io_failed, archive_damaged */
async function replaceFirmware(
  { swtpmDirectory }: Dependencies,
  { domainId, nvramPath, tpm }: FirmwareParts,
  firmware: Firmware,
): Promise<void> {
  if (nvramPath !== null && firmware.nvram !== undefined) await writeVariables(nvramPath, firmware.nvram);
  if (tpm && firmware.tpm !== undefined) await replaceTpmState(firmware.tpm, swtpmDirectory, domainId);
}

/** In place: the file keeps its owner, and its room on a full disk. Without one libvirt makes it anew at the next start. */
async function writeVariables(path: string, bytes: Buffer | null): Promise<void> {
  try {
    if (bytes === null) await rm(path, { force: true });
    else await overwrite(path, bytes);
    await syncDirectoryOf(path);
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

async function overwrite(path: string, bytes: Buffer): Promise<void> {
  const file = await open(path, constants.O_WRONLY | constants.O_CREAT, 0o600);
  try {
    await file.writeFile(bytes);
    await file.truncate(bytes.length);
    await file.sync();
  } finally {
    await file.close();
  }
}

const prefixOf = (domainId: string): string => `virtkeep_${domainId}_`;

/** Files of a copy. @param key id of the saved state, or of the operation that a copy is made for */
export function keptFirmwarePaths(
  { nvramDirectory }: Dependencies,
  domainId: string,
  key: string,
): { nvram: string; tpm: string } {
  const stem = join(nvramDirectory, `${prefixOf(domainId)}${key}`);
  return { nvram: `${stem}.nvram.fd`, tpm: `${stem}.tpm.tar` };
}

/** Keeps a copy, each file whole or not at all. @throws VirtkeepError io_failed */
export async function keepFirmware(
  dependencies: Dependencies,
  domainId: string,
  key: string,
  { nvram, tpm }: Firmware,
): Promise<void> {
  const paths = keptFirmwarePaths(dependencies, domainId, key);
  if (nvram !== undefined) await writeWhole(paths.nvram, nvram ?? Buffer.alloc(0));
  if (tpm !== undefined) await writeWhole(paths.tpm, tpm ?? Buffer.alloc(0));
}

/** A copy while it is written: what a crash leaves of one that is not whole. */
export const unfinishedCopyOf = (path: string): string => `${path}.new`;

async function writeWhole(path: string, bytes: Buffer): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o711 });
    await replaceWhole(path, bytes, unfinishedCopyOf(path));
  } catch (error) {
    throw fromIoError(error, 'writing', path);
  }
}

/** Reads a copy. @throws VirtkeepError io_failed */
export async function readKeptFirmware(
  dependencies: Dependencies,
  domainId: string,
  key: string,
): Promise<Firmware> {
  const paths = keptFirmwarePaths(dependencies, domainId, key);
  const [nvram, tpm] = [await readIfThere(paths.nvram), await readIfThere(paths.tpm)];
  return {
    ...(nvram === null ? {} : { nvram: nvram.length === 0 ? null : nvram }),
    ...(tpm === null ? {} : { tpm: tpm.length === 0 ? null : tpm }),
  };
}

async function readIfThere(path: string): Promise<Buffer | null> {
  try {
    return await readFile(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw fromIoError(error, 'reading', path);
  }
}

/** Keeps a copy of what the VM has now for a saved state that was just made. @throws VirtkeepError io_failed; LibvirtError */
export async function keepFirmwareOfState(
  dependencies: Dependencies,
  domain: Domain,
  name: string,
): Promise<void> {
  const parts = firmwarePartsOf(dependencies, parseDomain(await domain.xml(), domain.name));
  if (parts.nvramPath === null && !parts.tpm) return;
  const state = (await loadStates(domain)).find(candidate => candidate.name === name);
  if (!state) return;
  const key = savedStateId(parts.domainId, state);
  await keepFirmware(dependencies, parts.domainId, key, await readFirmware(dependencies, parts));
}

/** The copies that lie there for a domain, whatever they are for. @throws VirtkeepError io_failed */
export async function keptFirmwareFiles(
  { nvramDirectory }: Pick<Dependencies, 'nvramDirectory'>,
  domainId: string,
): Promise<string[]> {
  try {
    const names = await readdir(nvramDirectory);
    return names.filter(name => name.startsWith(prefixOf(domainId))).map(name => join(nvramDirectory, name));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw fromIoError(error, 'reading', nvramDirectory);
  }
}

/**
 * Removes the copies of saved states that the domain has no more. The caller holds the domain, so that none is being made.
 * @throws VirtkeepError io_failed; LibvirtError
 */
export async function pruneFirmware(
  dependencies: Dependencies & Pick<WorkflowDependencies, 'libvirt'>,
  domainId: string,
): Promise<void> {
  const files = await keptFirmwareFiles(dependencies, domainId);
  if (files.length === 0) return;
  const needed = new Set<string>();
  try {
    for (const state of await loadStates(dependencies.libvirt().domain(domainId))) {
      const { nvram, tpm } = keptFirmwarePaths(dependencies, domainId, savedStateId(domainId, state));
      needed.add(nvram).add(tpm);
    }
  } catch (error) {
    if (!isNoDomain(error)) throw error;
  }
  for (const path of files) {
    if (needed.has(path)) continue;
    await rm(path, { force: true }).catch(error => {
      throw fromIoError(error, 'removing', path);
    });
  }
}

/** What a revert replaces, and under which key it is kept until the revert is sure. */
export interface FormerFirmware extends FirmwareParts {
  key: string;
}

/**
 * Gives a VM that is off the firmware's state of a saved state.
 * @returns what is not known of that, as a sentence; null when all is
 * @throws VirtkeepError io_failed, archive_damaged
 */
export async function exchangeFirmware(
  dependencies: Dependencies,
  former: FormerFirmware,
  stateId: string,
): Promise<string | null> {
  const desired = await readKeptFirmware(dependencies, former.domainId, stateId);
  const present = await readFirmware(dependencies, former);
  await keepFirmware(dependencies, former.domainId, former.key, present);
  await replaceFirmware(dependencies, former, desired);
  const unknown = [
    ...(present.nvram && desired.nvram === undefined ? ['UEFI variables'] : []),
    ...(present.tpm && desired.tpm === undefined ? ['state of the TPM'] : []),
  ];
  if (unknown.length === 0) return null;
  return `The saved state holds no copy of the ${unknown.join(' and the ')}; what the VM has was kept.`;
}

/** Undoes the exchange, as far as it had begun. Idempotent. @throws VirtkeepError io_failed */
export async function putBackFirmware(dependencies: Dependencies, former: FormerFirmware): Promise<void> {
  const kept = await readKeptFirmware(dependencies, former.domainId, former.key);
  await replaceFirmware(dependencies, former, kept);
}
