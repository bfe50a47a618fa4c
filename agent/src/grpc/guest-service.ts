import type { Domain as LibvirtDomain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { isDeeperThan, parseExact } from '@virtkeep/shared/exact-json';
import type { GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type {
  GuestServiceImplementation,
  RunGuestCommandRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import type { CallContext } from 'nice-grpc-common';
import { type Guests, listSshKeys, offeredCommands } from '../guest/index.ts';
import type { Inventory } from '../inventory/index.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import type { GuestOperations } from '../workflows/guest/domain.ts';
import { availablePreparations } from '../workflows/guest/prepare.ts';
import { requireUuid } from './fields.ts';

export interface GuestServiceOptions {
  inventory: Inventory;
  guests: Guests;
  workflows: Pick<WorkflowDependencies, 'libvirt'>;
  guestOperations: Pick<GuestOperations, 'forceTcg' | 'log'>;
}

const DEFAULT_TIMEOUT_SECONDS = 5;
/** A program that runs longer is asked about with guest-exec-status. */
const MAX_TIMEOUT_SECONDS = 600;
const MAX_USER_NAME = 256;
/** Of lists and objects in each other in the arguments of a command. */
const MAX_LEVELS = 32;

/** The methods that ask a guest; those that start operations stand in guest-operations. */
export type GuestQueries = Pick<
  GuestServiceImplementation,
  'listCommands' | 'runCommand' | 'getInfo' | 'listSshKeys' | 'listPreparations'
>;

/** `GuestService`; what its methods promise stands in the proto. */
export function guestService(options: GuestServiceOptions): GuestQueries {
  const { guests } = options;
  return {
    listCommands: async ({ domainId }, { signal }) => {
      const domain = await domainOf(options, domainId);
      return { commands: (await offeredCommands(domain, { signal })).commands };
    },
    runCommand: (request, context) => runCommand(options, request, context),
    getInfo: async ({ domainId, refresh }, { signal }) => {
      const domain = await domainOf(options, domainId);
      if (refresh) await guests.refresh(domain, signal);
      return guests.info(domainId) ?? EMPTY_INFO;
    },
    listPreparations: async ({ domainId }, { signal }) => {
      const { name } = await domainOf(options, domainId);
      const { forceTcg, log } = options.guestOperations;
      return { operations: await availablePreparations({ domain: name ?? domainId, signal, forceTcg, log }) };
    },
    listSshKeys: async ({ domainId, user }, { signal }) => {
      if (!/^[^\s:/\0]+$/.test(user) || user.length > MAX_USER_NAME || user.startsWith('-')) {
        const reason = 'must be the name of a user of the guest';
        throw new VirtkeepError('invalid_field', { field: 'user', reason });
      }
      return { keys: await listSshKeys(await domainOf(options, domainId), user, signal) };
    },
  };
}

async function runCommand(
  options: GuestServiceOptions,
  { domainId, command, argumentsJson, timeoutSeconds }: RunGuestCommandRequest,
  { signal }: CallContext,
): Promise<{ resultJson: string }> {
  const seconds = timeoutSeconds || DEFAULT_TIMEOUT_SECONDS;
  if (seconds > MAX_TIMEOUT_SECONDS) {
    const reason = `is more than ${MAX_TIMEOUT_SECONDS}`;
    throw new VirtkeepError('invalid_field', { field: 'timeout_seconds', reason });
  }
  const args = argumentsOf(argumentsJson);
  const domain = await domainOf(options, domainId);
  const limits = { timeoutMs: seconds * 1000, signal };
  const result = await options.guests.commands.run(domain, command, args, limits);
  return { resultJson: JSON.stringify(result ?? {}) };
}

function argumentsOf(json: string): Record<string, unknown> {
  if (json === '') return {};
  let value: unknown;
  try {
    value = parseExact(json);
  } catch {
    // refused below; the text is not repeated, it may hold secrets
  }
  if (isDeeperThan(MAX_LEVELS, value))
    throw new VirtkeepError('invalid_field', { field: 'arguments_json', reason: 'is nested too deeply' });
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new VirtkeepError('invalid_field', { field: 'arguments_json', reason: 'must be a JSON object' });
}

/** @throws VirtkeepError invalid_uuid, domain_not_found, libvirt_unreachable */
async function domainOf(
  { inventory, workflows }: GuestServiceOptions,
  domainId: string,
): Promise<LibvirtDomain> {
  requireUuid('domain_id', domainId);
  const find = () => workflows.libvirt().domain(domainId, inventory.domain(domainId).name);
  try {
    return find();
  } catch {
    await inventory.refreshDomain(domainId);
    return find();
  }
}

const EMPTY_INFO: GuestInfo = {
  refreshed: undefined,
  agentVersion: '',
  hostname: '',
  ipv4: [],
  ipv6: [],
  os: undefined,
  fileSystems: [],
  users: [],
  frozenSince: undefined,
};
