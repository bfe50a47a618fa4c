/**
 * A domain's definition as data, and its changes as functions from text to text. Everything here is pure. The XML may
 * come from libvirt, from an archive, or from anybody: reading it throws `xml_invalid` and nothing else, in bounded time.
 */
export { deviceDifferences } from './compare.ts';
export type * from './config.ts';
export {
  applySource,
  type NewSource,
  removeDisk,
  replacePaths,
  setCdromSource,
  setDiskSource,
  stripBackingStore,
} from './edit-disks.ts';
export { setMetadata, setNvram, stripRuntime } from './edit-domain.ts';
export { editSnapshot, type SnapshotEdit } from './edit-snapshot.ts';
export type { GuestOs, OsType } from './guest-os.ts';
export { type Identity, newMacs, setIdentity } from './identity.ts';
export {
  isLent,
  type LentDisk,
  lentAlias,
  lentDiskIdOf,
  lentDiskXml,
  removeLentDisks,
} from './lent-disk.ts';
export {
  type Attachment,
  type DomainMetadata,
  type Loan,
  type LooseLayer,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  metadataElement,
  NO_METADATA,
} from './metadata.ts';
export { parseDomain } from './parse-domain.ts';
export { parseSnapshot } from './parse-snapshot.ts';
export { parseXml, serializeXml, XML_LIMITS } from './safe-xml.ts';
