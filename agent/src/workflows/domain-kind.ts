/**
 * Kinds of domains that are lawful and still do not bear all that is done to disks: the one place that says what is refused.
 *
 * | the domain                              | what would last on its disks, or changes their layers | a plain full backup            |
 * |-----------------------------------------|--------------------------------------------------------|--------------------------------|
 * | transient: libvirt knows it while it    | refused: whoever starts it again gives it the disks    | yes; its layer is merged back  |
 * | runs; somebody else keeps its XML       | that they know, below the layers                       | before it can be forgotten     |
 * | off with its memory saved               | refused: the memory goes on with the files it names    | of the disks alone: a crash    |
 *
 * "What would last": saved states, increments, loans, and work on disks while the domain is off.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';

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

/** @throws VirtkeepError domain_transient, domain_memory_saved */
export function requireLasting(kind: DomainKind, action: string): void {
  const refusal = lastingRefusal(kind, action);
  if (refusal) throw refusal;
}
