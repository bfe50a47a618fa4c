/** Of each VM: its protection, and its last backup. */

import type { VmMeasures } from '../../services/protection/protection.ts';
import { PROTECTION_STATES } from '../../services/protection/rules.ts';
import { type Family, familyText, type Labelled, labelText } from './families.ts';

const seconds = (ms: number | null): number | null => (ms === null ? null : ms / 1000);

export const VM_FAMILIES: readonly Family<VmMeasures>[] = [
  {
    name: 'virtkeep_vm_protection_state',
    help: 'Always 1, with the state of the VM: protected, late, failing, never or excluded',
    value: () => 1,
    labels: ({ node, state }) => ({ node, state }),
  },
  {
    name: 'virtkeep_vm_last_good_backup_timestamp_seconds',
    help: 'Time of the newest good restore point of the VM with all of its disks; absent: it has none',
    value: ({ lastGood }) => seconds(lastGood),
  },
  {
    name: 'virtkeep_vm_last_backup_duration_seconds',
    help: 'How long the last backup of the whole VM took that succeeded',
    value: ({ lastBackup }) => seconds(lastBackup?.durationMs ?? null),
  },
  {
    name: 'virtkeep_vm_last_backup_read_bytes',
    help: 'Bytes of disks and memory that the last backup of the whole VM went through, holes included',
    value: ({ lastBackup }) => lastBackup?.bytesRead ?? null,
  },
  {
    name: 'virtkeep_vm_last_backup_written_bytes',
    help: 'By how much the archive of the VM grew with its last backup of the whole VM',
    value: ({ lastBackup }) => lastBackup?.bytesWritten ?? null,
  },
];

const COUNTS: Family<{ number: number }> = {
  name: 'virtkeep_protection_vms',
  help: 'VMs by their protection state',
  value: ({ number }) => number,
};

/** The measures of one instant, in pieces. @yields after each some VMs have been looked at; nothing to write yet when it is empty */
export function* vmText(measures: Iterable<VmMeasures>): Generator<string> {
  const vms: Labelled<VmMeasures>[] = [];
  const counts = new Map(PROTECTION_STATES.map(state => [state, 0]));
  for (const thing of measures) {
    vms.push({ thing, labels: labelText({ id: thing.id, vm: thing.name }) });
    counts.set(thing.state, counts.get(thing.state)! + 1);
    if (vms.length % VMS_AT_ONCE === 0) yield '';
  }
  const states = [...counts].map(([state, number]) => ({ thing: { number }, labels: labelText({ state }) }));
  yield* familyText(COUNTS, states);
  for (const family of VM_FAMILIES) yield* familyText(family, vms);
}

const VMS_AT_ONCE = 1000;
