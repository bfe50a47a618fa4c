/**
 * Which archive a backup extends (specification 2.2): the chosen one or none, or the latest that can be extended. The
 * node has the last word; what is refused here would be refused there.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { IncrementalFiles } from '../backup-files/extendable-files.ts';
import { notIncrementalReason } from '../backup-files/record.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import { isUsable } from '../pools/record.ts';

/** The options that decide it. */
export interface ExtensionOptions {
  can_be_incremental?: boolean | undefined;
  backup?: string | undefined;
  increment?: boolean | undefined;
  datapool?: string | undefined;
  hold_states?: boolean | undefined;
  /** An increment is wanted, but what there is is not to be extended. */
  newArchive?: boolean | undefined;
}

export interface Extension {
  /** Undefined: a new archive. */
  file: FileRow | undefined;
  /** The node may make a new archive when this one cannot be extended after all. */
  fallback: boolean;
  /** Why a new archive is made although an increment was wanted; empty when none was, or when it is the first one. */
  fallbackReason: string;
  /** The data pool that was asked for: a known client mistake (a backup given as pool) is no pool. */
  datapool: string | undefined;
}

export class ExtensionChooser {
  readonly #inventory: Inventory;
  readonly #backupFiles: BackupFiles;
  readonly #files: IncrementalFiles;
  readonly #pools: PoolService;

  constructor(inventory: Inventory, backupFiles: BackupFiles, files: IncrementalFiles, pools: PoolService) {
    this.#inventory = inventory;
    this.#backupFiles = backupFiles;
    this.#files = files;
    this.#pools = pools;
  }

  /**
   * `backup` extends that one and no other; `increment` the newest that can be extended, or makes a new one; with `newArchive` it always does.
   * @throws conflicting_fields, invalid_field, file_not_found, file_busy, not_extendable, pool_read_only, pool_outside.
   */
  async choose(options: ExtensionOptions, domain: Domain, nodeId: string): Promise<Extension> {
    const { backup, datapool } = await this.#meant(options);
    if (options.hold_states && !options.can_be_incremental && !options.increment && backup === undefined) {
      const reason = 'needs can_be_incremental, increment or backup';
      throw new VirtkeepError('invalid_field', { field: 'hold_states', reason });
    }
    if (backup !== undefined) {
      const file = await this.#chosen(backup, domain, nodeId);
      return { file, fallback: false, fallbackReason: '', datapool: undefined };
    }
    if (!options.increment) return { file: undefined, fallback: false, fallbackReason: '', datapool };
    return { ...(await this.#latest({ ...options, datapool }, domain, nodeId)), fallback: true, datapool };
  }

  /** A backup given as `datapool` is meant as `backup` when it can be extended and no pool has that id. */
  async #meant({
    backup,
    datapool,
  }: ExtensionOptions): Promise<Pick<ExtensionOptions, 'backup' | 'datapool'>> {
    if (datapool !== undefined && backup !== undefined)
      throw new VirtkeepError('conflicting_fields', { first: 'datapool', second: 'backup', field: 'backup' });
    if (datapool === undefined || this.#inventory.pools.has(datapool)) return { backup, datapool };
    const file = await this.#backupFiles.find(datapool);
    return file?.can_be_incremental === 1 ? { backup: datapool } : { datapool };
  }

  /** The file that an increment of the VM would extend; undefined: it would make a new one. Whether it is busy is not asked. */
  async next(
    domain: Domain,
    nodeId: string,
    {
      backup,
      datapool,
      isWanted = () => true,
    }: Pick<ExtensionOptions, 'backup' | 'datapool'> & { isWanted?: (file: FileRow) => boolean } = {},
  ): Promise<FileRow | undefined> {
    const chosen = backup === undefined ? undefined : await this.#backupFiles.find(backup);
    const candidates = backup === undefined ? await this.#archives(domain, datapool) : chosen ? [chosen] : [];
    return candidates.find(file => isWanted(file) && this.#isExtendable(file, domain, nodeId));
  }

  async #archives(domain: Domain, datapool: string | undefined): Promise<FileRow[]> {
    const files = await this.#files.archivesOf(domain.id);
    return files.filter(file => datapool === undefined || file.pool_id === datapool);
  }

  #isExtendable(file: FileRow, domain: Domain, nodeId: string): boolean {
    return this.#whyNot(file, domain, nodeId) === '' && this.#pools.isWritable(file.pool_id, nodeId);
  }

  async #chosen(id: string, domain: Domain, nodeId: string): Promise<FileRow> {
    const file = await this.#backupFiles.unused(id);
    const reason = this.#whyNot(file, domain, nodeId);
    if (reason !== '')
      throw new VirtkeepError('not_extendable', { file: file.filename, reason, field: 'backup' });
    this.#pools.writable(file.pool_id, nodeId, 'backup');
    return file;
  }

  async #latest(
    { datapool, newArchive }: Pick<ExtensionOptions, 'datapool' | 'newArchive'>,
    domain: Domain,
    nodeId: string,
  ): Promise<{ file: FileRow | undefined; fallbackReason: string }> {
    const archives = await this.#archives(domain, datapool);
    const file = archives.find(one => this.#isExtendable(one, domain, nodeId));
    if (file && !newArchive) return { file: await this.#backupFiles.unused(file.id), fallbackReason: '' };
    const [newest] = archives;
    if (!newest || file) return { file: undefined, fallbackReason: '' };
    const reason = this.#whyNot(newest, domain, nodeId) || 'its data pool cannot be written';
    return { file: undefined, fallbackReason: `${newest.filename} cannot be extended: ${reason}` };
  }

  /** Empty when nothing is known against it. */
  #whyNot(file: FileRow, domain: Domain, nodeId: string): string {
    if (file.type !== 'tar') return `it is of type ${file.type}`;
    if (file.domain_id !== domain.id) return 'it is a backup of another VM';
    const view = this.#inventory.pools.get(file.pool_id)?.views.get(nodeId);
    if (!view || !isUsable(view)) return 'its data pool cannot be used on the node of the VM';
    return notIncrementalReason(file, domain);
  }
}
