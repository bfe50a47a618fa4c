/** The library: backup files as users see them. What is done with one stands in `file-actions.ts`. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { mapLimited } from '@virtkeep/shared/limit';
import type { NodeLinks } from '../../agents/links.ts';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { archiveIdOf, archiveIdOfRow } from '../backup-files/identity.ts';
import type { FileFilter } from '../backup-files/list.ts';
import { detailsOf, type FileRecord, fileRecord } from '../backup-files/record.ts';
import { isAppliance, isArchive, isPublished } from '../backup-files/usable.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import { lacksTemplate, type TemplateAnswer, withTemplateOf } from './template-answers.ts';

/** Reading a whole compressed archive of another make can take long. */
export const SHOW_TIMEOUT_MS = 600_000;

/** A client that waits for a backup waits for this, too; when it takes longer, the information of before stays. */
const REREAD_TIMEOUT_MS = 10_000;
/** Limit for the other nodes' answers, when one node lacks a template. */
const ELSEWHERE_TIMEOUT_MS = 60_000;
/** What a node says of a file that is not the backup it was. */
const NOT_THERE = ['file_not_found', 'archive_damaged', 'file_not_backup'] as const;
const REQUESTS_AT_ONCE = 8;

/** What of a file is to be shown. */
export interface ShownPart {
  /** Number or name of a state; absent: the newest. */
  state?: string | undefined;
  /** Of an OVF descriptor; absent: the only VM, the default configuration. */
  system?: string | undefined;
  configuration?: string | undefined;
  /** Of a foreign file: as it would be restored with these. */
  virtio?: boolean | undefined;
  networks?: Record<string, string> | undefined;
}

const isWhole = (what: ShownPart): boolean => Object.values(what).every(choice => choice === undefined);

export interface LibraryServiceDependencies {
  backupFiles: BackupFiles;
  inventory: Inventory;
  links: NodeLinks;
  pools: PoolService;
}

export class LibraryService {
  readonly #dependencies: LibraryServiceDependencies;

  constructor(dependencies: LibraryServiceDependencies) {
    this.#dependencies = dependencies;
  }

  async list(filter: FileFilter): Promise<{ count: number; files: FileRecord[] }> {
    const { count, rows } = await this.#dependencies.backupFiles.list(filter);
    return { count, files: rows.map(row => this.record(row)) };
  }

  /** Whether it is a foreign file that holds VMs with their disks. @throws file_not_found. */
  async isAppliance(id: string): Promise<boolean> {
    return isAppliance(await this.#dependencies.backupFiles.get(id));
  }

  /** @throws file_not_found. */
  async get(id: string): Promise<FileRecord> {
    return this.record(await this.#dependencies.backupFiles.get(id));
  }

  record(row: FileRow): FileRecord {
    const domain = this.#dependencies.inventory.domains.get(row.domain_id ?? '')?.domain;
    return fileRecord(row, this.#dependencies.inventory.pools.get(row.pool_id)?.row, domain);
  }

  /** @throws file_not_found. */
  async update(id: string, changes: { description?: string; protected?: boolean }): Promise<FileRecord> {
    await this.#dependencies.backupFiles.get(id);
    await this.#dependencies.backupFiles.update(id, {
      ...(changes.description === undefined ? {} : { description: changes.description }),
      ...(changes.protected === undefined ? {} : { protected: Number(changes.protected) }),
    });
    return this.get(id);
  }

  /**
   * Reads the archive's configuration on a node that sees it, and remembers what it found; while no node sees it, the
   * newest state is told as it was read last, with the warning `not_current`.
   * @throws file_not_found, state_not_found, pool_not_active, node_unreachable, archive_damaged, and those of descriptors.
   */
  async show(id: string, what: ShownPart = {}): Promise<{ file: FileRecord; shown: ShowBackupResponse }> {
    const row = await this.published(id);
    try {
      const shown = await this.read(row, what, AbortSignal.timeout(SHOW_TIMEOUT_MS));
      return { file: await this.get(id), shown };
    } catch (error) {
      const remembered = isWhole(what) ? detailsOf(row).shown : null;
      if (remembered === null || !hasKey(error, 'node_unreachable', 'pool_not_active')) throw error;
      const shown = ShowBackupResponse.fromJSON(remembered);
      shown.warnings.push({ key: 'not_current', text: `${error.message} This is what was read last.` });
      return { file: this.record(row), shown };
    }
  }

  /** Reads the information of a file that has changed, when it was known before. @throws what the node answers */
  async reread(id: string): Promise<void> {
    const row = await this.#dependencies.backupFiles.get(id);
    if (detailsOf(row).information !== null) await this.read(row, {}, AbortSignal.timeout(REREAD_TIMEOUT_MS));
  }

  /** What is asked for without a choice is remembered. @throws as `show` */
  async read(row: FileRow, what: ShownPart, signal: AbortSignal): Promise<ShowBackupResponse> {
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id);
    const file = { poolId: row.pool_id, filename: row.filename };
    const { state = '', virtio, networks, ...choice } = what;
    const isChosen = virtio !== undefined || networks !== undefined;
    const target = { virtio: virtio ?? false, networks: networks ?? {} };
    const request = { file, state, ...choice, ...(isChosen ? { target } : {}) };
    const shown = await this.#dependencies.links.clients(nodeId).backups.show(request, { signal });
    if (lacksTemplate(shown.warnings)) {
      const others = await this.#templateElsewhere(nodeId, { file, state }, signal);
      shown.warnings = withTemplateOf(shown.warnings, others);
    }
    await this.#remember(row, shown, isWhole(what));
    return shown;
  }

