/** The nodes: enrolment, marks, removal. */

import { VirtkeepError } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { splitHostPort } from '@virtkeep/shared/host-port';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { NodeLinks } from '../../agents/links.ts';
import type { CertificateAuthority } from '../../pki/index.ts';
import type { Database } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { workOf } from '../backup-files/file-work.ts';
import type { Inventory, NodeEntry } from '../inventory/inventory.ts';
import type { EventService } from '../journal/events.ts';
import type { TaskService } from '../tasks/tasks.ts';
import type { CertificateRegister } from './certificate-register.ts';
import {
  type EnrolmentRequest,
  type EnrolmentTicket,
  forgetEnrolmentsOf,
  makeEnrolment,
  redeemEnrolment,
} from './enrolment.ts';
import type { RevocationService } from './revocations.ts';

export interface NodeRecord {
  id: string;
  verbose_name: string;
  description: string;
  status: 'ACTIVE' | 'FAILED' | 'SERVICE';
  management_ip: string;
  version: string;
  cpu_count: number;
  /** MiB. */
  memory_count: number;
  domains_count: number;
  domains_on_count: number;
  hypervisor: { libvirt: string; emulator: string };
  last_seen: string | null;
  base_datapool: string | null;
}

/** What a list of nodes is put in order by. */
export type ListedNode = Pick<
  NodeRecord,
  'id' | 'verbose_name' | 'status' | 'cpu_count' | 'memory_count' | 'domains_count' | 'last_seen'
>;

/** What the VMs of a node that run or are suspended were promised of it. */
export interface NodeUsage {
  id: string;
  verbose_name: string;
  cpu_count: number;
  cpu_promised: number;
  cpu_percent: number;
  memory_count: number;
  memory_promised: number;
  memory_percent: number;
  domains_count: number;
  domains_on_count: number;
}

export interface NodeChanges {
  description?: string;
  base_datapool?: string;
  service_mode?: boolean;
}

export interface NodeServiceDependencies {
  db: Database;
  ca: CertificateAuthority;
  register: CertificateRegister;
  revocations: RevocationService;
  links: NodeLinks;
  inventory: Inventory;
  backupFiles: BackupFiles;
  tasks: TaskService;
  events: EventService;
  enrolmentLifetimeMs: number;
}

interface NodeCertificateRecord {
  node_id: string;
  certificate_pem: string;
  ca_pem: string;
}

const CALL_TIMEOUT_MS = 30_000;

export class NodeService {
  readonly #dependencies: NodeServiceDependencies;
  /** Enrolment and removal of one node come one after the other: a certificate issued in between would never be revoked. */
  readonly #coming = new KeyedQueue();

  constructor(dependencies: NodeServiceDependencies) {
    this.#dependencies = dependencies;
  }

  /** What lists are put in order by; the records are made of a page. */
  listed(): ListedNode[] {
    return [...this.#dependencies.inventory.nodes.values()].map(entry => this.#listed(entry));
  }

  /** The records of these; of one that is no more, none. */
  records(ids: readonly string[]): NodeRecord[] {
    const { inventory } = this.#dependencies;
    const basePools = inventory.basePools();
    return ids.flatMap(id => {
      const entry = inventory.nodes.get(id);
      return entry ? [this.#record(entry, basePools.get(id) ?? null)] : [];
    });
  }

  /** @throws node_not_found. */
  get(id: string): NodeRecord {
    const { inventory } = this.#dependencies;
    return this.#record(inventory.node(id), inventory.basePool(id));
  }

  /** @throws node_not_found. */
  usage(id: string): NodeUsage {
    const node = this.get(id);
    const { domains } = this.#dependencies.inventory;
    const loaded = [...domains.ofNode(id)]
      .flatMap(domainId => domains.get(domainId)?.kept ?? [])
      .filter(({ powerState }) => powerState === PowerState.RUNNING || powerState === PowerState.SUSPENDED);
    const cpus = loaded.reduce((sum, domain) => sum + domain.cpuCount, 0);
    const memory = loaded.reduce((sum, domain) => sum + domain.memoryCount, 0);
    return {
      id,
      verbose_name: node.verbose_name,
      cpu_count: node.cpu_count,
      cpu_promised: cpus,
      cpu_percent: percentOf(cpus, node.cpu_count),
      memory_count: node.memory_count,
      memory_promised: memory,
      memory_percent: percentOf(memory, node.memory_count),
      domains_count: node.domains_count,
      domains_on_count: node.domains_on_count,
    };
  }

  /** As `NodeLinks.untilBack`. */
  untilBack(id: string, signal: AbortSignal): Promise<boolean> {
    return this.#dependencies.links.untilBack(id, signal);
  }

  /** @throws invalid_field (address), node_not_found (replace). */
  enrol(
    request: { verbose_name?: string; description?: string; address?: string; replace?: string },
    username: string,
  ): Promise<EnrolmentTicket> {
    return makeEnrolment(this.#dependencies.db, this.#dependencies.ca, {
      verboseName: request.verbose_name ?? '',
      description: request.description ?? '',
      address: request.address ?? '',
      replaces: request.replace ?? null,
      username,
      lifetimeMs: this.#dependencies.enrolmentLifetimeMs,
    });
  }

  /** A node redeems its token; two that call themselves the same one after the other. @throws as redeemEnrolment. */
  redeem(request: EnrolmentRequest): Promise<NodeCertificateRecord> {
    return this.#coming.run(request.node_id, () => this.#redeem(request));
  }

  async #redeem(request: EnrolmentRequest): Promise<NodeCertificateRecord> {
    const { db, ca, register, inventory, links, events } = this.#dependencies;
    const { row, certificatePem } = await redeemEnrolment(db, ca, request);
    await register.issued(row.id, certificatePem);
    await inventory.putNode(row);
    await links.add({ id: row.id, name: row.verbose_name, address: row.address });
    const entities = [{ id: row.id, class: 'node' }];
    await events.record({ type: 'info', message: `Node ${row.verbose_name} was enrolled`, entities });
    return { node_id: row.id, certificate_pem: certificatePem, ca_pem: ca.certificatePem };
  }

