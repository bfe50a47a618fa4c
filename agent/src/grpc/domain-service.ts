import { Affect, DomainXml, type Domain as LibvirtDomain, MetadataType } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  type Domain,
  type DomainServiceImplementation,
  PowerAction,
  type RemoveDomainRequest,
  type RenameDomainRequest,
  type SetPowerRequest,
  type UpdateDomainRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { isUuid } from '@virtkeep/shared/ids';
import { type DomainMetadata, parseDomain, refuseWhileLent, withoutSecrets } from '../domain-xml/index.ts';
import type { Inventory } from '../inventory/index.ts';
import { fromDomain } from '../libvirt/domains.ts';
import type { OperationRunner } from '../operations/runner.ts';
import { writeMetadata } from '../snapshots/index.ts';
import type { Workflow } from '../workflows/context.ts';
import { ruleOf, setPower } from '../workflows/domain/power.ts';
import { type RemoveDependencies, removeDomain } from '../workflows/domain/remove-domain.ts';
import { type RenameDependencies, renameDomain } from '../workflows/domain/rename-domain.ts';
import { refuseWithClonesAnywhere } from '../workflows/family/clones-elsewhere.ts';
import { requireDescription } from './fields.ts';
import { maySeeSecrets } from './peer.ts';
import { domainEntities, domainLocks, startOperation } from './start-operation.ts';

export interface DomainServiceOptions {
  inventory: Inventory;
  runner: OperationRunner;
  workflows: RemoveDependencies & RenameDependencies;
}

const DEFAULT_TIMEOUT_SECONDS = 120;
const MAX_TIMEOUT_SECONDS = 86_400;

/** `DomainService`; what its methods promise stands in the proto. */
export function domainService(options: DomainServiceOptions): DomainServiceImplementation {
  const { inventory } = options;
  return {
    list: async () => ({ domains: inventory.domains() }),
    get: async ({ id }) => freshDomain(inventory, id),
    getXml: async ({ id, inactive }, context) => {
      await knownDomain(inventory, id);
      const flags = inactive ? DomainXml.INACTIVE : 0;
      const xml = await withDomainErrors(options.workflows, id, domain => domain.xml(flags));
      return { xml: maySeeSecrets(context) ? xml : withoutSecrets(xml) };
    },
    setPower: async (request, { signal }) => startPower(options, request, signal),
    remove: async (request, { signal }) => startRemove(options, request, signal),
    update: async (request, { signal }) => update(options, request, signal),
    rename: async (request, { signal }) => startRename(options, request, signal),
  };
}

async function startPower(
  options: DomainServiceOptions,
  request: SetPowerRequest,
  signal: AbortSignal,
): Promise<Operation> {
  const { domainId, action, force } = request;
  ruleOf(action);
  const seconds = request.timeoutSeconds || DEFAULT_TIMEOUT_SECONDS;
  if (seconds > MAX_TIMEOUT_SECONDS) {
    const reason = `is more than ${MAX_TIMEOUT_SECONDS}`;
    throw new VirtkeepError('invalid_field', { field: 'timeout_seconds', reason });
  }
  const workflow = setPower(options.workflows, { domainId, action, force, timeoutMs: seconds * 1000 });
  // one that runs twice may be switched off
  const mayBeCopy = action === PowerAction.SHUTDOWN;
  const holds: DomainPlan['holds'] = ['power'];
  return startOn(options, 'power', { request, signal }, { holds, workflow, cancellable: true, mayBeCopy });
}

async function startRemove(
  options: DomainServiceOptions,
  request: RemoveDomainRequest,
  signal: AbortSignal,
): Promise<Operation> {
  // it takes a moment, and half of it is nothing to stop at
  const cancellable = false;
  const holds: DomainPlan['holds'] = ['domain', 'power'];
  const workflow = removeDomain(options.workflows, request);
  // without its disks, a stale copy may go: nothing else is left to be done with it
  return startOn(
    options,
    'remove_domain',
    { request, signal },
    {
      holds,
      workflow,
      cancellable,
      mayBeCopy: !request.full,
    },
  );
}

async function startRename(
  options: DomainServiceOptions,
  request: RenameDomainRequest,
  signal: AbortSignal,
): Promise<Operation> {
  const workflow = renameDomain(options.workflows, request);
  const holds: DomainPlan['holds'] = ['domain', 'power'];
  return startOn(
    options,
    'rename_domain',
    { request, signal },
    {
      holds,
      workflow,
      cancellable: false,
      mayBeCopy: false,
    },
  );
}

interface DomainPlan {
  holds: ('domain' | 'power')[];
  workflow: Workflow;
  cancellable: boolean;
  /** It may be a stale copy of another node's VM. */
  mayBeCopy: boolean;
}

