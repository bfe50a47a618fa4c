/** Makes a saved state of a domain: the automatic one of a backup, or one that stays. */
import { stat } from 'node:fs/promises';
import { type Domain, DomainXml, type Snapshot, SnapshotCreate } from '@virtkeep/node-libvirt';
import { abortReason, sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { syncFile } from '@virtkeep/shared/files';
import { parseDomain } from '../domain-xml/index.ts';
import { STATE_TIMEOUT_MS } from '../libvirt/call-times.ts';
import { snapshotXml } from '../libvirt/domains.ts';
import type { StateMode, StatePlan } from './plan.ts';
import { diskStates, savedStateOf, stateRequestXml } from './state-xml.ts';
import { writeState } from './write-state.ts';

/** Measured: quiesced 0.2–0.7 s; with memory LIVE, because the guest then pauses half a second and not all the time. */
const FLAGS: Record<StateMode, number> = {
  quiesced: SnapshotCreate.DISK_ONLY | SnapshotCreate.ATOMIC | SnapshotCreate.QUIESCE,
  disks: SnapshotCreate.DISK_ONLY | SnapshotCreate.ATOMIC,
  memory: SnapshotCreate.LIVE | SnapshotCreate.ATOMIC,
};
/** How long the guest's agent may take to freeze its file systems; a hanging agent must not hang the backup. */
const FREEZE_TIMEOUT_SEC = 60;
const AGENT_BLOCK = -2;
const POLL_MS = 250;

/** Of whoever has a state made. */
export interface StateWatch {
  signal: AbortSignal;
  /** Told how much of the memory is saved, bytes. */
  progress: { total(bytes: number): void; done(bytes: number): void };
}

const AUTOMATIC_DESCRIPTION = 'Temporary state of a backup; removed when the backup ends.';

/** The automatic state of a backup: the definition need not follow, since the disks come back to the files that they had. @throws as makePlanned */
export function createAutomaticState(domain: Domain, plan: StatePlan, watch: StateWatch): Promise<void> {
  return makePlanned(domain, plan, AUTOMATIC_DESCRIPTION, watch);
}

/** A state that stays. Nothing is made where the definition would not follow. @throws power_state_conflict then; as makePlanned */
export async function createState(
  domain: Domain,
  plan: StatePlan,
  description: string,
  watch: StateWatch,
): Promise<void> {
  await requireOneLocation(domain, plan);
  await makePlanned(domain, plan, description, watch);
}

/**
 * libvirt takes another text, kind or volume for another disk: where the definition names the disk's file otherwise than the running VM, it
 * stays on that file, which is frozen, and the next start is without all that was written since.
 */
async function requireOneLocation(domain: Domain, { disks }: StatePlan): Promise<void> {
  if (!(await domain.isActive()) || !(await domain.isPersistent())) return;
  const [live, next] = [diskStates(await domain.xml()), diskStates(await domain.xml(DomainXml.INACTIVE))];
  for (const { targetDev } of disks.filter(({ overlayPath }) => overlayPath !== null)) {
    const [running, defined] = [live.get(targetDev), next.get(targetDev)];
    if (!running || !defined || running.location === defined.location) continue;
    if (!(await mayBeOne(running.sourcePath, defined.sourcePath))) continue;
    throw new VirtkeepError('power_state_conflict', {
      domain: domain.name,
      state: `running with its disk ${targetDev} as ${running.location} and defined with it as ${defined.location}`,
      action:
        'given a state that its definition would not follow; name the disk there as the running VM does',
    });
  }
}

/** Whether two texts, null of a volume, may name one file or device: another one is none of the running VM's. */
async function mayBeOne(one: string | null, other: string | null): Promise<boolean> {
  if (one === null || other === null) return true;
  return (await identityOf(one)) === (await identityOf(other));
}

async function identityOf(path: string): Promise<string> {
  const found = await stat(path).catch(() => null);
  if (found === null) return path;
  return found.isBlockDevice() ? `device ${found.rdev}` : `${found.dev} ${found.ino}`;
}

/**
 * Makes the state, of a running domain or (mode `disks`) of one that is off; its memory is durable then. libvirt leaves nothing when it refuses or is aborted; when the daemon dies in the middle the
 * overlays may exist, so the caller declares them before.
 *
 * Others may attach a disk between the look at the domain and this, and libvirt's defaults take such a disk in, with an overlay that nobody
 * has planned. It is looked for at the last moment, and again in what was made: the removal of the state takes that overlay away, too.
 * @throws VirtkeepError snapshot_failed, power_state_conflict, canceled; LibvirtError
 */
async function makePlanned(
  domain: Domain,
  plan: StatePlan,
  description: string,
  watch: StateWatch,
): Promise<void> {
  throwIfAborted(watch.signal);
  const { disks } = parseDomain(await domain.xml(), domain.name);
  const written = disks.flatMap(({ device, readonly, targetDev }) =>
    device === 'disk' && !readonly ? [targetDev] : [],
  );
  requirePlanned(domain, plan, written);
  const made = await snapshotXml(await make(domain, plan, description, watch));
  if (made !== null) requirePlanned(domain, plan, Object.keys(savedStateOf(made, true).overlays));
}

/** @throws VirtkeepError power_state_conflict for a disk that the plan does not know */
function requirePlanned(domain: Domain, plan: StatePlan, targets: readonly string[]): void {
  const planned = new Set(plan.disks.map(({ targetDev }) => targetDev));
  const other = targets.find(target => !planned.has(target));
  if (other === undefined) return;
  throw new VirtkeepError('power_state_conflict', {
    domain: domain.name,
    state: `not what it was (it got the disk ${other})`,
    action: 'given a state while its disks change; start again',
  });
}

async function make(
  domain: Domain,
  plan: StatePlan,
  description: string,
  watch: StateWatch,
): Promise<Snapshot> {
  const { signal } = watch;
  const xml = stateRequestXml({
    name: plan.name,
    description,
    disks: plan.disks,
    memoryPath: plan.memoryPath,
  });
  if (plan.mode === 'quiesced') await domain.setAgentTimeout(FREEZE_TIMEOUT_SEC).catch(() => {});
  try {
    const timeoutMs = plan.mode === 'memory' ? 0 : STATE_TIMEOUT_MS;
    const making = writeState(domain, xml, FLAGS[plan.mode], { timeoutMs });
    if (plan.mode === 'memory') await watchMemory(domain, making, watch);
    const made = await making;
    // libvirt flushes the memory, and then marks it as complete without
    if (plan.memoryPath !== null) await syncFile(plan.memoryPath);
    return made;
  } catch (error) {
    if (signal.aborted) throw abortReason(signal);
    throw new VirtkeepError(
      'snapshot_failed',
      { domain: domain.name, reason: reasonOf(error) },
      { cause: error },
    );
  } finally {
    if (plan.mode === 'quiesced') await domain.setAgentTimeout(AGENT_BLOCK).catch(() => {});
  }
}

/** Reports how much memory is saved, and aborts libvirt's job when the signal fires: that rolls back cleanly. */
async function watchMemory(
  domain: Domain,
  making: Promise<unknown>,
  { signal, progress }: StateWatch,
): Promise<void> {
  let ended = false;
  const finished = making.finally(() => {
    ended = true;
  });
  finished.catch(() => {});
  while (!ended) {
    await Promise.race([finished.then(noop, noop), sleep(POLL_MS)]);
    if (ended) break;
    if (signal.aborted) {
      await domain.abortJob().catch(noop);
      continue;
    }
    const stats = await domain.jobStats().catch(() => null);
    const [done, total] = [stats?.params.memory_processed, stats?.params.memory_total];
    if (typeof total === 'number' && total > 0) progress.total(total);
    if (typeof done === 'number') progress.done(done);
  }
  await finished;
  throwIfAborted(signal);
}

function noop(): void {}
