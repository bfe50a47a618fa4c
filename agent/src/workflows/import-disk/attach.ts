/** Attaches a new disk to a domain that runs or not, and takes it off again. What is true stands in the domain's XML alone. */
import { Affect, ErrorCode, isLibvirtError } from '@virtkeep/node-libvirt';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { changedSource } from '../../disks/index.ts';
import type { DomainConfig } from '../../domain-xml/index.ts';
import { hasNoSlot } from '../../libvirt/errors.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { AttachedDisk } from '../effect.ts';
import { type Party, readParty } from '../lend/lender.ts';
import { requireParty } from '../lend/parties.ts';
import { type OwnDisk, ownDiskXml } from './own-disk.ts';

/** So often the domain may be started or stopped by others while it gets its disk. */
const TRIES = 4;

/**
 * Attaches the disk to the running domain and to its definition, whatever others do with its power meanwhile.
 * @throws VirtkeepError domain_not_found, no_free_slot, power_state_conflict; LibvirtError
 */
export async function attachOwnDisk(
  dependencies: Pick<WorkflowDependencies, 'libvirt'>,
  domainId: string,
  disk: OwnDisk,
): Promise<void> {
  for (let tried = 0; tried < TRIES; tried += 1) {
    const party = await requireParty(dependencies as WorkflowDependencies, domainId);
    const flags = missingFrom(party, disk.path);
    if (flags === 0) return;
    await attachTo(party, disk, flags);
  }
  const { name } = await requireParty(dependencies as WorkflowDependencies, domainId);
  throw new VirtkeepError('power_state_conflict', {
    domain: name,
    state: 'being started and stopped',
    action: 'given a further disk',
  });
}

const hasDisk = (form: DomainConfig, path: string): boolean => form.disks.some(disk => disk.path === path);

/** Where the disk is not yet. */
function missingFrom({ live, config }: Party, path: string): number {
  return (
    (live && !hasDisk(live, path) ? Affect.LIVE : 0) | (config && !hasDisk(config, path) ? Affect.CONFIG : 0)
  );
}

async function attachTo({ domain, name, active }: Party, disk: OwnDisk, flags: number): Promise<void> {
  try {
    await domain.attachDevice(ownDiskXml(disk), flags);
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
 * Undo of the effect `attached_disk`. One that somebody has written to since is left and named: it would take their data with it.
 * @throws VirtkeepError device_did_not_detach while the guest keeps it; LibvirtError: tried again
 */
export async function undoAttach(
  dependencies: Pick<WorkflowDependencies, 'libvirt'>,
  { domainId, mark, ...disk }: AttachedDisk,
  { log, warn }: { log: Logger; warn: (text: string) => void },
): Promise<void> {
  const before = await readParty(dependencies.libvirt(), domainId);
  const forms = [before?.live, before?.config].filter(form => form !== undefined);
  if (!before || !forms.some(form => hasDisk(form, disk.path))) return;
  const isWritten = async () => {
    if ((await changedSource([{ path: disk.path, mark }])) === undefined) return false;
    warn(`The disk ${disk.targetDev} (${disk.path}) was left on ${before.name}: it was written to.`);
    return true;
  };
  if (await isWritten()) return;
  // the guest first: while it keeps the disk the definition has it, too
  await takeOff(before, disk, Affect.LIVE, log);
  const asked = await readParty(dependencies.libvirt(), domainId);
  if (asked?.live && hasDisk(asked.live, disk.path))
    throw new VirtkeepError('device_did_not_detach', { id: domainId });
  // the guest writes what it had not written yet when it lets go: the definition keeps the disk then, and so its file stays
  if (asked?.config && hasDisk(asked.config, disk.path) && (await isWritten())) return;
  if (asked) await takeOff(asked, disk, Affect.CONFIG, log);
  const after = await readParty(dependencies.libvirt(), domainId);
  if (after?.config && hasDisk(after.config, disk.path))
    throw new VirtkeepError('device_did_not_detach', { id: domainId });
}

/** libvirt waits some seconds for the guest, and says nothing when it did not let go: the XML tells afterwards. */
async function takeOff(
  { domain, live, config }: Party,
  disk: OwnDisk,
  flag: number,
  log: Logger,
): Promise<void> {
  const form = flag === Affect.LIVE ? live : config;
  const own = form?.disks.find(({ path }) => path === disk.path);
  if (!own) return;
  try {
    await domain.detachDevice(ownDiskXml({ ...disk, targetDev: own.targetDev, bus: own.bus }), flag);
  } catch (error) {
    if (!isLibvirtError(error)) throw error;
    log.info('a disk could not be taken off', {
      domain: domain.uuid,
      path: disk.path,
      reason: reasonOf(error),
    });
  }
}
