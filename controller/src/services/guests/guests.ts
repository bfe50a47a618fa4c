/** Calls to guests through their agents: single commands, and reports about themselves. Each answers at once, without a task. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { isDeeperThan, parseExact } from '@virtkeep/shared/exact-json';
import type { Preparation } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { guestPermission } from '@virtkeep/shared/guest-classes';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import { type Principal, requirePermission } from '../../auth/principal.ts';
import { type GuestInfoRecord, guestInfoRecord } from '../domains/guest-record.ts';
import type { Inventory } from '../inventory/inventory.ts';

export interface GuestCommandRequest {
  command: string;
  args: Record<string, unknown>;
  /** Seconds; for guest-exec the time to wait for the program's end. */
  timeout: number;
}

/** The specification has no time limit: a guest on a busy host is slow, not silent. */
export const DEFAULT_TIMEOUT_S = 60;
/** A program that runs longer is asked about with guest-exec-status. */
export const MAX_TIMEOUT_S = 600;
/**
 * Beyond the asked time: the node waits for other commands of that guest, makes sure that its agent lives, and has the last
 * word on what went wrong.
 */
const GRACE_MS = 60_000;
const ASK_TIMEOUT_S = 60;
/** Of lists and objects in each other in the arguments of a command; those that are known have three. */
const MAX_LEVELS = 32;

export class GuestService {
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;
  readonly #draining: AbortSignal;

  constructor(inventory: Inventory, links: NodeLinks, draining: AbortSignal) {
    this.#inventory = inventory;
    this.#links = links;
    this.#draining = draining;
  }

  /** @throws domain_not_found */
  requireDomain(id: string): void {
    this.#inventory.domain(id);
  }

  /**
   * The names of the commands that the guest's agent offers and has enabled.
   * @param signal the asker has left
   * @throws domain_not_found, node_unreachable, and what the node answers
   */
  async commands(id: string, signal: AbortSignal): Promise<string[]> {
    const { commands } = await this.#ask(
      { id, command: 'guest-info', seconds: ASK_TIMEOUT_S, signal },
      (clients, options) => clients.guests.listCommands({ domainId: id }, options),
    );
    return commands.filter(({ enabled }) => enabled).map(({ name }) => name);
  }

  /**
   * Runs one command.
   * @param call.args its arguments; long integers in them and in the result are kept for `JSON.stringify`
   * @throws permission_denied, invalid_field (fargs), domain_not_found, node_unreachable; outcome_unknown when the node was lost while it had
   *   the command; and what the node answers
   */
  async run(id: string, call: GuestCommandRequest, user: Principal, signal: AbortSignal): Promise<unknown> {
    const { command, args, timeout } = call;
    requirePermission(user, guestPermission(command));
    if (isDeeperThan(MAX_LEVELS, args))
      throw new VirtkeepError('invalid_field', { field: 'fargs', reason: 'is nested too deeply' });
    const request = {
      domainId: id,
      command,
      argumentsJson: JSON.stringify(args),
      timeoutSeconds: timeout,
    };
    const { resultJson } = await this.#ask({ id, command, seconds: timeout, signal }, (clients, options) =>
      clients.guests.runCommand(request, options).catch(orUnknown),
    );
    return parseExact(resultJson === '' ? '{}' : resultJson);
  }

  /**
   * The last report of the guest about itself; with `refresh` the guest is asked first.
   * @throws domain_not_found; when asked also permission_denied, node_unreachable, and what the node answers
   */
  async info(id: string, refresh: boolean, user: Principal, signal: AbortSignal): Promise<GuestInfoRecord> {
    const { domain, nodeId } = this.#inventory.domain(id);
    if (!refresh) return guestInfoRecord(domain, domain.guestInfo, this.#links.isConnected(nodeId));
    requirePermission(user, 'guest.read');
    const info = await this.#ask(
      { id, command: 'guest-info', seconds: ASK_TIMEOUT_S, signal },
      (clients, options) => clients.guests.getInfo({ domainId: id, refresh: true }, options),
    );
    return guestInfoRecord(domain, info, true);
  }

  /** The SSH keys of a user of the guest. @throws domain_not_found, node_unreachable, and what the node answers */
  async sshKeys(id: string, user: string, signal: AbortSignal): Promise<string[]> {
    const { keys } = await this.#ask(
      { id, command: 'guest-ssh-get-authorized-keys', seconds: ASK_TIMEOUT_S, signal },
      (clients, options) => clients.guests.listSshKeys({ domainId: id, user }, options),
    );
    return keys;
  }

  /**
   * The operations that prepare this VM's disk offline, as the tools of its node offer them.
   * @throws domain_not_found, node_unreachable, guestfs_failed, and what the node answers
   */
  async preparations(id: string, signal: AbortSignal): Promise<Preparation[]> {
    const { operations } = await this.#ask(
      { id, command: 'prepare', seconds: ASK_TIMEOUT_S, signal },
      (clients, options) => clients.guests.listPreparations({ domainId: id }, options),
    );
    return operations;
  }

  /** A call to the guest's node, ended by the node's answer, its own time limit, the asker's leaving or the controller's end. */
  async #ask<T>(
    { id, command, seconds, signal }: { id: string; command: string; seconds: number; signal: AbortSignal },
    call: (clients: AgentClients, options: { signal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    const { domain, nodeId } = this.#inventory.oneDomain(id);
    const limit = AbortSignal.timeout(seconds * 1000 + GRACE_MS);
    try {
      return await call(this.#links.clients(nodeId), {
        signal: AbortSignal.any([limit, signal, this.#draining]),
      });
    } catch (error) {
      if (this.#draining.aborted) throw new VirtkeepError('draining', {}, { cause: error });
      if (limit.aborted)
        throw new VirtkeepError(
          'guest_command_timed_out',
          { domain: domain.name, command, seconds },
          { cause: error },
        );
      if (signal.aborted) throw new VirtkeepError('canceled', {}, { cause: error });
      throw error;
    }
  }
}

/** A node that is lost while it has a command may have carried it out. */
function orUnknown(error: unknown): never {
  if (!hasKey(error, 'node_unreachable')) throw error;
  throw new VirtkeepError('outcome_unknown', { node: error.params.node ?? '' }, { cause: error });
}
