/**
 * The operations inside of guests (specification 4.6), each a task of the guest's node. Their secrets are in the request and in the
 * start call, and nowhere else: no row of the database holds the request.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { AgentClients } from '../../agents/clients.ts';
import type { Actor } from '../../auth/principal.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';

/** As a request has it; absent: yes. */
export type Restart = boolean | 0 | 1 | undefined;

export interface JoinRequest {
  domainname: string;
  login: string;
  password: string;
  newname?: string;
  oupath?: string;
  restart?: Restart;
  install_packages?: boolean;
}

export interface LeaveRequest {
  login: string;
  password: string;
  /** Linux only; the one it is in when absent. */
  domainname?: string;
  restart?: Restart;
}

export interface HostnameRequest {
  hostname?: string;
  restart?: Restart;
  allow_network_layers?: boolean;
}

export interface SshKeysRequest {
  ssh_user: string;
  ssh_key: string | string[];
  allow_network_layers?: boolean;
}

export interface SysprepOptions {
  mode?: 'oobe' | 'audit';
  action?: 'shutdown' | 'reboot' | 'quit';
  generalize?: boolean;
  vm_mode?: boolean;
  unattend?: string;
}

export interface PrepareOptions {
  boot_disk?: string;
  operations?: string[];
  allow_network_layers?: boolean;
}

interface Start {
  name: string;
  /** With the guest's name after it. */
  title: string;
  id: string;
  user: Actor;
  taskId: string;
  send: (
    guests: AgentClients['guests'],
    operation: { operationId: string; domainId: string },
    options: { signal: AbortSignal },
  ) => Promise<Operation>;
}

/** The node's names of fields, where a request has others. */
const FIELDS: Record<string, string> = {
  directory: 'domainname',
  computer_name: 'newname',
  organizational_unit: 'oupath',
  user: 'ssh_user',
  keys: 'ssh_key',
  boot_disk_id: 'boot_disk',
};

/** All throw domain_not_found, node_unreachable, node_in_service, and what the node answers to the start call. */
export class GuestOperationService {
  readonly #inventory: Inventory;
  readonly #nodeTasks: NodeTasks;

  constructor(inventory: Inventory, nodeTasks: NodeTasks) {
    this.#inventory = inventory;
    this.#nodeTasks = nodeTasks;
  }

  /** Without a host name it is the VM's. */
  setHostname(
    id: string,
    { hostname = '', restart, allow_network_layers = false }: HostnameRequest,
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const request = { hostname, restart: isYes(restart), allowNetworkLayers: allow_network_layers };
    return this.#start({
      name: 'guest_set_hostname',
      title: 'Set the host name of',
      id,
      user,
      taskId,
      send: (guests, operation, options) => guests.setHostname({ ...operation, ...request }, options),
    });
  }

  joinDirectory(id: string, request: JoinRequest, user: Actor, taskId: string): Promise<TaskState> {
    const { domainname: directory, login, password, newname = '', oupath = '', restart } = request;
    const fields = {
      installPackages: request.install_packages,
      directory,
      login,
      password,
      computerName: newname,
      organizationalUnit: oupath,
      restart: isYes(restart),
    };
    return this.#start({
      name: 'guest_add_to_ad',
      title: 'Join a directory with',
      id,
      user,
      taskId,
      send: (guests, operation, options) => guests.joinDirectory({ ...operation, ...fields }, options),
    });
  }

  leaveDirectory(id: string, request: LeaveRequest, user: Actor, taskId: string): Promise<TaskState> {
    const { domainname: directory = '', login, password, restart } = request;
    const fields = { directory, login, password, restart: isYes(restart) };
    return this.#start({
      name: 'guest_rm_from_ad',
      title: 'Leave the directory with',
      id,
      user,
      taskId,
      send: (guests, operation, options) => guests.leaveDirectory({ ...operation, ...fields }, options),
    });
  }

  changeSshKeys(
    id: string,
    {
      change,
      ssh_user,
      ssh_key,
      allow_network_layers = false,
    }: SshKeysRequest & { change: 'add' | 'remove' },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const keys = [ssh_key].flat();
    const fields = { user: ssh_user, keys, allowNetworkLayers: allow_network_layers };
    return this.#start({
      name: `guest_ssh_keys_${change}`,
      title: change === 'add' ? 'Add SSH keys to' : 'Remove SSH keys from',
      id,
      user,
      taskId,
      send: (guests, operation, options) =>
        change === 'add'
          ? guests.addSshKeys({ ...operation, ...fields }, options)
          : guests.removeSshKeys({ ...operation, ...fields }, options),
    });
  }

  sysprep(id: string, request: SysprepOptions, user: Actor, taskId: string): Promise<TaskState> {
    const { mode = 'oobe', action = 'shutdown', generalize = true, vm_mode = false, unattend = '' } = request;
    const fields = { mode, action, generalize, vmMode: vm_mode, unattend };
    return this.#start({
      name: 'guest_sysprep',
      title: 'Run Sysprep in',
      id,
      user,
      taskId,
      send: (guests, operation, options) => guests.sysprep({ ...operation, ...fields }, options),
    });
  }

  prepare(
    id: string,
    { boot_disk = '', operations = [], allow_network_layers = false }: PrepareOptions,
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const fields = { bootDiskId: boot_disk, operations, allowNetworkLayers: allow_network_layers };
    return this.#start({
      name: 'guest_prepare',
      title: 'Prepare',
      id,
      user,
      taskId,
      send: (guests, operation, options) => guests.prepare({ ...operation, ...fields }, options),
    });
  }

  /** Mounts or unmounts the guest tools image. */
  tools(change: 'attach' | 'detach', id: string, user: Actor, taskId: string): Promise<TaskState> {
    return this.#start({
      name: `guest_tools_${change}`,
      title: change === 'attach' ? 'Mount the guest tools in' : 'Unmount the guest tools from',
      id,
      user,
      taskId,
      send: (guests, operation, options) =>
        change === 'attach' ? guests.attachTools(operation, options) : guests.detachTools(operation, options),
    });
  }

  async #start({ name, title, id, user, taskId, send }: Start): Promise<TaskState> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    return this.#nodeTasks.start({
      taskId,
      name,
      verboseName: `${title} ${domain.name}`,
      user,
      nodeId,
      entities: [{ id, class: 'domain' }],
      send: (clients, operationId, signal) =>
        send(clients.guests, { operationId, domainId: id }, { signal }).catch((error: unknown) => {
          throw withOwnField(error);
        }),
    });
  }
}

function isYes(restart: Restart): boolean {
  return restart !== false && restart !== 0;
}

/** What the node says of a field, said of the request's. */
function withOwnField(error: unknown): unknown {
  if (!hasKey(error, 'invalid_field', 'missing_field', 'invalid_uuid')) return error;
  const field = FIELDS[error.field ?? ''];
  if (field === undefined) return error;
  return new VirtkeepError(error.msgKey, { ...error.params, field }, { cause: error });
}
