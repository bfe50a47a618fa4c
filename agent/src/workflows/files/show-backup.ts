/** The configuration of the VM that a backup would give (specification 2.3), not tied to a node. */
import type { BackupConfiguration, BackupWarning } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { ArchiveTrust, Judgement, Manifest, ManifestState } from '../../archive/index.ts';
import { type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import type { OpenedBackup } from '../archives/source.ts';
import { screenDefinition, screenState } from '../restore/gate.ts';

/** Of the newest saved states; a look at a backup reads no more. */
const MOST_SCREENED_STATES = 100;

/** @throws VirtkeepError xml_invalid */
export function backupConfiguration(
  manifest: Manifest,
  state: ManifestState,
  xml: string,
): BackupConfiguration {
  const config = parseDomain(xml, state.xmlMember);
  const sizes = new Map(manifest.members.map(member => [member.name, member.sizeBytes]));
  const sizeOf = (names: (string | null)[]) =>
    names.reduce((sum, name) => sum + (sizes.get(name ?? '') ?? 0), 0);
  return {
    domainId: config.uuid,
    name: config.name,
    memoryCount: BigInt(config.memoryMiB),
    cpuCount: config.vcpus,
    template: manifest.isTemplate,
    disks: [
      ...manifest.disks.map(disk => ({
        id: disk.id,
        targetDev: disk.target,
        targetBus: disk.bus ?? '',
        path: disk.formerPath,
        poolId: disk.poolId ?? '',
        virtualSize: BigInt(disk.virtualSizeBytes),
        size: BigInt(sizeOf(disk.layers.map(layer => layer.member))),
        excluded: false,
      })),
      ...manifest.excludedDisks.map(disk => ({
        id: disk.id ?? '',
        targetDev: disk.target,
        targetBus: busOf(config, disk.target),
        path: disk.formerPath,
        poolId: '',
        virtualSize: 0n,
        size: 0n,
        excluded: true,
      })),
    ],
    images: manifest.isos.map(iso => ({
      targetDev: iso.target,
      path: iso.formerPath,
      size: BigInt(iso.sizeBytes),
      included: iso.member !== null,
    })),
    luns: manifest.luns.map(lun => lun.formerPath),
    snapshots: manifest.snapshots.map(snapshot => snapshot.name),
    macs: config.interfaces.map(net => net.mac),
    osType: config.os.type,
    machine: config.machine,
    nvram: state.nvram !== null,
    tpm: state.tpm !== null,
    templateId: manifest.template?.domainId ?? '',
    description: typeof manifest.options.description === 'string' ? manifest.options.description : '',
  };
}

function busOf(config: DomainConfig, target: string): string {
  return config.disks.find(disk => disk.targetDev === target)?.bus ?? '';
}

/**
 * What a restore on this node would leave out of the definition and of the saved states. The memory's own definitions are
 * looked at when they are restored.
 * @throws VirtkeepError xml_invalid, archive_damaged, io_failed, canceled
 */
export async function screenBackup(
  { archive, manifest, xml }: OpenedBackup,
  trust: ArchiveTrust,
  signal: AbortSignal,
): Promise<BackupWarning[]> {
  const texts = screenDefinition(xml, trust).warnings;
  if (trust === 'own') return asWarnings(texts);
  for (const { name, xmlMember } of manifest.snapshots.slice(-MOST_SCREENED_STATES)) {
    const saved = (await archive.readMember(xmlMember, signal)).toString('utf8');
    texts.push(...screenState(saved, name, trust));
  }
  return asWarnings(texts);
}

const asWarnings = (texts: string[]): BackupWarning[] =>
  texts.map(text => ({ key: 'definition_left_out', text }));

/** What the user should know before restoring. */
export function backupWarnings(
  manifest: Manifest,
  state: ManifestState,
  judgement: Pick<Judgement, 'trust' | 'byOneNode'>,
): BackupWarning[] {
  const warnings: BackupWarning[] = [];
  const warn = (key: string, text: string) => warnings.push({ key, text });
  for (const iso of manifest.isos.filter(image => image.member === null))
    warn(
      'iso_excluded',
      `The image ${iso.formerPath} of ${iso.target} is not in the backup; it is used when ${imageUse(judgement)}.`,
    );
  for (const lun of manifest.luns)
    warn(
      'lun_not_copied',
      `The LUN ${lun.formerPath} (${lun.target}) is not in the backup; it is ${lunUse(judgement)}.`,
    );
  for (const disk of manifest.excludedDisks)
    warn(
      'disk_not_copied',
      `The disk ${disk.target} (${disk.formerPath}) is not in the backup: ${disk.reason}.`,
    );
  if (state.consistency === 'crash')
    warn('crash_consistent', 'The disks are as after a power cut: neither quiesced nor with the memory.');
  if (state.memoryMember !== null)
    warn('memory_included', 'The disks were not quiesced; the restored VM resumes from its memory.');
  for (const text of manifest.warnings) warn('made_with_warning', text);
  return warnings;
}

/** Which image a drive shows that the archive does not hold. */
function imageUse({ trust }: Pick<Judgement, 'trust'>): string {
  const inPool = (what: string) => `there is ${what} at this path in a data pool of the node`;
  return trust === 'own' ? `${inPool('a file')}, or elsewhere one of the same size` : inPool('an ISO image');
}

/** When a restore attaches a LUN. */
function lunUse({ trust, byOneNode }: Pick<Judgement, 'trust' | 'byOneNode'>): string {
  if (trust === 'foreign') return 'not attached, since nobody vouches for the backup';
  if (!byOneNode) return 'attached only where its target is named, since not one node alone made the backup';
  return (
    'attached when it is there, neither the node nor a VM of any node uses it, and its name tells which device it is (wwn in ' +
    '/dev/disk/by-id, iSCSI); any other one in place of the VM on the node of the backup, or where its target is named'
  );
}

/** What only those may restore who are allowed to. */
export function signatureWarnings({ trust, reason }: Judgement): BackupWarning[] {
  if (trust !== 'foreign') return [];
  const text =
    `Nobody vouches for this archive: ${reason}. To restore it needs the permission backup.restore_foreign. ` +
    'An administrator who trusts it has it signed while it is compressed or unpacked (--sign).';
  return [{ key: 'archive_foreign', text }];
}
