/** Plugs a lent disk into a domain and takes it out again. What is true stands in the live XML alone. */
import { Affect, type Domain, ErrorCode, isLibvirtError } from '@virtkeep/node-libvirt';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { type DomainConfig, type LentDisk, lentDiskIdOf, lentDiskXml } from '../../domain-xml/index.ts';
import { hasNoSlot, isNoDomain } from '../../libvirt/errors.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { disksOfParty, type Party, readParty } from './lender.ts';
import { requireParty } from './parties.ts';

/** So often the domain may be started or stopped by others while it gets the disk. */
const TRIES = 4;

/**
 * Attaches the disk, to the running domain and to its definition, whatever others do with its power meanwhile.
 * @throws VirtkeepError domain_not_found, no_free_slot, power_state_conflict; libvirt_failed as LibvirtError
 */
export async function plug(
  dependencies: WorkflowDependencies,
  domainId: string,
  disk: LentDisk,
): Promise<void> {
  let domain = domainId;
  for (let tried = 0; tried < TRIES; tried += 1) {
    const party = await requireParty(dependencies, domainId);
    const flags = missingFrom(party, disk);
    if (flags === 0) return;
    await plugInto(party, disk, flags);
    domain = party.name;
  }
  const [state, action] = ['being started and stopped', 'given a disk of another domain'];
  throw new VirtkeepError('power_state_conflict', { domain, state, action });
}

/** Where the disk is not yet. */
function missingFrom({ live, config }: Party, { diskId, path }: LentDisk): number {
  const isIn = (form: DomainConfig) =>
    form.disks.some(disk => lentDiskIdOf(disk.alias) === diskId && disk.path === path);
  return (live && !isIn(live) ? Affect.LIVE : 0) | (config && !isIn(config) ? Affect.CONFIG : 0);
}

async function plugInto({ domain, name, active }: Party, disk: LentDisk, flags: number): Promise<void> {
  try {
    await domain.attachDevice(lentDiskXml(disk), flags);
  } catch (error) {
    if (!isLibvirtError(error)) throw error;
    if (active && hasNoSlot(error))
      throw new VirtkeepError('no_free_slot', { domain: name }, { cause: error });
    // it was stopped between looking and acting
    if (active && error.is(ErrorCode.OPERATION_INVALID) && !(await domain.isActive())) return;
    throw error;
  }
}

/**
 * Asks the guest for the disk and takes it out of the definition. libvirt waits up to five seconds for the guest, and says
 * nothing when it did not let go (measured): so the answer is what the XML says afterwards.
 * @returns whether the disk is gone, also when it was before
 * @throws LibvirtError while the domain cannot be asked
 */
export async function unplug(
  { libvirt }: WorkflowDependencies,
  domainId: string,
  isMeant: (disk: DomainConfig['disks'][number]) => boolean,
  log: Logger,
): Promise<boolean> {
  const before = await readParty(libvirt(), domainId);
  if (!before) return true;
  const { domain, config, live } = before;
  await take(domain, config?.disks.filter(isMeant), Affect.CONFIG, log);
  await take(domain, live?.disks.filter(isMeant), Affect.LIVE, log);
  const after = await readParty(libvirt(), domainId);
  return !after || !disksOfParty(after).some(isMeant);
}

async function take(
  domain: Domain,
  disks: DomainConfig['disks'] | undefined,
  flag: number,
  log: Logger,
): Promise<void> {
  for (const disk of disks ?? []) {
    const { path = '', format = 'raw', type, targetDev } = disk;
    const xml = lentDiskXml({
      diskId: lentDiskIdOf(disk.alias) ?? '',
      path,
      format,
      block: type === 'block',
      targetDev,
    });
    try {
      await domain.detachDevice(xml, flag);
    } catch (error) {
      // gone already, stopped meanwhile, or asked before: the XML tells which
      if (isNoDomain(error)) return;
      log.info('a disk could not be asked for', { domain: domain.uuid, targetDev, reason: reasonOf(error) });
    }
  }
}
