import type { GuestOs } from './guest-os.ts';
import type { DomainMetadata } from './metadata.ts';

/** What the product needs to know of a domain's definition. Optional texts are undefined when absent. */
export interface DomainConfig {
  /** Lower case; empty when the XML has none. */
  uuid: string;
  name: string;
  description: string;
  /** Most memory the guest can have, MiB, rounded up. */
  memoryMiB: number;
  /** Most CPUs the guest can have. */
  vcpus: number;
  arch: string;
  /** Machine type as written: "q35", "pc-i440fx-7.2". */
  machine: string;
  /**
   * UEFI variables: their file, and the file they are made from. `byName`: libvirt chooses the firmware, and the file by the domain's
   * name at each start, so that no definition says it.
   */
  nvram?: { path?: string | undefined; template?: string | undefined; byName?: boolean };
  tpm?: {
    model?: string | undefined;
    backend: string;
    version?: string | undefined;
    /** Where the state of a software TPM lies when that is not libvirt's own place (from libvirt 10.10 on). */
    elsewhere?: string;
  };
  disks: DiskConfig[];
  /** Network interfaces that have a MAC address. */
  interfaces: { mac: string }[];
  hostdevs: HostdevConfig[];
  agentChannel: AgentChannel;
  os: GuestOs;
  metadata: DomainMetadata;
}

/** The guest agent's channel: `connected` and `disconnected` are told by a live XML only, `present` by any. */
export type AgentChannel = 'absent' | 'present' | 'connected' | 'disconnected';

export type DiskDevice = 'disk' | 'cdrom' | 'lun' | 'floppy';

export interface DiskConfig {
  device: DiskDevice;
  /** "file", "block", "network", "volume", "dir", "nvme", "vhostuser". */
  type: string;
  /** Absolute path of a file or block device. */
  path?: string;
  volume?: { pool: string; name: string };
  /** Of a network disk. */
  network?: NetworkSource;
  /** The source for people: path, `pool/volume`, or `protocol:name`; empty for an empty drive. */
  source: string;
  /** Driver type: "qcow2", "raw"; libvirt takes raw when it is absent. */
  format?: string | undefined;
  targetDev: string;
  bus: string;
  readonly: boolean;
  shareable: boolean;
  transient: boolean;
  cache?: string | undefined;
  serial?: string | undefined;
  /** Name that a user gave the device ("ua-…"); libvirt's own ones are left out. */
  alias?: string;
  /** Layers below the active one as the XML has them, top to bottom; undefined when it does not say. */
  backingChain?: BackingLayer[] | undefined;
  /** The source is a part of a file, or an encrypted one. */
  sliced: boolean;
  encrypted: boolean;
}

export interface BackingLayer {
  type: string;
  path?: string;
}

export interface NetworkSource {
  /** "iscsi", "rbd", "nbd", "gluster", "https", … */
  protocol: string;
  /** Export, `pool/image`, `iqn/lun`, path; empty when there is none. */
  name: string;
  /** First host or socket; undefined when the client's own configuration tells. */
  host?: { name?: string | undefined; port?: string | undefined; socket?: string | undefined };
}

export interface HostdevConfig {
  /** "mdev", "pci", "usb", "scsi", "scsi_host", "net". */
  type: string;
  /** UUID of an mdev; address of a PCI device, `0000:03:00.0`. */
  address?: string | undefined;
}

/** A saved state as libvirt keeps it (`<domainsnapshot>`). */
export interface SnapshotConfig {
  name: string;
  description: string;
  /** Name of the parent state; undefined for a root. */
  parent?: string | undefined;
  /** Seconds since 1970 (libvirt has no finer time). */
  creationTime: number;
  memory: { mode: 'no' | 'internal' | 'external'; path?: string | undefined };
  disks: SnapshotDisk[];
  /** The domain as it was: `<domain>`; undefined when libvirt kept none. */
  domain?: DomainConfig;
  /** The persistent definition beside a running one: `<inactiveDomain>`. */
  inactiveDomain?: DomainConfig;
  /** libvirt was interrupted while deleting it; the delete must be repeated. */
  deleteInProgress: boolean;
}

export interface SnapshotDisk {
  /** Target device (`vda`), or a path in old definitions. */
  name: string;
  mode: 'no' | 'internal' | 'external' | 'manual' | 'default';
  /** The overlay that was made when the state was frozen. */
  path?: string | undefined;
}
