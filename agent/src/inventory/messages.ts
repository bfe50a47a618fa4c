// Facts → the messages of the contract. Pure.
import { basename } from 'node:path';
import {
  AgentState,
  type Disk,
  type Domain,
  type GuestInfo,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { diskId, type Layer } from '../disks/index.ts';
import {
  type AgentChannel,
  attachmentsOf,
  type DiskConfig,
  type DomainConfig,
  isLent,
} from '../domain-xml/index.ts';
import { backupTargetRefusal, type PoolPlace, type PoolRecord, pathOf, poolOfPath } from '../pools/index.ts';
import { AUTOMATIC_PREFIX, type StateFacts, savedStateMessage } from '../snapshots/index.ts';
import { type DiskFacts, firstOwnLayer } from './disk-facts.ts';
import type { DomainFacts } from './domain-facts.ts';

export interface DomainScope {
  pools: readonly PoolPlace[];
  disks: DiskFacts | undefined;
  /** Files of the template's disks, when the domain is a thin clone and its template is on this node. */
  templateFiles?: ReadonlySet<string> | undefined;
  /** The domain of this node that lends a disk to this one, when the metadata here does not tell. */
  ownerOf?: (diskId: string) => string | undefined;
  /** The state of disks lent from zfs, of which libvirt knows nothing. */
  lentState?: StateFacts | undefined;
  /** What its guest told of itself. */
  guestInfo?: GuestInfo | undefined;
  /** Operation that holds the domain. */
  lockedBy: string;
}

export function domainMessage(facts: DomainFacts, scope: DomainScope): Domain {
  const { config } = facts;
  const record = config && { statesDeleted: config.metadata.statesDeleted };
  const drives = config?.disks ?? [];
  const poolIdOf = (path: string | undefined) => (path && poolOfPath(path, scope.pools)?.id) || '';
  return {
    id: facts.uuid,
    name: facts.name,
    description: config?.description ?? '',
    powerState: facts.power,
    agentState: agentState(config?.agentChannel ?? 'absent'),
    memoryCount: BigInt(config?.memoryMiB ?? 0),
    cpuCount: config?.vcpus ?? 0,
    template: config?.metadata.template ?? false,
    parentId: config?.metadata.parent?.id ?? '',
    disks: drives.filter(disk => isOwnDisk(disk, config!)).map(disk => diskMessage(disk, config!, scope)),
    cdroms: drives
      .filter(disk => disk.device === 'cdrom')
      .map(disk => ({
        targetDev: disk.targetDev,
        path: disk.path ?? disk.source,
        poolId: poolIdOf(disk.path),
      })),
    luns: drives
      .filter(disk => disk.device === 'lun')
      .map(disk => ({ targetDev: disk.targetDev, source: disk.source })),
    mdevs: config?.hostdevs.flatMap(device => (device.type === 'mdev' ? (device.address ?? []) : [])) ?? [],
    snapshots: [...facts.savedStates, ...(scope.lentState ? [scope.lentState] : [])].map(({ name }) => name),
    savedStates: [...facts.savedStates, ...(scope.lentState ? [scope.lentState] : [])]
      .filter(state => !state.name.startsWith(AUTOMATIC_PREFIX))
      .map(state => savedStateMessage(facts.uuid, state, record)),
    attachments: config
      ? attachmentsOf(formOf(config, facts.saved), scope.ownerOf).map(
          ({ detaching = false, ...attachment }) => ({
            ...attachment,
            detaching,
          }),
        )
      : [],
    loans: (config?.metadata.loans ?? []).map(
      ({ diskId: id, borrowerId, borrowerNodeId = '', mark = '' }) => ({
        diskId: id,
        borrowerId,
        borrowerNodeId,
        mark,
      }),
    ),
    templateVersion: config?.metadata.templateVersion ?? 0,
    parentVersion: config?.metadata.parent?.version ?? 0,
    guestInfo: scope.guestInfo,
    statesDeleted: config?.metadata.statesDeleted,
    osType: config?.os.type ?? 'Other',
    osVersion: config?.os.version ?? '',
    persistent: facts.persistent,
    lockedBy: scope.lockedBy,
    unreadable: config === undefined,
    // given when it is shown
    revision: 0n,
  };
}

/** With the disks that its saved memory goes on with. */
function formOf({ disks, metadata }: DomainConfig, saved: DomainConfig | undefined) {
  return { disks: [...disks, ...(saved?.disks ?? [])], metadata };
}

/** A disk of the domain itself: neither a drive, nor a LUN, nor another domain's. */
function isOwnDisk(disk: DiskConfig, { metadata }: DomainConfig): boolean {
  return disk.device === 'disk' && !isLent(disk, metadata);
}

function diskMessage(disk: DiskConfig, config: DomainConfig, scope: DomainScope): Disk {
  const path = pathOf(disk, scope.pools);
  const layers = scope.disks?.get(disk.targetDev)?.layers ?? [];
  const paths = layers.length > 0 ? layers.map(layer => layer.path) : [path ?? disk.source];
  const first = firstOwnLayer(paths, config.metadata.parent !== undefined, scope.templateFiles);
  const pool = poolOfPath(first, scope.pools);
  return {
    id: diskId(first, pool),
    name: basename(first).replace(/\.(qcow2|raw|img)$/, ''),
    path: path ?? disk.source,
    poolId: (path && poolOfPath(path, scope.pools)?.id) || '',
    targetDev: disk.targetDev,
    targetBus: disk.bus,
    driverType: disk.format ?? 'raw',
    driverCache: disk.cache ?? '',
    readonly: disk.readonly,
    shareable: disk.shareable,
    virtualSize: BigInt(layers[0]?.virtualSize ?? 0),
    allocatedSize: BigInt(layers[0]?.allocatedSize ?? 0),
    usedSize: BigInt(ownBytes(layers.slice(0, paths.indexOf(first) + 1))),
    backingChain: paths.slice(1),
  };
}

/** A device has no holes that anybody could tell: all of it is taken. */
function ownBytes(layers: readonly Layer[]): number {
  return layers.reduce(
    (sum, { path, fileSize, allocatedSize }) => sum + (path.startsWith('/dev/') ? fileSize : allocatedSize),
    0,
  );
}

function agentState(channel: AgentChannel): AgentState {
  if (channel === 'absent') return AgentState.NO_CHANNEL;
  return channel === 'connected' ? AgentState.CONNECTED : AgentState.DISCONNECTED;
}

export function poolMessage(pool: PoolRecord, counts: { disks: number; files: number }, node: string): Pool {
  const refusal = backupTargetRefusal(pool, node);
  return {
    id: pool.id,
    name: pool.name,
    type: pool.kind,
    path: pool.path ?? '',
    active: pool.active,
    mounted: pool.mounted,
    capacity: BigInt(pool.capacity),
    allocation: BigInt(pool.allocation),
    available: BigInt(pool.available),
    readonly: pool.readonly,
    outside: pool.outside,
    backupTarget: refusal === undefined,
    backupTargetReason: refusal?.message ?? '',
    ownership: pool.othersMayWrite?.how ?? '',
    description: pool.description,
    isBase: pool.isBase,
    shared: pool.shared,
    diskCount: counts.disks,
    fileCount: counts.files,
  };
}
