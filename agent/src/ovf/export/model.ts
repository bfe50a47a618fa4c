/** A VM as a descriptor is going to tell it: with everything decided that the standard leaves open. */

/** Hangs on a controller, by its index among all of them. */
export interface Place {
  controller: number;
  unit: number;
}

export interface ExportedController {
  bus: 'ide' | 'sata' | 'scsi';
  /** From 0 among those of its bus. */
  index: number;
  /** `ResourceSubType`: one or several in the order of preference; null where the kind alone tells. */
  subType: string | null;
}

export interface ExportedDisk extends Place {
  /** Of the domain: "vda". */
  target: string;
  /** `ddb.adapterType` of its VMDK. */
  adapter: 'ide' | 'lsilogic' | 'buslogic';
}

export interface ExportedDrive {
  target: string;
  device: 'cdrom' | 'floppy';
  /** null: of a floppy, which hangs on no controller that a descriptor has. */
  controller: number | null;
  unit: number;
}

export interface ExportedNic {
  subType: string;
  /** null: the definition has none. */
  mac: string | null;
  /** Name of the network. */
  network: string;
}

export interface ExportedOs {
  /** CIM_OperatingSystem.OsType. */
  cimId: number;
  vmwareType: string;
  /** libosinfo's id; empty: not known. */
  description: string;
}

export interface ExportedVm {
  name: string;
  description: string;
  os: ExportedOs;
  cpus: number;
  /** Divides `cpus`; null: each CPU has a socket of its own. */
  coresPerSocket: number | null;
  memoryMiB: number;
  firmware: { efi: boolean; secureBoot: boolean };
  tpm: boolean;
  controllers: ExportedController[];
  disks: ExportedDisk[];
  drives: ExportedDrive[];
  nics: ExportedNic[];
  usb: ('ehci' | 'xhci')[];
  /** `ResourceSubType`; null: none. */
  sound: string | null;
  serialPorts: number;
  video: boolean;
}

/** A file of the package. */
export interface PackedFile {
  href: string;
  sizeBytes: number;
}

/** What the package holds, by the targets of the domain. */
export interface PackedContent {
  disks: ReadonlyMap<string, PackedFile & { capacityBytes: number }>;
  images: ReadonlyMap<string, PackedFile>;
}
