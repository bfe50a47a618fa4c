/** The bytes of an archive or of one member, streamed from a node that sees the file. */
import { createHash } from 'node:crypto';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { NodeLinks } from '../../agents/links.ts';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { detailsOf } from '../backup-files/record.ts';
import { beginBytes, type Part } from '../byte-stream.ts';
import type { PoolService } from '../pools/pools.ts';
import type { Shares } from '../shares.ts';
import { assertArchive, type LibraryService, refOf } from './library.ts';

export interface Download {
  row: FileRow;
  /** Empty: the whole file as it is stored. */
  member: string;
  nodeId: string;
}

export interface DownloadServiceDependencies {
  library: LibraryService;
  links: NodeLinks;
  pools: PoolService;
  backupFiles: BackupFiles;
  /** Each holds a connection, a file on its node, and for a member of a compressed archive some work there. */
  places: Shares;
}

export class DownloadService {
  readonly #dependencies: DownloadServiceDependencies;

  constructor(dependencies: DownloadServiceDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws file_not_found, file_busy, file_not_backup (a member of anything but an archive), pool_not_active, node_unreachable. */
  async find(id: string, member: string): Promise<Download> {
    const row = await this.#dependencies.library.published(id);
    if (member !== '') assertArchive(row, 'download');
    return { row, member, nodeId: this.#dependencies.pools.nodeFor(row.pool_id) };
  }

  /** Counts a download. @returns what ends it. @throws too_many_requests above the bounds. */
  enter(userId: string): () => void {
    return this.#dependencies.places.take(userId);
  }

  /** Nothing changes or removes the file from now on. @returns what ends it. @throws file_not_found, file_busy. */
  hold({ row }: Download): Promise<() => void> {
    return this.#dependencies.backupFiles.download(row.id);
  }

  /** Changes whenever the bytes do; a member has another one than the whole. */
  tagOf({ row, member }: Download): string {
    const part = member === '' ? '' : `-${createHash('sha256').update(member).digest('hex').slice(0, 16)}`;
    return `"${row.id}-${row.size}-${row.compressed}-${detailsOf(row).states.length}${part}"`;
  }

  /** Whole size in bytes; undefined when the node does not know it before the end. */
  async sizeOf(download: Download, signal: AbortSignal): Promise<number | undefined> {
    const stop = new AbortController();
    try {
      const both = AbortSignal.any([stop.signal, signal]);
      return (await this.open(download, { offset: 0, length: 1 }, both)).size;
    } finally {
      stop.abort(new VirtkeepError('canceled'));
    }
  }

  /** As `beginBytes`. */
  open({ row, member, nodeId }: Download, part: Part, signal: AbortSignal) {
    const request = {
      file: refOf(row),
      member,
      offset: BigInt(part.offset),
      length: BigInt(part.length),
    };
    const { backups } = this.#dependencies.links.clients(nodeId);
    return beginBytes(until => backups.download(request, { signal: until }), signal);
  }
}
