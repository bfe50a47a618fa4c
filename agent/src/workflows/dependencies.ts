/** What the workflows are given: the node they work on. */
import type { Libvirt } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import type { GrowthLimits, JudgeArchive, SignManifest } from '../archive/index.ts';
import type { LatencyTargets } from '../bandwidth/latency-targets.ts';
import type { BandwidthLimits } from '../bandwidth/limits.ts';
import type { Claims } from '../claims.ts';
import type { BackupHooks } from '../hooks.ts';
import type { OtherNodes } from '../other-nodes.ts';
import type { PoolRecord, Settings } from '../pools/index.ts';
import type { ZfsDriver } from '../zfs/index.ts';
import type { Effect } from './effect.ts';

export interface WorkflowDependencies {
  /** The connection to libvirt. @throws VirtkeepError libvirt_unreachable before the first one */
  libvirt(): Libvirt;
  /** The node's pools as they are now, outside ones included. */
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  zfs: ZfsDriver;
  /** What other nodes use of what lies in shared pools. */
  otherNodes: OtherNodes;
  /** What this node is about to use; others ask for it. */
  claims: Claims;
  /** What operations of this node have done and not undone yet, of one type, the oldest first. @throws VirtkeepError journal_failed */
  pendingEffects<T extends Effect['type']>(type: T): Extract<Effect, { type: T }>[];
  /** Tells who vouches for an archive. */
  judge: JudgeArchive;
  /** Signs archives; undefined: they are not signed. */
  sign?: SignManifest;
  /** Called when a backup file of a pool appeared, changed or went away. */
  filesChanged(poolId: string): void;
  log: Logger;
  /** Version of the agent, for manifests. */
  version: string;
  /** Name of the node, for error texts. */
  nodeName: string;
  /** Where libvirt keeps the UEFI variables of domains: `/var/lib/libvirt/qemu/nvram`. */
  nvramDirectory: string;
  /** Where libvirt keeps the state of software TPMs: `/var/lib/libvirt/swtpm`. */
  swtpmDirectory: string;
  /** Where libvirt keeps the saved memory of domains (managed save), by their names: `/var/lib/libvirt/qemu/save`. */
  saveDirectory: string;
  /** Certificates (PEM) of those who may vouch for appliances; undefined: their signatures are not checked. */
  trustedCaFile?: string | undefined;
  /** Run libguestfs's appliance without KVM; otherwise that is found out. */
  forceTcg?: boolean;
  /** Bound of merging an automatic state back, MiB/s; 0 = none. */
  mergeBandwidthMiB: number;
  /**
   * Where it is kept what templates' disks hold and which archives are left behind; undefined: nowhere. Fingerprints are computed each
   * time then.
   */
  settings?: Settings;
  /** How long an archive may become; undefined: as long as is right. */
  growthLimits?: GrowthLimits;
  /** Most frames of a compressed archive; undefined: what readers take. */
  mostFrames?: number;
  /** Told of backups; undefined: nobody is. */
  hooks?: BackupHooks;
  /** Limits that backups share; undefined: they read as fast as they can. */
  bandwidth?: BandwidthLimits;
  /** Slows backups down for VMs that wait for their disks; undefined: nothing does. */
  latency?: LatencyTargets;
  /** Threads that compress for one backup; undefined: the archive's default, by the number of processors. */
  compressionWorkers?: number;
}
