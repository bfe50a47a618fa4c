/** Disk images that become disks: what is checked here before a node is asked, and what is sent to it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ImportDiskRequest, NewDomain } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import type { Actor } from '../../auth/principal.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { isDiskImage } from '../backup-files/usable.ts';
import type { DomainService } from '../domains/domains.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import { type NodeOptions, nodeFields } from '../tasks/node-fields.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import { type LibraryService, refOf } from './library.ts';

/** What a new VM is like; none of it goes with `domain`. */
interface NewDomainOptions {
  verbose_name?: string;
  /** MiB. */
  memory_count?: number;
  cpu_count?: number;
  os_type?: string;
  firmware?: string;
  network?: string;
  virtio?: boolean;
}

export interface DiskImportOptions
  extends NodeOptions<
      ImportDiskRequest,
      'operationId' | 'file' | 'fileId' | 'poolId' | 'domainId' | 'newDomain'
    >,
    NewDomainOptions {
  file: string;
  node: string;
  datapool?: string;
  /** The VM that gets a further disk. */
  domain?: string;
}

const OF_NEW = [
  ...(['verbose_name', 'memory_count', 'cpu_count', 'os_type', 'firmware'] as const),
  ...(['network', 'virtio'] as const),
];

export interface DiskImportDependencies {
  inventory: Inventory;
  backupFiles: BackupFiles;
  pools: PoolService;
  library: LibraryService;
  nodeTasks: NodeTasks;
  domains: DomainService;
}

export class DiskImportService {
  readonly #dependencies: DiskImportDependencies;

  constructor(dependencies: DiskImportDependencies) {
    this.#dependencies = dependencies;
    dependencies.nodeTasks.ends.succeeded({ import_disk: ended => dependencies.domains.changed(ended) });
  }

  /**
   * Starts the import, into a new VM or into one that is there; its id is the first of the task's entities.
   * @throws file_not_found, file_busy, file_not_disk_image, node_not_found, domain_not_found, pool_not_active, pool_read_only, pool_outside,
   * missing_field, invalid_field, conflicting_fields, and what the node answers.
   */
  async importDisk(options: DiskImportOptions, user: Actor, taskId: string): Promise<TaskState> {
    const { node: nodeId, datapool, domain, file, format, target_bus } = options;
    const newDomain = newDomainOf(options);
    const { inventory, library, nodeTasks, pools, backupFiles } = this.#dependencies;
    const row = await library.published(file);
    if (!isDiskImage(row))
      throw new VirtkeepError('file_not_disk_image', { file: row.filename, type: row.type });
    inventory.node(nodeId);
    nodeTasks.assertReady(nodeId);
    pools.onNode(row.pool_id, nodeId, 'node');
    // where the file is, unless nothing is written there (specification 2.3, rule 7)
    pools.writable(datapool ?? row.pool_id, nodeId, 'datapool');
    const taker = domain === undefined ? undefined : this.#domainOn(domain, nodeId);
    const request = {
      ...nodeFields({ format, target_bus: target_bus ?? (newDomain?.virtio === false ? 'sata' : undefined) }),
      file: refOf(row),
      fileId: row.id,
      poolId: datapool ?? '',
      domainId: taker?.id ?? newId(),
      newDomain,
    };
    return nodeTasks.start({
      taskId,
      name: 'domain_import_disk',
      verboseName: `Import ${row.filename} into ${taker?.name ?? newDomain!.name}`,
      user,
      nodeId,
      entities: [
        { id: request.domainId, class: 'domain' },
        { id: row.id, class: 'file' },
      ],
      prepare: () => backupFiles.read(row.id),
      send: (clients, operationId, signal) =>
        clients.restores.importDisk({ operationId, ...request }, { signal }),
    });
  }

  #domainOn(id: string, nodeId: string): { id: string; name: string } {
    const { domain, nodeId: own } = this.#dependencies.inventory.oneDomain(id);
    if (own === nodeId) return domain;
    const { row } = this.#dependencies.inventory.node(own);
    const reason = `must be the node of the VM ${domain.name}: ${row.verbose_name}`;
    throw new VirtkeepError('invalid_field', { field: 'node', reason });
  }
}

/** Undefined: a VM that is there gets the disk. @throws VirtkeepError missing_field, conflicting_fields */
function newDomainOf(options: DiskImportOptions): NewDomain | undefined {
  const given = OF_NEW.find(name => options[name] !== undefined);
  if (options.domain !== undefined) {
    if (given === undefined) return undefined;
    throw new VirtkeepError('conflicting_fields', { first: 'domain', second: given });
  }
  const missing = (field: string) => new VirtkeepError('missing_field', { field });
  const { verbose_name: name, memory_count, cpu_count, os_type, firmware, network, virtio } = options;
  // without any of them it is not told which of both is meant
  if (name === undefined) throw missing(given === undefined ? 'domain' : 'verbose_name');
  if (memory_count === undefined) throw missing('memory_count');
  if (cpu_count === undefined) throw missing('cpu_count');
  return {
    ...{ name, memoryCount: BigInt(memory_count), cpuCount: cpu_count },
    ...{ osType: os_type ?? '', firmware: firmware ?? '', network: network ?? '', virtio: virtio ?? true },
  };
}
