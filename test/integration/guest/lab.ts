/** A lab node with what the agent knows of guests in this process: commands, information, freezes; no gRPC. */
import { join } from 'node:path';
import type { Domain } from '@virtkeep/node-libvirt';
import type { GuestServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { type GuestQueries, guestService } from '../../../agent/src/grpc/guest-service.ts';
import { Guests, type GuestsOptions } from '../../../agent/src/guest/index.ts';
import { FakeAgent, type Handler } from '../../lab/fake-agent.ts';
import type { Guest } from '../../lab/guest.ts';
import type { TinyOptions } from '../../lab/world.ts';
import { InventoryLab } from '../inventory/lab.ts';

type Call = Parameters<GuestServiceImplementation['runCommand']>[1];

export class GuestLab {
  readonly lab: InventoryLab;
  readonly guests: Guests;
  readonly queries: GuestQueries;
  readonly #agents: FakeAgent[] = [];

  private constructor(lab: InventoryLab, limits: Partial<GuestsOptions>) {
    this.lab = lab;
    this.guests = this.newGuests(limits);
    lab.guestInfo = id => this.guests.info(id);
    this.queries = guestService({
      inventory: lab.inventory,
      guests: this.guests,
      workflows: lab.workflows,
      guestOperations: { forceTcg: true, log: lab.workflows.log },
    });
  }

  static async start(limits: Partial<GuestsOptions> = {}): Promise<GuestLab> {
    return new GuestLab(await InventoryLab.start(), limits);
  }

  /** As another run of the agent would have it. */
  newGuests(limits: Partial<GuestsOptions> = {}): Guests {
    const { link, inventory, journal, runner, workflows } = this.lab;
    return new Guests({
      link,
      domains: () => inventory.domains(),
      settings: journal.settings,
      isHeld: id => runner.holderOf('domain', id) !== undefined,
      changed: () => inventory.guestsChanged(),
      log: workflows.log,
      freezeLimitMs: 300_000,
      fileIdleMs: 600_000,
      infoRefreshMs: 300_000,
      ...limits,
    });
  }

  async stop(): Promise<void> {
    this.guests.stop();
    await this.lab.stop();
    for (const agent of this.#agents) await agent.close();
  }

  /** A real guest whose agent answers. */
  async tiny(name: string, options: Omit<TinyOptions, 'name'> = {}): Promise<Guest> {
    const guest = await this.lab.world.defineTiny({ name, ...options });
    await guest.start();
    await guest.waitForAgent();
    await this.lab.domain(await guest.uuid());
    return guest;
  }

  /** A guest whose agent is a script. */
  async scripted(
    name: string,
    handlers: Record<string, Handler> = {},
  ): Promise<{ guest: Guest; agent: FakeAgent }> {
    const agent = await new FakeAgent(join(this.lab.world.dir, `${name}.sock`), handlers).listen();
    this.#agents.push(agent);
    const guest = await this.lab.world.defineTiny({
      name,
      dataDisks: [],
      agent: agent.socketPath,
      memoryMiB: 32,
    });
    await guest.start();
    await guest.waitForAgent();
    await this.lab.domain(await guest.uuid());
    return { guest, agent };
  }

  async domain(guest: Guest): Promise<Domain> {
    return this.lab.link.get().domain(await guest.uuid(), guest.name);
  }

  /** RunCommand of the service. @returns the command's value @throws VirtkeepError */
  async run(
    guest: Guest,
    command: string,
    args: Record<string, unknown> = {},
    timeoutSeconds = 60,
  ): Promise<unknown> {
    const domainId = await guest.uuid();
    const argumentsJson = JSON.stringify(args);
    const request = { domainId, command, argumentsJson, timeoutSeconds };
    const { resultJson } = await this.queries.runCommand(request, CALL);
    return JSON.parse(resultJson!);
  }

  async commands(guest: Guest): Promise<string[]> {
    const { commands } = await this.queries.listCommands({ domainId: await guest.uuid() }, CALL);
    return commands!.flatMap(({ name, enabled }) => (enabled ? [name!] : []));
  }
}

/** What a method takes of its call. */
export const CALL = { signal: new AbortController().signal } as Call;
