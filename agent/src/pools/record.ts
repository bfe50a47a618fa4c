/** A data pool as plain data: what libvirt, the file system and the node's settings say about it together. */
export interface PoolRecord {
  /** libvirt's uuid, or made from node and directory for an outside pool. */
  id: string;
  name: string;
  /** "local", "nfs", "zfs", "lvm", "thinlvm", "lvm-shared", "outside", or another word of libvirt or the file system. */
  kind: string;
  /** Its directory, or the directory of its devices. */
  path?: string;
  /** It holds files in a directory (dir, fs, netfs); backups need one. */
  hasDirectory: boolean;
  active: boolean;
  /** False for a network pool whose marker file is not to be seen. */
  mounted: boolean;
  /** Bytes. */
  capacity: number;
  allocation: number;
  available: number;
  readonly: boolean;
  outside: boolean;
  shared: boolean;
  description: string;
  isBase: boolean;
  /** Others than root may change what is in it, and whether it is refused for that. */
  othersMayWrite?: { how: string; refused: boolean };
}

/** Kinds that are neither source nor target of backups (spec section 8). */
const LVM_KINDS = new Set(['lvm', 'thinlvm', 'lvm-shared']);

/** Whether a kind of pool is one of logical volumes: listed, and refused as source and target. */
export function isLvm(kind: string): boolean {
  return LVM_KINDS.has(kind);
}
