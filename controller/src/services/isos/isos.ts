/** The ISO images of all data pools. The nodes are asked each time: the controller stores nothing about images. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import type { Image, UploadImageRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { newId } from '@virtkeep/shared/ids';
import { isoIdOf } from '@virtkeep/shared/iso';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import type { NodeLinks } from '../../agents/links.ts';
import { beginBytes, type Part } from '../byte-stream.ts';
import type { Named } from '../disks/record.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import { hasFiles } from '../pools/record.ts';
import type { Shares } from '../shares.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';

export interface IsoFilter {
  datapool?: string | undefined;
  node?: string | undefined;
  domain?: string | undefined;
}

export interface IsoRecord {
  id: string;
  filename: string;
  verbose_name: string;
  description: string;
  entity_type: 'iso';
  /** CREATING: it is known by name alone, and is to be uploaded. */
  status: 'ACTIVE' | 'CREATING';
  size: number;
  path: string;
  datapool: Named & { type: string };
  /** The VMs that have it in a drive. */
  domains: Named[];
  created: string;
  modified: string;
  locked_by: null;
}

export interface NewIso {
  datapool: string;
  filename: string;
}

/** Pools that are asked at once. */
const WIDTH = 8;
const LIST_TIMEOUT_MS = 30_000;
/** Images that were announced and not yet uploaded, and how long they are remembered. */
const MAX_ANNOUNCED = 1000;
const ANNOUNCED_MS = 3_600_000;

export interface IsoServiceDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  pools: PoolService;
  /** Each holds a connection and room on a pool. */
  uploads: Shares;
  log: Logger;
}

export class IsoService {
  readonly #dependencies: IsoServiceDependencies;
  /** By id. */
  readonly #announced = new ExpiringMap<NewIso>({ lifeMs: ANNOUNCED_MS, maxEntries: MAX_ANNOUNCED });

