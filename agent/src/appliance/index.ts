/**
 * Foreign appliances: OVF descriptors with files beside them, OVA files, and the disk images in them. Hands out the descriptor's bytes
 * and the members by name; what the descriptor says is read by `ovf/`.
 *
 * Everything here comes from elsewhere and may mean harm. Three things could be had of a node: a file of its own (through a link, a
 * name that leads out of the directory, or an image that names it as its content), its memory, space or time (through sizes that are
 * forged, and a few bytes that unpack into many), and trust in what is damaged. Against them:
 *
 * - No name of an appliance is ever made a path, but that of a plain file beside the descriptor, which is opened through no link. What is
 *   opened is held open; programs get `/proc/<pid>/fd/…`, which stays that very file. So an appliance is closed only when all that
 *   was begun with it has ended. Nothing is extracted but to paths that the caller makes.
 * - Tars are walked by the archive's own reader (`archive/format/tar-format.ts`). Members of a plain one are not unpacked at all: QEMU
 *   reads them where they stand, which saves the time and space of a copy.
 * - Of a packed one (gzip, xz, zip; its bytes say which, not its name) the members are unpacked on request, in one pass of the stream.
 *   `bounds.ts` says how much comes out at most.
 * - QEMU opens the files that an image names. So `image/` decides by its own reading what an image is, refuses all that stand on or in
 *   others, and tells QEMU each driver. QEMU's own opinion is asked after that, and must be the same.
 * - QEMU notices of VHDX only that an image was cut off. Of the others `image/` looks itself where the data end. A raw image tells
 *   nothing. The manifest tells all of it, and so does the size in the descriptor: compare it with the member's.
 *
 * VMA, the archive of Proxmox VE, has a reader of its own in `vma/`: one pass of a stream, which brings the data of all disks mixed.
 * Directories of virtnbdbackup are looked at in `virtnbd/`: their headers, and which files a restore point consists of.
 *
 * A file that is rewritten between the look and its use is another file. Whoever converts takes the marks of `disks/source-guard.ts`
 * before `inspectImage`, and refuses the result when they changed.
 */
export {
  type AppliancePackage,
  isPackedAppliance,
  openAppliance,
  type Packing,
  type Text,
} from './appliance.ts';
export { MAX_DRIVE_IMAGE_BYTES, MAX_VIRTUAL_BYTES, mostOfDisk } from './bounds.ts';
export type { MadeFile } from './bytes.ts';
export {
  type Authorities,
  type CheckedSignature,
  checkCertificate,
  type SignedTexts,
} from './certificate.ts';
export type { Member } from './container/container.ts';
export type { ImageFormat } from './image/image.ts';
export { type Blockdev, type InspectedImage, inspectImage } from './image/inspect.ts';
export type { DigestName, ManifestEntry } from './manifest.ts';
export { type HeldSource, holdSource, type Source } from './source.ts';
export { chunksOf, type DiskOptions, type UnpackOptions, unpackDisk, unpackMembers } from './unpack.ts';
export { type VerifyOptions, verifyDescriptor, verifyMembers } from './verify.ts';
export { openVirtnbd, type VirtnbdBackup } from './virtnbd/backup.ts';
export type { VirtnbdDataFile, VirtnbdState } from './virtnbd/states.ts';
export { openVma, type Vma } from './vma/open.ts';
