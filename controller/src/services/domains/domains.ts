/** The domains of all nodes, and what may be done with them besides backups. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { PowerAction, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { NodeLinks } from '../../agents/links.ts';
import type { Actor, Principal } from '../../auth/principal.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import { SeenNodes } from '../inventory/seen-nodes.ts';
import { OrderedThings, type PageRequest } from '../ordered-things.ts';
import type { ProtectionService } from '../protection/protection.ts';
import type { ProtectionState } from '../protection/rules.ts';
import type { BorneTag } from '../tags/record.ts';
import { type EndedOperation, entityOf } from '../tasks/ends.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import {
  type DomainContext,
  type DomainRecord,
  domainRecord,
  type ListedDomain,
  powerTold,
  shortDomainRecord,
  statusTold,
} from './record.ts';

export interface DomainFilter {
  node?: string | undefined;
  datapool?: string | undefined;
  template?: boolean | undefined;
  thin?: boolean | undefined;
  parent?: string | undefined;
  with_vdisks?: boolean | undefined;
  user_power_state?: number | undefined;
  protection?: ProtectionState | undefined;
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

export interface DomainPageRequest extends PageRequest {
  filter: DomainFilter;
  /** Ids of those that bear the tag that is asked for; undefined: none is. */
  tagged?: Iterable<string> | undefined;
  /** Part of its name. */
  name?: string | undefined;
}

export interface DomainServiceDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  tags: BorneTags;
  protection: Pick<ProtectionService, 'verdict' | 'state' | 'look' | 'setStateListener'>;
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
  readonly #lists: OrderedThings<DomainEntry>;
  readonly #seenNodes: SeenNodes;

  constructor({ inventory, links, nodeTasks, tags, protection }: DomainServiceDependencies) {
    this.#inventory = inventory;
    this.#links = links;
    this.#nodeTasks = nodeTasks;
    this.#tags = tags;
    this.#protection = protection;
    const { domains } = inventory;
    this.#lists = new OrderedThings({
      all: () => domains.keys(),
      find: id => domains.get(id),
      fields: {
        verbose_name: ({ name }) => name,
        created: ({ firstSeen }) => firstSeen,
        modified: ({ modified }) => modified,
        memory_count: ({ kept }) => kept.memoryCount,
        cpu_count: ({ kept }) => kept.cpuCount,
        status: ({ nodeId }) => statusTold(this.#nodeOf(nodeId)),
        user_power_state: ({ kept, nodeId }) => powerTold(kept, this.#isThere(nodeId)),
      },
      nodeFields: ['status', 'user_power_state'],
      refresh: () => this.#refresh(),
    });
    domains.onChange(id => this.#lists.touch(id));
    protection.setStateListener(id => this.#lists.touch(id));
    this.#seenNodes = new SeenNodes(
      () => inventory.nodes.keys(),
      id => statusTold(this.#nodeOf(id)),
    );
    nodeTasks.ends.succeeded({
      power: ended => this.changed(ended),
      rename_domain: ended => this.changed(ended),
      remove_domain: ended => this.#removed(ended),
    });
  }

  /** A page of the records of those that match, on all nodes, also those that are away; short unless `full`. */
  async page(
    request: DomainPageRequest,
    viewer: Principal | null,
    full: boolean,
  ): Promise<{ count: number; records: DomainRecord[] }> {
    const { filter, tagged, name } = request;
    // what a record tells of it is judged when it is told
    if (filter.protection !== undefined) await this.#protection.look();
    const matches = matcher(filter, {
      stateOf: id => this.#protection.state(id),
      part: name?.toLowerCase(),
      isThere: nodeId => this.#isThere(nodeId),
    });
    const { count, things } = await this.#lists.page(request, {
      among: tagged ?? this.#among(filter),
      matches,
      name: JSON.stringify([filter, name]),
    });
    const render = full ? domainRecord : shortDomainRecord;
    const records = things.map(entry => this.#whole(render(entry, this.#context(entry, viewer))));
    return { count, records };
  }

  /** What VMs are in order by may have changed with their nodes. */
  #refresh(): void {
    this.#lists.nodesChanged(this.#seenNodes.changed(), id => this.#inventory.domains.ofNode(id));
  }

  /** Ids of the few that may match; undefined: any may. */
  #among({ node, parent }: DomainFilter): ReadonlySet<string> | undefined {
    if (node !== undefined) return this.#inventory.domains.ofNode(node);
    return parent === undefined || parent === '' ? undefined : this.#inventory.domains.clonesOf(parent);
  }

  #isThere(nodeId: string): boolean {
    return (
      this.#links.isConnected(nodeId) && this.#inventory.nodes.get(nodeId)?.info?.libvirtConnected === true
    );
  }

  /** The whole record. @throws domain_not_found. */
  get(id: string, viewer: Principal | null): DomainRecord {
    const entry = this.#inventory.domain(id);
    return this.#whole(domainRecord(entry, this.#context(entry, viewer)));
  }

  #whole(record: ListedDomain): DomainRecord {
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
    return name !== undefined && name !== this.#inventory.domain(id).name;
  }

  /**
   * Refuses at once what the node would refuse, so that what else is changed with the name is not changed without it.
   * @throws domain_not_found, name_in_use (by a VM of any node), power_state_conflict, rename_with_states, node_unreachable, …
   */
  checkRename(id: string, name: string): void {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    this.#nodeTasks.assertReady(nodeId);
    if ([...this.#inventory.domains.named(name)].some(other => other !== id))
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
    return ids.filter(id => !domains.has(id) && domains.withDisk(id).size === 0);
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

  #nodeOf(id: string): DomainContext['node'] {
    const row = this.#inventory.nodes.get(id)?.row;
    return {
      id,
      verbose_name: row?.verbose_name ?? '',
      connected: this.#isThere(id),
      service: row?.service_mode === 1,
    };
  }

  #context(entry: DomainEntry, viewer: Principal | null): DomainContext {
    return {
      node: this.#nodeOf(entry.nodeId),
      parentName: this.#inventory.domains.get(entry.kept.parentId)?.name ?? null,
      hasClones: this.#inventory.domains.clonesOf(entry.id).size > 0,
      tags: this.#tags.borneBy(entry.id),
      viewer,
    };
  }
}

