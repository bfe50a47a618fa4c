/** The domains of all nodes, and what may be done with them besides backups. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { PowerAction, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { NodeLinks } from '../../agents/links.ts';
import type { Actor, Principal } from '../../auth/principal.ts';
import type { DomainEntry, Inventory } from '../inventory/inventory.ts';
import type { ProtectionVerdict } from '../protection/rules.ts';
import type { BorneTag } from '../tags/record.ts';
import { type EndedOperation, entityOf } from '../tasks/ends.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import {
  type DomainContext,
  type DomainRecord,
  domainRecord,
  type ListedDomain,
  shortDomainRecord,
} from './record.ts';

export interface DomainFilter {
  node?: string | undefined;
  datapool?: string | undefined;
  template?: boolean | undefined;
  thin?: boolean | undefined;
  parent?: string | undefined;
  with_vdisks?: boolean | undefined;
  user_power_state?: number | undefined;
}

export const POWER_ACTIONS = ['start', 'shutdown', 'reboot', 'suspend', 'resume', 'reset'] as const;
export type PowerActionName = (typeof POWER_ACTIONS)[number];

const ACTION: Record<PowerActionName, PowerAction> = {
  start: PowerAction.START,
  shutdown: PowerAction.SHUTDOWN,
  reboot: PowerAction.REBOOT,
  suspend: PowerAction.SUSPEND,
  resume: PowerAction.RESUME,
  reset: PowerAction.RESET,
};

const WORDS: Record<PowerActionName, string> = {
  start: 'Start',
  shutdown: 'Shut down',
  reboot: 'Reboot',
  suspend: 'Suspend',
  resume: 'Resume',
  reset: 'Reset',
};

const CALL_TIMEOUT_MS = 30_000;

export interface DomainServiceDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  tags: BorneTags;
  protection: { verdict(domainId: string): ProtectionVerdict };
}

/** What a VM needs of the tags. */
export interface BorneTags {
  borneBy(id: string): BorneTag[];
  forget(ids: readonly string[]): Promise<void>;
}

export class DomainService {
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;
  readonly #nodeTasks: NodeTasks;
  readonly #tags: BorneTags;
  readonly #protection: DomainServiceDependencies['protection'];

  constructor({ inventory, links, nodeTasks, tags, protection }: DomainServiceDependencies) {
    this.#inventory = inventory;
    this.#links = links;
    this.#nodeTasks = nodeTasks;
    this.#tags = tags;
    this.#protection = protection;
    nodeTasks.ends.succeeded({
      power: ended => this.changed(ended),
      rename_domain: ended => this.changed(ended),
      remove_domain: ended => this.#removed(ended),
    });
  }

