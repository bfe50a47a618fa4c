/**
 * VMs as OVF describes them, of other hypervisors and for them: text in, data out. Nothing here opens a file or speaks with libvirt.
 *
 *     bytes ─ readOvf ─→ Envelope ─ applianceOf ─→ Appliance ─ domainXmlOf ─→ domain XML
 *                            └──── systemsOf ──→ what a user chooses from
 *
 * An **envelope** is what the descriptor says, in its own words. One may describe many VMs, each in several configurations; reading
 * it chooses nothing. An **appliance** is one VM in one configuration, with everything decided that does not depend on where it
 * goes. The **domain** depends on the node: its networks, where disks lie, whether the guest is trusted to have virtio's drivers.
 *
 * Descriptors come from anybody and are written by many programs, few of which read the standard. Three rules follow:
 *
 * - What is unsafe or no OVF 1.x is refused as a whole: another namespace (0.9 and 2.x have one each), no UTF-8, a DOCTYPE, more
 *   elements than any appliance has. `readOvf` throws nothing else, and what comes after it fails only for a choice that does not
 *   exist.
 * - What cannot be understood is replaced or left out, never silently: each warning names the element. That goes for sections, too,
 *   which the standard would have the whole refused for.
 * - What concerns data is never guessed. A disk whose file is missing, lies outside of the package or holds only changes has a
 *   `fault`. The VM can be restored without disks then; whoever brings disks along calls `requireUsableDisks` first, which refuses
 *   by name. Formats and capacities are what the descriptor claims: the image has to prove them.
 *
 * The other way goes through `export/`: domain XML ─ vmOfDomain ─→ ExportedVm ─ descriptorOf ─→ text. It is strict where reading is lenient.
 */

export {
  type Appliance,
  type ApplianceNic,
  applianceOf,
  requireUsableDisks,
  type SystemSummary,
  systemsOf,
} from './appliance.ts';
export {
  type DomainDisk,
  type DomainTarget,
  domainXmlOf,
  type ImportedDomain,
  type NetworkTarget,
  networkText,
} from './domain.ts';
export { descriptorOf } from './export/descriptor.ts';
export { vmOfDomain } from './export/from-domain.ts';
export type {
  ExportedDisk,
  ExportedVm,
  PackedContent,
  PackedFile,
} from './export/model.ts';
export { type HrefPaths, hrefPaths } from './href.ts';
export type { Envelope, OvfConfiguration, OvfFile, Warning, WarningKey } from './model.ts';
export type { ApplianceOs } from './os.ts';
export { readOvf } from './read.ts';
export type { ApplianceDisk, ApplianceDrive, ImageFormat } from './storage.ts';
export { listed, quoted } from './tree.ts';
export { bytesOf, unitBytes } from './units.ts';