  /**
   * Looks for backups on a node that sees them: somebody may have taken them away, or put others in their places, since the last scan.
   * @returns whether each is there, by its id, but for those of which no node says so, as on a disk that is away; undefined when the signal
   *   fired before all were heard
   */
  async presence(
    rows: readonly FileRow[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, boolean> | undefined> {
    const presence = new Map<string, boolean>();
    await mapLimited(rows, REQUESTS_AT_ONCE, async row => {
      if (signal.aborted) return;
      try {
        const client = this.#dependencies.links.clients(this.#dependencies.pools.nodeFor(row.pool_id));
        const { file } = await client.backups.show({ file: refOf(row) }, { signal });
        presence.set(row.id, file !== undefined && archiveIdOf(file) === archiveIdOfRow(row));
      } catch (error) {
        if (hasKey(error, ...NOT_THERE)) presence.set(row.id, false);
      }
    });
    return signal.aborted ? undefined : presence;
  }

  /** What was read of a file without a choice. @throws file_not_found. */
  async remember(id: string, shown: ShowBackupResponse): Promise<void> {
    await this.#remember(await this.#dependencies.backupFiles.get(id), shown, true);
  }

  async #remember(row: FileRow, shown: ShowBackupResponse, whole: boolean): Promise<void> {
    const { backupFiles } = this.#dependencies;
    if (shown.file && archiveIdOf(shown.file) === archiveIdOfRow(row))
      await backupFiles.seen(shown.file, () => true);
    if (whole) await backupFiles.informed(row.id, shown);
  }

  /** What other nodes with the file's pool answer about the template of the backup's thin clone. @param nodeId has answered already */
  #templateElsewhere(
    nodeId: string,
    request: { file: { poolId: string; filename: string }; state: string },
    signal: AbortSignal,
  ): Promise<TemplateAnswer[]> {
    const others = this.#dependencies.pools.othersWith(request.file.poolId, nodeId);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ELSEWHERE_TIMEOUT_MS)]);
    return mapLimited(others, REQUESTS_AT_ONCE, async ({ id, name }) => {
      const shown = await Promise.resolve()
        .then(() => this.#dependencies.links.clients(id).backups.show(request, { signal: limit }))
        .catch(() => undefined);
      return { node: name, warnings: shown?.warnings };
    });
  }

  /** A file that lies on its pool and is not being made or removed. @throws file_not_found, file_busy. */
  async published(id: string): Promise<FileRow> {
    const row = await this.#dependencies.backupFiles.get(id);
    return isPublished(row) ? row : this.#dependencies.backupFiles.idle(id);
  }
}

/** @throws file_not_backup for anything but an archive of this service. */
export function assertArchive(row: FileRow, action: string): void {
  if (isArchive(row)) return;
  throw new VirtkeepError('file_not_backup', { file: row.filename, type: row.type, action });
}

/** How the agents name a file. */
export function refOf(row: FileRow): { poolId: string; filename: string } {
  return { poolId: row.pool_id, filename: row.filename };
}
