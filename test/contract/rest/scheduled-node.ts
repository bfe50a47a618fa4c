/** A controller with scheduled tasks, and one node that does by itself what it is told; a test sets the clock. */
import { randomUUID } from 'node:crypto';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { makeRestApp, type RestApp } from './app.ts';
import { LivingNode } from './living-node.ts';
import { enrolled, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
type Json = any;

export const DAY_MS = 86_400_000;

export class ScheduledNode {
  readonly rest: RestApp;
  readonly agent: FakeAgent;
  readonly node: LivingNode;
  readonly #clock: { now: number };
  #pool!: Pool;
  #vm!: Domain;

  private constructor(rest: RestApp, agent: FakeAgent, clock: { now: number }) {
    this.rest = rest;
    this.agent = agent;
    this.#clock = clock;
    this.node = new LivingNode(agent, () => new Date(clock.now));
  }

  /** @param time what the clock shows at first */
  static async start(time: string): Promise<ScheduledNode> {
    const clock = { now: Date.parse(time) };
    const rest = await makeRestApp({}, undefined, { clock: { now: () => new Date(clock.now) } });
    const { agent } = await enrolled(rest, 'n1');
    return new ScheduledNode(rest, agent, clock);
  }

  /** What the clock shows, ms since 1970. */
  get now(): number {
    return this.#clock.now;
  }

  /** Another pool, and another VM in it. */
  async renew(): Promise<{ pool: Pool; vm: Domain }> {
    this.#pool = this.agent.setPool({});
    this.#vm = await this.newVm();
    return { pool: this.#pool, vm: this.#vm };
  }

  async newVm(): Promise<Domain> {
    const disk = {
      id: randomUUID(),
      name: 'a',
      poolId: this.#pool.id,
      targetDev: 'vda',
      usedSize: 5_000_000n,
    };
    const made = this.agent.setDomain({ disks: [disk as never] });
    await until(async () => (await this.rest.call('GET', `/api/domains/${made.id}/`)).status === 200);
    return made;
  }

  /** A task for the VM whose backups go to the pool. @returns its record */
  async make(settings: object = {}): Promise<Json> {
    const body = {
      verbose_name: `task ${randomUUID()}`,
      entities: [this.#vm.id],
      start_date: '2026-03-02T02:00:00Z',
      time_zone: 'UTC',
      ...settings,
      options: { datapool: this.#pool.id, ...(settings as Json).options },
    };
    const answer = await this.rest.call('POST', '/api/scheduled-tasks/', { as: 'operator', body });
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body;
  }

  async get(id: string, path = ''): Promise<Json> {
    return (await this.rest.call('GET', `/api/scheduled-tasks/${id}/${path}`)).body;
  }

  /** The clock goes on to this time, and what is due is done. */
  async at(time: number | string): Promise<void> {
    this.#clock.now = typeof time === 'string' ? Date.parse(time) : time;
    const { scheduler } = this.rest.services;
    await scheduler.tick();
    const isDone = async () => {
      await scheduler.settled();
      const { results } = (await this.rest.call('GET', '/api/tasks/?status=IN_PROGRESS')).body;
      // a run may wait for another attempt
      return results.every((task: Json) => task.is_multitask);
    };
    if (!this.node.isSlow) await until(isDone);
  }

  /** The oldest first. */
  async filesOf(id: string): Promise<Json[]> {
    return (await this.rest.call('GET', `/api/library/?domain=${id}&ordering=created`)).body.results;
  }
}