  /** The records of those that match, on all nodes, also those that are away; short unless `full`. */
  list(filter: DomainFilter, viewer: Principal | null, full: boolean): ListedDomain[] {
    const render = full ? domainRecord : shortDomainRecord;
    const parents = this.#parents();
    return [...this.#inventory.domains.values()]
      .map(entry => ({ entry, record: render(entry, this.#context(entry, viewer, parents)) }))
      .filter(({ entry, record }) => matches(entry, record, filter))
      .map(({ record }) => record);
  }

  /** The whole record. @throws domain_not_found. */
  get(id: string, viewer: Principal | null): DomainRecord {
    const entry = this.#inventory.domain(id);
    return this.whole(domainRecord(entry, this.#context(entry, viewer, this.#parents())));
  }

  /** A record of the list as it is told. */
  whole(record: ListedDomain): DomainRecord {
    return { ...record, protection: this.#protection.verdict(record.id) };
  }

  /** As `get`; undefined when there is none. */
  find(id: string, viewer: Principal | null): DomainRecord | undefined {
    return this.#inventory.domains.has(id) ? this.get(id, viewer) : undefined;
  }

  /** The result of a task, for whoever reads it: a VM's record tells what they may do with it now. */
  seenBy(result: unknown, viewer: Principal): unknown {
    if (!isDomainRecord(result)) return result;
    const now = this.find(result.id, viewer);
    return { ...result, permissions: now?.permissions ?? [], ...(now && { protection: now.protection }) };
  }

  /** The text people gave it, kept in the domain's own metadata. @throws domain_not_found, node_unreachable. */
  async update(id: string, changes: { description?: string | undefined }): Promise<void> {
    const { nodeId } = this.#inventory.oneDomain(id);
    if (changes.description === undefined) return;
    this.#nodeTasks.assertReady(nodeId);
    await this.#change(nodeId, { domainId: id, description: changes.description });
  }

  /** Whether the VM would have another name then. @throws domain_not_found. */
  isOtherName(id: string, name: string | undefined): name is string {
    return name !== undefined && name !== this.#inventory.domain(id).domain.name;
  }

  /**
   * Refuses at once what the node would refuse, so that what else is changed with the name is not changed without it.
   * @throws domain_not_found, name_in_use (by a VM of any node), power_state_conflict, rename_with_states, node_unreachable, …
   */
  checkRename(id: string, name: string): void {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    this.#nodeTasks.assertReady(nodeId);
    const others = [...this.#inventory.domains.values()].filter(other => other.domain.id !== id);
    if (others.some(other => other.domain.name === name))
      throw new VirtkeepError('name_in_use', { name, field: 'verbose_name' });
    if (domain.powerState !== PowerState.OFF)
      throw new VirtkeepError('power_state_conflict', {
        domain: domain.name,
        state: 'running',
        action: 'renamed',
      });
    if (domain.savedStates.length > 0) throw new VirtkeepError('rename_with_states', { domain: domain.name });
  }

  /** @throws as `checkRename`, and what the node answers. */
  async rename(id: string, name: string, user: Actor, taskId: string): Promise<TaskState> {
    this.checkRename(id, name);
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    return this.#nodeTasks.start({
      taskId,
      name: 'domain_rename',
      verboseName: `Rename ${domain.name} to ${name}`,
      user,
      nodeId,
      entities: [{ id, class: 'domain' }],
      send: (clients, operationId, signal) =>
        clients.domains.rename({ operationId, domainId: id, name }, { signal }),
    });
  }

  /** @throws domain_not_found, node_unreachable, node_in_service, and what the node answers. */
  async power(
    id: string,
    { action, force }: { action: PowerActionName; force: boolean },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    // one that runs twice is switched off on the node that is shown as its own
    const { domain, nodeId, conflict } = this.#inventory.domain(id);
    if (conflict?.kind !== 'twice' || action !== 'shutdown') this.#inventory.oneDomain(id);
    if (action === 'start' && domain.template)
      throw new VirtkeepError('template_not_startable', { domain: domain.name });
    const request = { domainId: id, action: ACTION[action], force };
    return this.#nodeTasks.start({
      taskId,
      name: `domain_${action}`,
      verboseName: `${WORDS[action]} ${domain.name}`,
      user,
      nodeId,
      entities: [{ id, class: 'domain' }],
      send: (clients, operationId, signal) =>
        clients.domains.setPower({ operationId, ...request }, { signal }),
    });
  }

  /** @param options full: with its disks; force: also when it runs. */
  async remove(
    id: string,
    options: { full: boolean; force: boolean },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    const disks = options.full ? domain.disks : [];
    return this.#nodeTasks.start({
      taskId,
      name: 'domain_remove',
      verboseName: `Remove ${domain.name}`,
      user,
      nodeId,
      entities: [{ id, class: 'domain' }, ...disks.map(disk => ({ id: disk.id, class: 'vdisk' }))],
      send: (clients, operationId, signal) =>
        clients.domains.remove({ operationId, domainId: id, ...options }, { signal }),
    });
  }

  /** The end of what changed a VM: its record as it is now. */
  async changed(
    { operation }: EndedOperation,
    id = entityOf(operation, EntityClass.DOMAIN),
  ): Promise<DomainRecord> {
    return this.get(id, null);
  }

  async #removed({ nodeId, operation, task }: EndedOperation): Promise<void> {
    const id = entityOf(operation, EntityClass.DOMAIN);
    // a large node that has just connected may not have said so yet
    await this.#inventory.domainRemoved(nodeId, id);
    const disks = (task?.entities ?? []).filter(entity => entity.class === 'vdisk');
    await this.#tags.forget(this.#gone([id, ...disks.map(disk => disk.id)]));
  }

  /** Of these VMs and disks those that no node has: another may have the VM, too, and another VM the disk. */
  #gone(ids: readonly string[]): string[] {
    const { domains } = this.#inventory;
    const left = new Set([...domains.values()].flatMap(({ domain }) => domain.disks.map(({ id }) => id)));
    return ids.filter(id => !domains.has(id) && !left.has(id));
  }

  /** Marks or unmarks a template; kept in the domain's own metadata. */
  setTemplate(id: string, template: boolean, user: Actor, taskId: string): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    this.#nodeTasks.assertReady(nodeId);
    const task = {
      taskId,
      name: 'domain_template',
      verboseName: `${template ? 'Make a template of' : 'Make a VM of'} ${domain.name}`,
      user,
      entities: [{ id, class: 'domain' }],
    };
    return this.#nodeTasks.runLocal(task, async () => {
      await this.#change(nodeId, { domainId: id, template });
      return this.get(id, null);
    });
  }

  async #change(
    nodeId: string,
    change: { domainId: string; description?: string; template?: boolean },
  ): Promise<void> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const domain = await this.#links.clients(nodeId).domains.update(change, { signal });
    await this.#inventory.domainChanged(nodeId, domain);
  }

  /** The templates that thin clones stand on. */
  #parents(): Set<string> {
    return new Set([...this.#inventory.domains.values()].map(({ domain }) => domain.parentId));
  }

  #context(entry: DomainEntry, viewer: Principal | null, parents: ReadonlySet<string>): DomainContext {
    const node = this.#inventory.nodes.get(entry.nodeId);
    return {
      node: {
        id: entry.nodeId,
        verbose_name: node?.row.verbose_name ?? '',
        connected: this.#links.isConnected(entry.nodeId) && node?.info?.libvirtConnected === true,
        service: node?.row.service_mode === 1,
      },
      parentName: this.#inventory.domains.get(entry.domain.parentId)?.domain.name ?? null,
      hasClones: parents.has(entry.domain.id),
      tags: this.#tags.borneBy(entry.domain.id),
      viewer,
    };
  }
}

function matches({ domain, nodeId }: DomainEntry, record: ListedDomain, filter: DomainFilter): boolean {
  const same = <T>(expected: T | undefined, value: T) => expected === undefined || expected === value;
  return (
    same(filter.node, nodeId) &&
    same(filter.template, record.template) &&
    same(filter.thin, record.thin) &&
    same(filter.parent, domain.parentId) &&
    same(filter.user_power_state, record.user_power_state) &&
    same(filter.with_vdisks, domain.disks.length > 0) &&
    (filter.datapool === undefined || domain.disks.some(disk => disk.poolId === filter.datapool))
  );
}

function isDomainRecord(result: unknown): result is DomainRecord {
  return (result as { entity_type?: unknown } | null)?.entity_type === 'domain';
}
