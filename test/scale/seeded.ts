/** What the nodes of a simulated installation have: the same for the same numbers, so that nothing of it must be kept. */
import { AgentState, Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { BackupFile, Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';

const KINDS = { node: 1, domain: 2, disk: 3, pool: 4, file: 5 };
export const DISKS = 2;
/** Of some VMs the first lies on the shared pool; all others lie on their node's own. */
export const FILES = 3;
const SHARING = 10;
const isShared = (vm: number, number: number): boolean => number === 0 && vm % SHARING === 0;
const GiB = 2n ** 30n;
const NEWEST_MS = Date.parse('2026-11-01T00:00:00.000Z');
const DAY_MS = 86_400_000;

export const idOf = (kind: keyof typeof KINDS, node: number, number = 0): string =>
  `${String(KINDS[kind]).padStart(8, '0')}-${String(node).padStart(4, '0')}-4000-8000-${String(number).padStart(12, '0')}`;

/** All nodes have it. */
export const SHARED_POOL = idOf('pool', 9999);

export const ownPool = (node: number): string => idOf('pool', node);

export const nameOf = (node: number, vm: number): string =>
  `vm-${String((node * 7919 + vm * 104_729) % 1_000_003)}-${node}-${vm}`;

/** @param change so often it has changed since */
export function domainOf(node: number, vm: number, change = 0): Domain {
  const isOn = (vm + change) % 5 > 0;
  return Domain.fromPartial({
    id: idOf('domain', node, vm),
    name: nameOf(node, vm),
    description: change === 0 ? `VM ${vm} of node ${node}` : `changed ${change} times`,
    powerState: isOn ? PowerState.RUNNING : PowerState.OFF,
    agentState: isOn ? AgentState.CONNECTED : AgentState.UNSPECIFIED,
    memoryCount: BigInt(1024 * (1 + (vm % 8))),
    cpuCount: 1 + (vm % 4),
    template: vm === 0,
    parentId: vm > 0 && vm % 10 === 1 ? idOf('domain', node, 0) : '',
    osType: 'Linux',
    osVersion: 'Debian 12',
    persistent: true,
    disks: Array.from({ length: DISKS }, (_, disk) => ({
      id: idOf('disk', node, vm * DISKS + disk),
      name: `${nameOf(node, vm)}-${disk}`,
      path: `/pools/own/${nameOf(node, vm)}-${disk}.qcow2`,
      poolId: ownPool(node),
      targetDev: `vd${'ab'[disk]}`,
      targetBus: 'virtio',
      driverType: 'qcow2',
      virtualSize: 20n * GiB,
      allocatedSize: BigInt(1 + ((vm * 31 + disk) % 19)) * GiB,
      usedSize: BigInt(1 + ((vm * 31 + disk) % 19)) * GiB,
    })),
  });
}

export const poolsOf = (node: number): Pool[] => [
  poolOf(ownPool(node), `own-${node}`, { isBase: true }),
  poolOf(SHARED_POOL, 'shared', { shared: true, type: 'nfs' }),
];

const poolOf = (id: string, name: string, more: Partial<Pool>): Pool =>
  Pool.fromPartial({
    id,
    name,
    type: 'local',
    path: `/pools/${name}`,
    active: true,
    mounted: true,
    capacity: 1000n * GiB,
    allocation: 400n * GiB,
    available: 600n * GiB,
    backupTarget: true,
    ...more,
  });

function fileOf(node: number, vm: number, number: number): BackupFile {
  const id = idOf('file', node, vm * FILES + number);
  const created = new Date(NEWEST_MS - number * DAY_MS - vm * 60_000);
  const filename = `${nameOf(node, vm)}_${number}.tar`;
  return BackupFile.fromPartial({
    id,
    archiveId: id,
    poolId: isShared(vm, number) ? SHARED_POOL : ownPool(node),
    filename,
    path: `/pools/${isShared(vm, number) ? 'shared' : `own-${node}`}/backups/${filename}`,
    size: BigInt(1 + ((vm * 17 + number) % 40)) * GiB,
    type: 'tar',
    domainId: idOf('domain', node, vm),
    domainName: nameOf(node, vm),
    created,
    hashed: true,
    states: [{ number: 1, name: `backup_${number}`, created, memory: false, consistency: 'quiesced' }],
  });
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, number) => number);

const filesOf = (node: number, vms: number, areShared: boolean): BackupFile[] =>
  numbers(vms).flatMap(vm =>
    numbers(FILES)
      .filter(number => isShared(vm, number) === areShared)
      .map(number => fileOf(node, vm, number)),
  );

/** What a scan of the node's own pool finds. */
export const ownFiles = (node: number, vms: number): BackupFile[] => filesOf(node, vms, false);

/** What a scan of the shared pool finds, on whichever node. */
export const sharedFiles = (nodes: number, vms: number): BackupFile[] =>
  numbers(nodes).flatMap(node => filesOf(node, vms, true));
