/** Takes back files, directories and domains that an operation made, and nothing that only has their names. */
import { basename, dirname } from 'node:path';
import { DomainXml } from '@virtkeep/node-libvirt';
import { removePath } from '@virtkeep/shared/files';
import { parseDomain } from '../../domain-xml/index.ts';
import {
  type ImageDependencies,
  isOwnFile,
  type OwnFile,
  removeEmptyDirectories,
  removeImages,
} from '../../images/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import { BACKUPS_DIR, isInside } from '../../pools/index.ts';
import { destroyIfActive, undefineWholly } from '../domain/undefine.ts';
import type { Effect } from '../effect.ts';
import { unfinishedCopyOf } from '../firmware/state-firmware.ts';

type Warn = (text: string) => void;

/**
 * Removes a file that the operation made. One that somebody has come to use is left and named: it will never be the
 * operation's again. Idempotent.
 * @throws VirtkeepError io_failed, libvirt_unreachable: tried again
 */
export async function removeOwnFile(
  dependencies: ImageDependencies & { nvramDirectory: string },
  effect: OwnFile,
  signal: AbortSignal,
  warn: Warn,
): Promise<void> {
  // no domain ever has one: neither libvirt nor other nodes need to be there for it
  if (effect.made === undefined && isNoImage(effect, dependencies)) {
    if (isInside(effect.path, dependencies.nvramDirectory)) await removePath(unfinishedCopyOf(effect.path));
    return removePath(effect.path);
  }
  if (!(await isOwnFile(effect))) return;
  // without proof, of an earlier version
  const alone = effect.made === undefined;
  const left = await removeImages(dependencies, [effect.path], { unanswered: 'take', alone, signal });
  for (const { text } of left) warn(text);
}

/** Archives and their tails, and copies of UEFI variables. */
function isNoImage({ path, claim }: OwnFile, { nvramDirectory }: { nvramDirectory: string }): boolean {
  if (claim !== undefined) return false;
  return dirname(path).split('/').includes(BACKUPS_DIR) || isInside(path, nvramDirectory);
}

/** Removes a directory that the operation made; what others have put there stays with it. Idempotent. */
export async function removeOwnDirectory(
  { swtpmDirectory }: { swtpmDirectory: string },
  { path, own }: Extract<Effect, { type: 'directory' }>,
): Promise<void> {
  const isOwn = own ?? (isInside(path, swtpmDirectory) || /^offline-[0-9a-f-]{36}$/.test(basename(path)));
  if (isOwn) await removePath(path, { recursive: true });
  else await removeEmptyDirectories(path);
}

/** Stops and undefines a domain that a restore made. Its files are effects of their own. */
export async function removeOwnDomain(
  { libvirt }: Pick<ImageDependencies, 'libvirt'>,
  { domainId, files }: Extract<Effect, { type: 'domain' }>,
  warn: Warn,
): Promise<void> {
  const domain = libvirt().domain(domainId);
  try {
    const { name, disks } = parseDomain(await domain.xml(DomainXml.INACTIVE), domainId);
    const isOwn = !files?.length || disks.some(({ path }) => path !== undefined && files.includes(path));
    if (!isOwn) {
      warn(`The domain ${name} was left: it has none of the disks that were made for it.`);
      return;
    }
  } catch (error) {
    if (isNoDomain(error)) return;
    throw error;
  }
  await destroyIfActive(domain);
  await undefineWholly(domain);
}
