/** What the tests of merges share: a state of the disks alone, made without a workflow. */
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { createState, planState } from '../../../agent/src/snapshots/index.ts';
import type { Guest } from '../../lab/guest.ts';
import type { SnapshotLab } from './lab.ts';

export const signal: AbortSignal = new AbortController().signal;

export async function makeState(lab: SnapshotLab, guest: Guest, name: string): Promise<void> {
  const domain = lab.libvirt.domain(await lab.uuid(guest), guest.name);
  const { disks } = parseDomain(await domain.xml());
  const plan = planState(
    guest.name,
    { name, operationId: newId(), mode: 'disks' },
    disks.map(({ targetDev, path }) => ({ targetDev, path: path!, block: false, included: true })),
    lab.world.node.pool(0).path,
  );
  await createState(domain, plan, '', { signal, progress: { total() {}, done() {} } });
}
