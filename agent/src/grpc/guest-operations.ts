/** The operations inside of guests: what starts them, what they hold, and that their secrets are kept nowhere. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  ChangeSshKeysRequest,
  GuestServiceImplementation,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { OperationRunner } from '../operations/runner.ts';
import type { Workflow } from '../workflows/context.ts';
import { joinDirectory, leaveDirectory } from '../workflows/guest/directory.ts';
import type { GuestOperations } from '../workflows/guest/domain.ts';
import { setHostname, setHostnameOffline } from '../workflows/guest/hostname.ts';
import {
  requireComputerName,
  requireDnsName,
  requireHostname,
  requireLogin,
  requirePassword,
  requireUnit,
  requireUser,
} from '../workflows/guest/names.ts';
import { prepare } from '../workflows/guest/prepare.ts';
import {
  changeSshKeys,
  changeSshKeysOffline,
  type KeyChange,
  requireKeys,
} from '../workflows/guest/ssh-keys.ts';
import { MAX_UNATTEND_BYTES, SYSPREP_ACTIONS, SYSPREP_MODES, sysprep } from '../workflows/guest/sysprep.ts';
import { attachTools, detachTools } from '../workflows/guest/tools.ts';
import { isDomainActive } from './ask-domain.ts';
import { requireUuid } from './fields.ts';
import { domainEntities, domainLocks, startOperation } from './start-operation.ts';

export type GuestOperationMethods = Pick<
  GuestServiceImplementation,
  | 'setHostname'
  | 'joinDirectory'
  | 'leaveDirectory'
  | 'addSshKeys'
  | 'removeSshKeys'
  | 'sysprep'
  | 'prepare'
  | 'attachTools'
  | 'detachTools'
>;

/** The methods of the GuestService that change guests. */
export function guestOperations(runner: OperationRunner, operations: GuestOperations): GuestOperationMethods {
  const service = { runner, operations };
  return {
    setHostname: async (request, { signal }) => {
      if (request.hostname !== '') requireHostname('hostname', request.hostname);
      return start(service, 'set_hostname', { request, signal }, isRunning =>
        isRunning ? running(setHostname(operations, request)) : off(setHostnameOffline(operations, request)),
      );
    },

    joinDirectory: async (request, { signal }) => {
      const { password, ...rest } = request;
      requireDnsName('directory', request.directory);
      requireLogin('login', request.login);
      requirePassword('password', password);
      if (request.computerName !== '') requireComputerName('computer_name', request.computerName);
      const { organizationalUnit } = request;
      const unit = organizationalUnit === '' ? [] : requireUnit('organizational_unit', organizationalUnit);
      const workflow = joinDirectory(operations, { ...request, unit });
      return start(service, 'join_directory', { request, remembered: rest, signal }, () => running(workflow));
    },

    leaveDirectory: async (request, { signal }) => {
      const { password, ...rest } = request;
      requireLogin('login', request.login);
      requirePassword('password', password);
      if (request.directory !== '') requireDnsName('directory', request.directory);
      return start(service, 'leave_directory', { request, remembered: rest, signal }, () =>
        running(leaveDirectory(operations, request)),
      );
    },

    addSshKeys: (request, { signal }) => changeKeys(service, 'add', { request, signal }),
    removeSshKeys: (request, { signal }) => changeKeys(service, 'remove', { request, signal }),

    sysprep: async (request, { signal }) => {
      const { unattend, ...rest } = request;
      const mode = requireOneOf('mode', request.mode, SYSPREP_MODES);
      const action = requireOneOf('action', request.action, SYSPREP_ACTIONS);
      if (Buffer.byteLength(unattend) > MAX_UNATTEND_BYTES) {
        const reason = `is longer than ${MAX_UNATTEND_BYTES} bytes`;
        throw new VirtkeepError('invalid_field', { field: 'unattend', reason });
      }
      const workflow = sysprep(operations, { ...request, mode, action });
      return start(service, 'sysprep', { request, remembered: rest, signal }, () => running(workflow));
    },

    prepare: async (request, { signal }) => {
      if (request.bootDiskId !== '') requireUuid('boot_disk_id', request.bootDiskId);
      const workflow = prepare(operations, request);
      return start(service, 'prepare', { request, signal }, () => off(workflow));
    },

    attachTools: (request, { signal }) => {
      const workflow = attachTools(operations, request.domainId);
      return start(service, 'attach_guest_tools', { request, signal }, () => definition(workflow));
    },
    detachTools: (request, { signal }) => {
      const workflow = detachTools(operations, request.domainId);
      return start(service, 'detach_guest_tools', { request, signal }, () => definition(workflow));
    },
  };
}

/** What an operation does, and what it holds. */
interface Plan {
  workflow: Workflow;
  holds: ('domain' | 'power')[];
  heavy: boolean;
}

/** Holds the power of a running guest: nobody else may stop or start it meanwhile, but its disks may be backed up. */
const running = (workflow: Workflow): Plan => ({ workflow, holds: ['power'], heavy: false });
const off = (workflow: Workflow): Plan => ({ workflow, holds: ['domain', 'power'], heavy: true });
const definition = (workflow: Workflow): Plan => ({ workflow, holds: ['domain'], heavy: false });

interface Service {
  runner: OperationRunner;
  operations: GuestOperations;
}

interface StartCall {
  request: { operationId: string; domainId: string };
  remembered?: object;
  signal: AbortSignal;
}

/**
 * Starts an operation on one domain.
 * @param planOf chooses the way by whether the domain runs
 */
function start(
  { runner, operations }: Service,
  kind: string,
  call: StartCall,
  planOf: (isRunning: boolean) => Plan,
): Promise<Operation> {
  return startOperation(runner, { kind, ...call }, async () => {
    const { domainId } = call.request;
    requireUuid('domain_id', domainId);
    const { workflow, holds, heavy } = planOf(await isDomainActive(operations.libvirt, domainId));
    return {
      entities: domainEntities(domainId),
      locks: domainLocks(domainId, holds),
      cancellable: true,
      heavy,
      workflow,
    };
  });
}

async function changeKeys(
  service: Service,
  change: KeyChange,
  { request, signal }: { request: ChangeSshKeysRequest; signal: AbortSignal },
): Promise<Operation> {
  const { domainId, user, allowNetworkLayers } = request;
  requireUser('user', user);
  const keyRequest = { domainId, user, keys: requireKeys(request.keys), allowNetworkLayers };
  const { operations } = service;
  return start(service, `${change}_ssh_keys`, { request, signal }, isRunning =>
    isRunning
      ? running(changeSshKeys(operations, change, keyRequest))
      : off(changeSshKeysOffline(operations, change, keyRequest)),
  );
}

function requireOneOf<T extends string>(field: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find(candidate => candidate === value);
  if (found !== undefined) return found;
  throw new VirtkeepError('invalid_field', { field, reason: `is not one of: ${allowed.join(', ')}` });
}