  constructor(dependencies: IsoServiceDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * The images of all pools that a connected node can use. What cannot be read is left out, unless that pool was asked for.
   * @throws pool_not_found, pool_not_active, node_unreachable, and what the node answers, for one that was asked for
   */
  async list({ datapool, node, domain }: IsoFilter): Promise<IsoRecord[]> {
    if (datapool !== undefined) this.#dependencies.inventory.pool(datapool);
    const pools = [...this.#dependencies.inventory.pools.values()].filter(
      ({ row, views }) =>
        (datapool === undefined || row.id === datapool) &&
        [...views].some(([nodeId, pool]) => (node === undefined || nodeId === node) && hasFiles(pool)),
    );
    const lists = await mapLimited(pools, WIDTH, ({ row }) =>
      this.#recordsOf(row.id, node).catch((error: unknown) => {
        if (datapool !== undefined) throw error;
        this.#dependencies.log.warn('the images of a data pool cannot be listed', {
          pool: row.verbose_name,
          error,
        });
        return [];
      }),
    );
    const images = lists.flat();
    return domain === undefined
      ? images
      : images.filter(({ domains }) => domains.some(({ id }) => id === domain));
  }

  /** @throws iso_not_found; also for one that lies where nobody can look now. */
  async get(id: string): Promise<IsoRecord> {
    const found = (await this.list({})).find(image => image.id === id);
    if (found) return found;
    const announced = this.#announced.get(id);
    if (announced) return this.#emptyRecord(id, announced);
    throw new VirtkeepError('iso_not_found', { id });
  }

  /** An image that is to be uploaded under this id. @throws as `requireNew`. */
  async announce(image: NewIso): Promise<IsoRecord> {
    await this.#requireNew(image);
    const id = isoIdOf(image.datapool, image.filename);
    this.#announced.set(id, image);
    return this.#emptyRecord(id, image);
  }

  /** What was announced under the id. @throws iso_not_found. */
  announced(id: string): NewIso {
    const found = this.#announced.get(id);
    if (!found) throw new VirtkeepError('iso_not_found', { id });
    return found;
  }

  /**
   * Sends an image to a node that has the pool; it is there when this resolves, and nothing of it is when it throws.
   * @param sizeBytes 0: not known
   * @throws as `requireNew`; what the node answers; what the bytes throw
   */
  async upload(
    image: NewIso,
    sent: { userId: string; sizeBytes: number; bytes: AsyncIterable<Uint8Array> },
    signal: AbortSignal,
  ): Promise<IsoRecord> {
    const nodeId = await this.#requireNew(image);
    const leave = this.#dependencies.uploads.take(sent.userId);
    try {
      const { images } = this.#dependencies.links.clients(nodeId);
      const created = await images.upload(messages(image, sent), { signal });
      this.#announced.delete(isoIdOf(image.datapool, image.filename));
      return this.#record(image, created, this.#drivesOf(image.datapool));
    } finally {
      leave();
    }
  }

  /** As `beginBytes`. */
  open({ datapool, filename }: IsoRecord, { offset, length }: Part, signal: AbortSignal) {
    const request = { poolId: datapool.id, filename, offset: BigInt(offset), length: BigInt(length) };
    const { images } = this.#dependencies.links.clients(this.#dependencies.pools.nodeFor(datapool.id));
    return beginBytes(until => images.download(request, { signal: until }), signal);
  }

  /**
   * @returns the node that it is sent to
   * @throws pool_not_found, pool_read_only, pool_outside, pool_not_active, node_unreachable, node_in_service, file_exists
   */
  async #requireNew({ datapool, filename }: NewIso): Promise<string> {
    const nodeId = this.#dependencies.pools.nodeFor(datapool);
    this.#dependencies.pools.writable(datapool, nodeId, 'datapool');
    this.#dependencies.nodeTasks.assertReady(nodeId);
    const there = (await this.#imagesOf(datapool)).find(image => image.filename === filename);
    if (there) throw new VirtkeepError('file_exists', { path: there.path, field: 'filename' });
    return nodeId;
  }

  async #recordsOf(poolId: string, node?: string): Promise<IsoRecord[]> {
    const images = await this.#imagesOf(poolId, node);
    const drives = this.#drivesOf(poolId);
    return images.map(image => this.#record({ datapool: poolId, filename: image.filename }, image, drives));
  }

  /** Of a node's answer only the images of the requested pool. */
  async #imagesOf(poolId: string, node?: string): Promise<Image[]> {
    const nodeId = node ?? this.#dependencies.pools.nodeFor(poolId);
    const signal = AbortSignal.timeout(LIST_TIMEOUT_MS);
    const { images } = await this.#dependencies.links.clients(nodeId).images.list({ poolId }, { signal });
    const own = images.filter(image => image.poolId === poolId);
    if (own.length < images.length)
      this.#dependencies.log.warn('a node tells of images of a data pool that it was not asked for', {
        node: nodeId,
        pool: poolId,
      });
    return own;
  }

  /** The VMs that have something of the pool in a drive, by its path: looked through once for all images of a list. */
  #drivesOf(poolId: string): ReadonlyMap<string, Named[]> {
    const found = new Map<string, Named[]>();
    for (const { domain } of this.#dependencies.inventory.domains.withDrive()) {
      const paths = domain.cdroms.filter(drive => drive.poolId === poolId).map(({ path }) => path);
      for (const path of new Set(paths))
        found.set(path, [...(found.get(path) ?? []), { id: domain.id, verbose_name: domain.name }]);
    }
    return found;
  }

  /** The id is made of pool and name, whatever id a node sends: a node must not replace another node's image. */
  #record(image: NewIso, { path, size, modified }: Image, drives: ReadonlyMap<string, Named[]>): IsoRecord {
    const { datapool, filename } = image;
    const time = timeOf(modified);
    const domains = drives.get(path) ?? [];
    const facts = { path, size: Number(size), created: time, modified: time, domains };
    return { ...this.#emptyRecord(isoIdOf(datapool, filename), image), ...facts, status: 'ACTIVE' };
  }

  #emptyRecord(id: string, { datapool, filename }: NewIso): IsoRecord {
    const row = this.#dependencies.inventory.pools.get(datapool)?.row;
    const now = new Date().toISOString();
    return {
      id,
      filename,
      verbose_name: filename,
      description: '',
      entity_type: 'iso',
      status: 'CREATING',
      size: 0,
      path: '',
      datapool: { id: datapool, verbose_name: row?.verbose_name ?? '', type: row?.type ?? '' },
      domains: [],
      created: now,
      modified: now,
      locked_by: null,
    };
  }
}

/** A time from a node; an invalid one becomes 1970. */
function timeOf(time: Date | undefined): string {
  const year = time?.getUTCFullYear() ?? Number.NaN;
  return (year >= 0 && year <= 9999 ? time! : new Date(0)).toISOString();
}

async function* messages(
  { datapool: poolId, filename }: NewIso,
  { sizeBytes, bytes }: { sizeBytes: number; bytes: AsyncIterable<Uint8Array> },
): AsyncGenerator<Partial<UploadImageRequest>> {
  yield { image: { operationId: newId(), poolId, filename, size: BigInt(sizeBytes) } };
  for await (const data of bytes) yield { data: Buffer.from(data.buffer, data.byteOffset, data.length) };
}
