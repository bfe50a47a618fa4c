/**
 * Kinds of domains that are lawful and still do not bear all that is done to disks: the one place that says what is refused.
 *
 * | the domain                             | what lasts on its disks, or changes their layers       | a plain full backup            |
 * |----------------------------------------|--------------------------------------------------------|--------------------------------|
 * | transient: libvirt knows it while it   | refused: whoever starts it again gives it the disks    | yes; its layer is merged back, |
 * | runs; somebody else keeps its XML      | that they know, below the layers                       | or kept (forgotten-layers.ts)  |
 * | off with its memory saved              | refused: the memory goes on with the files it names    | of the disks alone: a crash    |
 * | with an encrypted disk                 | refused: libvirt 9.0 puts a layer in plain text on it  | off, of one file, qcow2 or raw |
 * |                                        | (measured), and a borrower would read ciphertext       | LUKS; layers are refused       |
 *
 * "What would last": saved states, increments, loans, and work on disks while the domain is off.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { isEncrypted } from '../../disks/index.ts';
import { isRawLuks } from './raw-luks.ts';

export interface DomainKind {
  name: string;
  persistent: boolean;
  memorySaved: boolean;
}

/** @throws LibvirtError */
export async function kindOf(domain: Domain): Promise<DomainKind> {
  const [active, persistent] = [await domain.isActive(), await domain.isPersistent()];
  return { name: domain.name, persistent, memorySaved: !active && (await domain.hasManagedSave()) };
}

/**
 * Why nothing may be done to the domain that stays on its disks, or changes what they consist of; undefined when it may.
 * @param action completes "it cannot be …": "given a saved state", "reverted"
 */
export function lastingRefusal(
  { name, persistent, memorySaved }: DomainKind,
  action: string,
): VirtkeepError | undefined {
  if (!persistent) return new VirtkeepError('domain_transient', { domain: name, action });
  if (memorySaved) return new VirtkeepError('domain_memory_saved', { domain: name, action });
  return undefined;
}

/** A disk with what the headers of its layers say, top to bottom; none when they were not read. */
export interface DiskWithLayers {
  targetDev: string;
  /** As the definition says. */
  encrypted: boolean;
  layers: readonly { format?: string; encrypted?: boolean; backingFormat?: string }[];
}

/**
 * @param action completes "it cannot be …"
 * @throws VirtkeepError vdisk_encrypted
 */
export function refuseEncrypted(domain: string, disks: readonly DiskWithLayers[], action: string): void {
  const disk = disks.find(({ encrypted, layers }) => encrypted || isEncrypted(layers));
  if (disk) throw new VirtkeepError('vdisk_encrypted', { disk: disk.targetDev, domain, action });
}

/**
 * An encrypted disk goes into a backup only as the one file that it is: whatever else is copied would be plain text, or
 * ciphertext that passes for a disk.
 * @param frozen a saved state would put a layer on it
 * @throws VirtkeepError vdisk_encrypted
 */
export function refuseUncopyable(domain: string, disk: DiskWithLayers, frozen: boolean): void {
  if (frozen)
    refuseEncrypted(domain, [disk], 'backed up by a saved state, whose layer would be in plain text');
  const isOneImage = disk.layers.length === 1 && (disk.layers[0]!.format === 'qcow2' || isRawLuks(disk));
  if (!isOneImage) refuseEncrypted(domain, [disk], 'backed up with layers');
}

/** @throws VirtkeepError domain_transient, domain_memory_saved */
export function requireLasting(kind: DomainKind, action: string): void {
  const refusal = lastingRefusal(kind, action);
  if (refusal) throw refusal;
}
