/**
 * A domain's definition as data, and its changes as functions from text to text. Everything here is pure. The XML may
 * come from libvirt, from an archive, or from anybody: reading it throws `xml_invalid` and nothing else, in bounded time.
 */

export { attachedIdOf, attachmentsOf } from './attachments.ts';
export type * from './config.ts';
export { attr, child, children, childrenAt, ensureChild, pathAttr, remove, text } from './dom.ts';
export { diskElement } from './edit.ts';
export {
  applyImage,
  applyPaths,
  applySource,
  dropChains,
  stripBackingStore,
} from './edit-disks.ts';
export {
  applyMetadata,
  applyNvram,
  applyStripRuntime,
  setMetadata,
  setNvram,
  stripRuntime,
} from './edit-domain.ts';
export { applySnapshotEdit, editSnapshot } from './edit-snapshot.ts';
export { sourceText } from './foreign/disk-rules.ts';
export { LIBOSINFO } from './foreign/domain-rules.ts';
export {
  type FileUse,
  type GateFile,
  type Sanitized,
  type SanitizedTree,
  sanitizeForeign,
  sanitizeTree,
  type XmlGate,
} from './foreign/sanitize.ts';
export { type GuestOs, guestOsOf, type OsType } from './guest-os.ts';
export { applyIdentity, type Identity, newMacs } from './identity.ts';
export { KnownTexts } from './known-texts.ts';
export { isLent, type LentDisk, lentDiskIdOf, lentDiskXml, removeLentDisks } from './lent-disk.ts';
export { describeLoans, isLending, type LoanNames, refuseWhileLent } from './lent-guard.ts';
export { type Mentioned, mentionedIn } from './mentioned.ts';
export {
  type Attachment,
  type DomainMetadata,
  type LentLayer,
  type Loan,
  type LooseLayer,
  lastingMetadata,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  type MergeStage,
  metadataElement,
  NO_METADATA,
} from './metadata.ts';
export { parseDomain } from './parse-domain.ts';
export { parseSnapshot } from './parse-snapshot.ts';
export { parseXml, serializeXml } from './safe-xml.ts';
export { withoutSecrets } from './without-secrets.ts';
