/** Templates: their clones, and their change by one of these. Marking one is DomainService's. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import type { Actor } from '../../auth/principal.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import type { DomainService } from './domains.ts';

export interface NewClone {
  /** Of the new VM; the old one's with a suffix when absent. */
  verbose_name?: string;
  /** Its disks stand on the template's. */
  thin?: boolean;
  /** Pool of the new disks; beside the old ones when absent. */
  datapool?: string;
  description?: string;
}

export interface TemplateServiceDependencies {
  inventory: Inventory;
  nodeTasks: NodeTasks;
  pools: PoolService;
  domains: DomainService;
}

export class TemplateService {
  readonly #inventory: Inventory;
  readonly #nodeTasks: NodeTasks;
  readonly #pools: PoolService;

  constructor({ inventory, nodeTasks, pools, domains }: TemplateServiceDependencies) {
    this.#inventory = inventory;
    this.#nodeTasks = nodeTasks;
    this.#pools = pools;
    nodeTasks.ends.succeeded({
      clone_domain: ended => domains.changed(ended, resultOf(ended.operation, 'cloneDomain').domainId),
    });
  }

  /**
   * Clones a VM that is off. Whether it can be cloned is its node's decision.
   * @throws domain_not_found, pool_not_found, pool_not_active, pool_read_only, pool_outside, node_unreachable,
   * node_in_service, and what the node answers.
   */
  async clone(id: string, options: NewClone, user: Actor, taskId: string): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    const { verbose_name: name = '', thin = false, datapool: poolId = '', description = '' } = options;
    if (poolId !== '') this.#pools.writable(poolId, nodeId, 'datapool');
    const newDomainId = newId();
    const request = { domainId: id, newDomainId, name, thin, poolId, description };
    return this.#nodeTasks.start({
      taskId,
      name: 'domain_clone',
      verboseName: `Clone ${domain.name}${name === '' ? '' : ` as ${name}`}`,
      user,
      nodeId,
      entities: [
        { id: newDomainId, class: 'domain' },
        { id, class: 'domain' },
      ],
      send: (clients, operationId, signal) =>
        clients.templates.clone({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Takes the changes of a thin clone into its template and makes the disks of all its thin clones anew.
   * @throws domain_not_found, not_thin_clone, node_unreachable, node_in_service, and what the node answers.
   */
  async change(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    if (domain.parentId === '') throw new VirtkeepError('not_thin_clone', { domain: domain.name });
    const template = this.#inventory.domains.get(domain.parentId)?.domain.name ?? domain.parentId;
    return this.#nodeTasks.start({
      taskId,
      name: 'template_change',
      verboseName: `Change the template ${template} to what ${domain.name} is`,
      user,
      nodeId,
      entities: [
        { id: domain.parentId, class: 'domain' },
        { id, class: 'domain' },
      ],
      send: (clients, operationId, signal) =>
        clients.templates.change({ operationId, domainId: id }, { signal }),
    });
  }
}