/** Starts an operation that holds one domain. */
function startOn(
  { inventory, runner }: DomainServiceOptions,
  kind: string,
  call: { request: { operationId: string; domainId: string }; signal: AbortSignal },
  { holds, workflow, cancellable, mayBeCopy }: DomainPlan,
): Promise<Operation> {
  return startOperation(runner, { kind, ...call }, async () => {
    const { domainId } = call.request;
    await knownDomain(inventory, domainId);
    return {
      entities: domainEntities(domainId),
      locks: domainLocks(domainId, holds),
      mayBeCopies: mayBeCopy ? 'all' : [],
      cancellable,
      heavy: false,
      workflow,
    };
  });
}

/**
 * Description and template mark, in the definition and, when it runs, in the running domain too.
 * @throws VirtkeepError domain_not_found, domain_busy, draining, power_state_conflict (a running domain cannot become a template),
 *   template_has_clones, image_in_use, image_use_unknown (unmarked, it could be started and would write below its clones)
 */
async function update(
  options: DomainServiceOptions,
  request: UpdateDomainRequest,
  signal: AbortSignal,
): Promise<Domain> {
  const { domainId } = request;
  await knownDomain(options.inventory, domainId);
  requireDescription(request.description);
  // whoever asked has gone: it may have been asked for anew, and otherwise, by then
  throwIfAborted(signal);
  // what is written is what was read, changed: nobody may note anything, make a clone or start the domain in between
  const release = options.runner.hold('update_domain', domainLocks(domainId, ['domain', 'power']));
  try {
    await withDomainErrors(options.workflows, domainId, target =>
      changeMetadata(options, target, request, signal),
    );
  } finally {
    release();
  }
  await options.inventory.refreshDomain(domainId);
  return options.inventory.domain(domainId);
}

async function changeMetadata(
  { inventory, workflows }: DomainServiceOptions,
  domain: LibvirtDomain,
  { description, template }: UpdateDomainRequest,
  signal: AbortSignal,
): Promise<void> {
  const active = await domain.isActive();
  const flags = (active ? Affect.LIVE : 0) | ((await domain.isPersistent()) ? Affect.CONFIG : 0);
  const { name, metadata } = parseDomain(await domain.xml(active ? 0 : DomainXml.INACTIVE), domain.uuid);
  if (template && active && !metadata.template) {
    throw new VirtkeepError('power_state_conflict', {
      domain: name,
      state: 'running',
      action: 'made a template',
    });
  }
  const names = { domain: (id: string) => nameOf(inventory, id) };
  if (template !== undefined && template !== metadata.template)
    refuseWhileLent(metadata, name, template ? 'made a template' : 'unmarked as a template', names);
  if (template === false)
    await refuseWithClonesAnywhere(workflows, { uuid: domain.uuid, name, metadata }, 'unmarked', signal);
  if (description !== undefined) {
    await domain.setMetadata({ type: MetadataType.DESCRIPTION, value: description || null }, flags);
  }
  if (template !== undefined && template !== metadata.template) {
    await writeMetadata(domain, withTemplate(metadata, template));
  }
}

function nameOf(inventory: Inventory, id: string): string | undefined {
  return inventory.domains().find(domain => domain.id === id)?.name;
}

/** A template has a version from the first time on; unmarked, it keeps the number, so that its clones can be told. */
function withTemplate(metadata: DomainMetadata, template: boolean): DomainMetadata {
  return { ...metadata, template, templateVersion: Math.max(metadata.templateVersion, template ? 1 : 0) };
}

/**
 * The domain as last seen; one that is new is looked for.
 * @throws VirtkeepError invalid_uuid, domain_not_found, libvirt_unreachable
 */
async function knownDomain(inventory: Inventory, id: string): Promise<Domain> {
  if (!isUuid(id)) throw new VirtkeepError('invalid_uuid', { value: id });
  try {
    return inventory.domain(id);
  } catch {
    await inventory.refreshDomain(id);
    return inventory.domain(id);
  }
}

/** The domain as it is now; as last seen while libvirt cannot be asked. @throws as `knownDomain` */
async function freshDomain(inventory: Inventory, id: string): Promise<Domain> {
  await knownDomain(inventory, id);
  await inventory.refreshDomain(id).catch(() => {});
  return inventory.domain(id);
}

/** A call to libvirt, with the product's errors. */
async function withDomainErrors<T>(
  workflows: RemoveDependencies,
  id: string,
  call: (domain: LibvirtDomain) => Promise<T>,
): Promise<T> {
  try {
    return await call(workflows.libvirt().domain(id));
  } catch (error) {
    throw fromDomain(error, id, 'libvirt');
  }
}