interface Further {
  stateOf: (id: string) => ProtectionState;
  /** Of its name, in small letters. */
  part: string | undefined;
  isThere: (nodeId: string) => boolean;
}

/** By the domain itself, since its record is made for those of a page only. Undefined: everything matches. */
function matcher(
  filter: DomainFilter,
  { stateOf, part, isThere }: Further,
): ((entry: DomainEntry) => boolean) | undefined {
  const isAny = Object.values(filter).every(value => value === undefined);
  if (isAny && part === undefined) return undefined;
  const same = <T>(expected: T | undefined, value: T) => expected === undefined || expected === value;
  const { user_power_state: power, datapool } = filter;
  return entry => {
    const { id, name, nodeId, kept } = entry;
    return (
      same(filter.node, nodeId) &&
      same(filter.template, kept.template) &&
      same(filter.thin, kept.parentId !== '') &&
      same(filter.parent, kept.parentId) &&
      (power === undefined || power === powerTold(kept, isThere(nodeId))) &&
      (part === undefined || name.toLowerCase().includes(part)) &&
      (filter.protection === undefined || filter.protection === stateOf(id)) &&
      // the whole of it comes last: it is made for this
      (filter.with_vdisks === undefined || filter.with_vdisks === entry.domain.disks.length > 0) &&
      (datapool === undefined || entry.domain.disks.some(disk => disk.poolId === datapool))
    );
  };
}

function isDomainRecord(result: unknown): result is DomainRecord {
  return (result as { entity_type?: unknown } | null)?.entity_type === 'domain';
}
