/** What an export consists of: which disks and images, under which names. Pure. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { roundUp } from '@virtkeep/shared/units';
import type { Archive, Manifest, ManifestDisk } from '../../archive/index.ts';
import { SECTOR_BYTES } from '../../disks/index.ts';
import { parseDomain } from '../../domain-xml/index.ts';
import { type ExportedDisk, type ExportedVm, vmOfDomain } from '../../ovf/index.ts';

export const EXPORT_FORMATS = ['ova', 'ovf', 'qcow2'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

export interface PlannedDisk {
  /** Of the domain: "vda". */
  target: string;
  record: ManifestDisk;
  /** File name in the package. */
  href: string;
  capacityBytes: number;
  adapter: ExportedDisk['adapter'];
}

export interface PlannedImage {
  target: string;
  member: string;
  href: string;
  sizeBytes: number;
}

export interface ExportPlan {
  format: ExportFormat;
  /** ASCII: the names in a package are taken by programs of all ages. */
  base: string;
  vm: ExportedVm;
  disks: PlannedDisk[];
  images: PlannedImage[];
  warnings: string[];
}

const MAX_BASE = 60;
/** As libvirt takes them: "vda", "sdaa". */
const TARGET = /^[a-z][a-z0-9]{0,15}$/;

/** A name that any tar, address and manifest can carry. */
export function packageBase(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9._-]+/g, '_').replaceAll(/^[._-]+|[._-]+$/g, '');
  return plain.slice(0, MAX_BASE) || 'vm';
}

interface Exported {
  archive: Pick<Archive, 'members'>;
  manifest: Manifest;
  /** Of the state. */
  xml: string;
  /** Of the backup. */
  filename: string;
}

/** @throws VirtkeepError xml_invalid; export_unsupported for a disk that is encrypted; archive_damaged */
export function planExport({ archive, manifest, xml, filename }: Exported, format: ExportFormat): ExportPlan {
  const sizes = new Map(archive.members.map(({ name, sizeBytes }) => [name, sizeBytes]));
  const config = parseDomain(xml, filename);
  const records = new Map(manifest.disks.map(disk => [disk.target, disk]));
  const found = manifest.isos.flatMap(({ target, member }) =>
    member !== null && sizes.has(member) ? [{ target, member, sizeBytes: sizes.get(member)! }] : [],
  );
  const { vm, warnings } = vmOfDomain(
    xml,
    { disks: new Set(records.keys()), images: new Set(found.map(({ target }) => target)) },
    filename,
  );
  const base = packageBase(config.name);
  // names of files are made of them
  for (const target of [...records.keys(), ...manifest.isos.map(iso => iso.target)])
    if (!TARGET.test(target))
      throw new VirtkeepError('archive_damaged', {
        path: filename,
        reason: `it names a device "${target.slice(0, 50)}"`,
      });
  const disks = vm.disks.map(({ target, adapter }, at): PlannedDisk => {
    const record = records.get(target)!;
    const encrypted = record.encryption ?? config.disks.find(disk => disk.targetDev === target)?.encrypted;
    if (encrypted)
      throw new VirtkeepError('export_unsupported', {
        file: filename,
        reason: `the disk ${target} is encrypted, and its secret is not in the backup`,
      });
    const name = format === 'qcow2' ? `${target}.qcow2` : `disk${at + 1}.vmdk`;
    return {
      target,
      record,
      href: `${base}-${name}`,
      capacityBytes: roundUp(record.virtualSizeBytes, SECTOR_BYTES),
      adapter,
    };
  });
  const images = found
    .filter(({ target }) => vm.drives.some(drive => drive.target === target))
    .map(image => ({ ...image, href: `${base}-${image.target}.${endingOf(vm, image.target)}` }));
  const said = format === 'qcow2' ? [] : warnings.map(({ element, text }) => `${element}: ${text}`);
  return { format, base, vm, disks, images, warnings: [...said, ...leftOut(manifest, xml, format)] };
}

const endingOf = (vm: ExportedVm, target: string): string =>
  vm.drives.find(drive => drive.target === target)?.device === 'floppy' ? 'img' : 'iso';

/** What the backup has besides, or has not. What the gate takes out of a definition is known when that is written. */
function leftOut(
  { snapshots, disks, isos, nvram, tpm }: Manifest,
  xml: string,
  format: ExportFormat,
): string[] {
  const warnings: string[] = [];
  if (snapshots.length > 0) {
    const names = snapshots.slice(0, 10).map(({ name }) => `"${name}"`);
    const rest = snapshots.length > names.length ? ` and ${snapshots.length - names.length} more` : '';
    warnings.push(
      `Saved states stay behind, each disk is as in the restore point: ${names.join(', ')}${rest}.`,
    );
  }
  if (format !== 'qcow2') return warnings;
  if (nvram !== null) warnings.push('UEFI variables stay behind: boot entries are made anew.');
  if (tpm !== null)
    warnings.push('The contents of the TPM stay behind: BitLocker asks for its recovery key.');
  const packed = new Set([...disks.map(({ target }) => target), ...isos.flatMap(imageTarget)]);
  for (const { targetDev, source, device } of parseDomain(xml).disks)
    if (source !== '' && !packed.has(targetDev))
      warnings.push(
        `The ${device} ${targetDev} (${source}) is not in the backup, and left out of the definition.`,
      );
  return warnings;
}

const imageTarget = ({ target, member }: Manifest['isos'][number]): string[] =>
  member === null ? [] : [target];