  /** @throws node_not_found; pool_not_found when the pool is not on the node; node_unreachable (base pool only). */
  async update(id: string, changes: NodeChanges): Promise<NodeRecord> {
    const { inventory } = this.#dependencies;
    inventory.node(id);
    if (changes.base_datapool !== undefined) await this.#setBasePool(id, changes.base_datapool);
    await inventory.updateNode(id, {
      ...(changes.description === undefined ? {} : { description: changes.description }),
      ...(changes.service_mode === undefined ? {} : { service_mode: Number(changes.service_mode) }),
      modified: new Date().toISOString(),
    });
    return this.get(id);
  }

  async #setBasePool(nodeId: string, poolId: string): Promise<void> {
    const { inventory, links } = this.#dependencies;
    if (!inventory.pools.get(poolId)?.views.has(nodeId))
      throw new VirtkeepError('pool_not_found', { id: poolId, field: 'base_datapool' });
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const clients = links.clients(nodeId);
    await clients.pools.update({ id: poolId, isBase: true }, { signal });
    const { pools } = await clients.pools.list({}, { signal });
    for (const pool of pools) await inventory.poolChanged(nodeId, pool);
  }

  /**
   * Forgets a node. Its agent keeps running and its VMs are untouched; to come back it is enrolled again. Lost tasks
   * of the node fail, since nobody will ever tell their outcome. Its certificates count no more.
   * @param isCompromised others may have its key: the archives it signed prove nothing any more
   * @throws node_not_found, node_has_tasks.
   */
  remove(id: string, username: string, isCompromised = false): Promise<void> {
    return this.#coming.run(id, () => this.#remove(id, username, isCompromised));
  }

  async #remove(id: string, username: string, isCompromised: boolean): Promise<void> {
    const { inventory, links, tasks, backupFiles, events, revocations } = this.#dependencies;
    const { row } = inventory.node(id);
    const open = await tasks.unfinished(id);
    if (open.some(task => task.row.status === 'IN_PROGRESS'))
      throw new VirtkeepError('node_has_tasks', { node: row.verbose_name });
    await forgetEnrolmentsOf(this.#dependencies.db, id);
    await links.remove(id);
    await revocations.revokeNode(id, isCompromised ? 'compromised' : 'removed');
    const error = new VirtkeepError('outcome_unknown', { node: row.verbose_name });
    for (const { row: task, entities } of open) {
      const [entity] = entities;
      if (entity?.class === 'file') await backupFiles.operationFailed(entity.id, task.id);
      await tasks.finish(task.id, { status: 'FAILED', error });
    }
    await this.#letGoOfFiles(id);
    await backupFiles.poolsGone(await inventory.removeNode(id));
    const message = `Node ${row.verbose_name} was removed`;
    await events.record({ type: 'warning', message, user: username, entities: [{ id, class: 'node' }] });
  }

  /** Files that stayed busy after their task was given up, because only the node knew what had become of them. */
  async #letGoOfFiles(nodeId: string): Promise<void> {
    const { backupFiles, tasks } = this.#dependencies;
    for (const file of await backupFiles.busyOn(nodeId)) {
      const task = await workOf(file, tasks);
      if (task?.row.node_id === nodeId) await backupFiles.operationFailed(file.id, task.row.id);
    }
  }

  #listed(entry: NodeEntry): ListedNode {
    const { row, info } = entry;
    const { inventory, links } = this.#dependencies;
    return {
      id: row.id,
      verbose_name: row.verbose_name,
      status: this.#status(entry),
      cpu_count: info?.cpuCount ?? 0,
      memory_count: Number(info?.memoryCount ?? 0n),
      domains_count: inventory.domains.ofNode(row.id).size,
      last_seen: links.isConnected(row.id) ? new Date().toISOString() : row.last_seen,
    };
  }

  #record(entry: NodeEntry, basePool: string | null): NodeRecord {
    const { row, info } = entry;
    const { domains } = this.#dependencies.inventory;
    const { id, verbose_name, status, cpu_count, memory_count, domains_count, last_seen } =
      this.#listed(entry);
    return {
      id,
      verbose_name,
      description: row.description,
      status,
      management_ip: splitHostPort(row.address).host,
      version: info?.version ?? '',
      cpu_count,
      memory_count,
      domains_count,
      domains_on_count: domains.runningOn(id),
      hypervisor: { libvirt: info?.libvirtVersion ?? '', emulator: info?.emulatorVersion ?? '' },
      last_seen,
      base_datapool: basePool,
    };
  }

  /** FAILED: not reachable, or its hypervisor daemon is not. */
  #status({ row, info }: NodeEntry): NodeRecord['status'] {
    if (row.service_mode === 1) return 'SERVICE';
    return this.#dependencies.links.isConnected(row.id) && info?.libvirtConnected === true
      ? 'ACTIVE'
      : 'FAILED';
  }
}

/** With one decimal; 0 of a node that has told nothing yet. */
function percentOf(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.round((part / whole) * 1000) / 10;
}
