/** What a descriptor says, as plain data; nothing is chosen or judged yet but what makes a file unusable. */

export interface Warning {
  /** The element it is about, as people find it in the descriptor: `Item 7 (VMCI device)`, `EulaSection`. */
  element: string;
  /** The kind of warning, for programs. */
  key: WarningKey;
  /** What became of it, one sentence. */
  text: string;
}

export type WarningKey =
  /** There is an equivalent, and it was taken. */
  | 'replaced'
  /** It has no counterpart, or is not wanted here. */
  | 'ignored'
  /** It was left out, and something was assumed in its place. */
  | 'assumed'
  /** It contradicts itself or the rest; what was made of it is said. */
  | 'contradiction'
  /** It is not attached, since the VM comes without disks. */
  | 'not_attached'
  /** A file that it names is not there. */
  | 'missing'
  /** What the guest needs for it may be missing. */
  | 'guest_must_support';

export interface OvfFile {
  id: string;
  href: string;
  /** Where it may lie, relative to the package, the likeliest first; none when it cannot be used. See `hrefPaths`. */
  paths: string[];
  /** Why it cannot be used: its href, or its compression. */
  fault: string | null;
  sizeBytes: number | null;
  compression: 'none' | 'gzip';
  /** It lies in pieces of this size, `<name>.000000000` and on. */
  chunkSizeBytes: number | null;
}

export interface OvfDisk {
  diskId: string;
  fileRef: string | null;
  /** As written: digits, or `${property}`. */
  capacity: string | null;
  capacityUnit: string;
  /** URI of the format. */
  format: string;
  /** The disk that it is a delta of. */
  parentRef: string | null;
  populatedSizeBytes: number | null;
}

export interface OvfConfiguration {
  id: string;
  label: string;
  description: string;
  isDefault: boolean;
}

export interface OvfProperty {
  key: string;
  value: string;
  /** By configuration, where it differs. */
  values: Map<string, string>;
}

export interface OvfItem {
  /** For people. */
  label: string;
  instanceId: string;
  /** CIM's number of the kind of device; 0 when it says none. */
  resourceType: number;
  /** Names of models, lower case, in the order given. */
  subTypes: string[];
  parent: string | null;
  address: string | null;
  addressOnParent: number | null;
  hostResource: string | null;
  connection: string | null;
  quantity: string | null;
  unit: string | null;
  coresPerSocket: number | null;
  /** Configurations that it is of; none: of all. */
  configurations: string[];
}

export interface OvfSystem {
  id: string;
  name: string;
  description: string;
  os: { cimId: string; vmwareType: string; virtualBoxType: string; description: string };
  items: OvfItem[];
  /** `Config` and `ExtraConfig` of the hardware, keys in lower case. */
  settings: Map<string, string>;
  /** Its own, then those of the collections that it is in. */
  properties: OvfProperty[];
  warnings: Warning[];
}

export interface Envelope {
  /** Names the descriptor in errors. */
  subject: string;
  files: Map<string, OvfFile>;
  disks: Map<string, OvfDisk>;
  networks: string[];
  configurations: OvfConfiguration[];
  /** In document order, those of collections, too; at least one. */
  systems: OvfSystem[];
  warnings: Warning[];
}
