/**
 * The management pages of a controller that has ten thousand virtual machines, on simulated nodes: what the test of them and the
 * measurements share.
 */

import { deepEqual } from 'node:assert/strict';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Browser, chromium, type Locator, type Page } from 'playwright-core';
import { World } from '../contract/scale/world.ts';
import type { SimulatedAgent } from '../scale/simulated-agent.ts';
import { BROWSER } from './web-world.ts';

export const NODES = 20;
export const VMS = 500;
export const ALL = NODES * VMS;
/** All that can be chosen on a page of the usual length, one task each. */
export const PER_PAGE = 50;

export interface WebScaleWorld {
  world: World;
  browser: Browser;
  /** Of the pages. */
  url: string;
  /** Event streams that the controller has open. */
  streams: () => number;
  close: () => Promise<void>;
}

export async function startScaleWorld(): Promise<WebScaleWorld> {
  const listen = { host: '127.0.0.1', port: 0 };
  const world = await World.make({ nodes: NODES, vms: VMS }, { listen }, { isSecure: true });
  await world.rest.app.listen(listen);
  const { port } = world.rest.app.server.address() as AddressInfo;
  const streams = streamsOf(world.rest.app.server as Server);
  const browser = await chromium.launch(BROWSER);
  return {
    world,
    browser,
    url: `https://127.0.0.1:${port}/ui/`,
    streams,
    close: async () => {
      await browser.close();
      world.rest.draining.abort(new VirtkeepError('draining'));
      await world.end();
    },
  };
}

/** What a test sees and does on the list of virtual machines. */
export class MachinesPage {
  readonly #web: WebScaleWorld;
  readonly #page: Page;

  constructor(web: WebScaleWorld, page: Page) {
    this.#web = web;
    this.#page = page;
  }

  button(name: string): Locator {
    return this.#page.getByRole('button', { name, exact: true });
  }

  field(name: string): Locator {
    return this.#page.getByLabel(name, { exact: true });
  }

  /** Waits until the head of the list says which of how many are shown. */
  async shows(from: number, to: number, count: number): Promise<void> {
    await this.#page
      .locator('#options-menu-top-toggle')
      .filter({ hasText: new RegExp(`^${from} - ${to}\\s+of\\s+${count}\\s*$`) })
      .waitFor();
  }

  /** What the controller has at this place of its list. */
  async expected(offset: number, limit: number, more = ''): Promise<string[]> {
    const path = `/api/domains/?limit=${limit}&offset=${offset}&fields=verbose_name${more}`;
    const { body } = await this.#web.world.rest.call('GET', path);
    return body.results.map((one: { verbose_name: string }) => one.verbose_name);
  }

  /** Waits until these are the rows, in this order. */
  async listed(wanted: readonly string[]): Promise<void> {
    const names = this.#page.getByRole('grid', { name: 'Virtual machines' }).locator('tbody a');
    await names
      .nth(wanted.length - 1)
      .filter({ hasText: wanted.at(-1)! })
      .waitFor();
    deepEqual(await names.allTextContents(), wanted);
  }
}

/** Counts the event streams that a server has open from now on. */
function streamsOf(server: Server): () => number {
  let open = 0;
  server.on('request', ({ url }, response) => {
    if (url !== '/api/events/stream/') return;
    open += 1;
    response.on('close', () => {
      open -= 1;
    });
  });
  return () => open;
}

/** An operation that runs, and the agent that tells of it. */
export interface Running {
  id: string;
  agent: SimulatedAgent;
}

/** Those of all nodes of this kind that have not ended. */
export function running({ agents }: World, kind = 'backup'): Running[] {
  return agents.flatMap(agent =>
    [...agent.operations.values()]
      .filter(operation => operation.kind === kind && operation.finished === undefined)
      .map(({ id }) => ({ id, agent })),
  );
}

/** Begins a task of 50 backups, as it is chosen on a page. @returns when all of them run */
export async function beginBackups(world: World): Promise<Running[]> {
  const { body: page } = await world.rest.call('GET', `/api/domains/?limit=${PER_PAGE}&fields=id`);
  const entity_ids = page.results.map(({ id }: { id: string }) => id);
  await world.rest.call('POST', '/api/domains/multi-manager/?async=1', {
    body: { action: 'backup', entity_ids },
  });
  await world.when(() => running(world).length === PER_PAGE);
  return running(world);
}

const BARS = `[...document.querySelectorAll('[role="progressbar"][aria-label^="Progress of Back up vm-"]')]`;
/** In a page: how far the backups are that it shows, each as it is written beside its bar. */
export const STEPS = `${BARS}.map(bar => bar.parentElement.textContent)`;
/** The same in percent. */
export const PERCENTS = `${BARS}.map(bar => Number(bar.getAttribute('aria-valuenow')))`;

/** Waits until something is so in a page, which looks often: its policy forbids what Playwright would look with. */
export async function whenSo(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise(resolve => {
    const look = () => (${condition}) ? resolve() : setTimeout(look, ${LOOK_MS});
    look();
  })`);
}

const LOOK_MS = 20;
const TICK_MS = 20;
const STEP_BYTES = 100 * 2 ** 20;
/** So many that none is done before a slow machine has seen what it waits for. */
export const TOTAL_BYTES = 2 ** 40;

/** Tells how far operations are, so many times a second in all, one after the other and ever further. */
export class Pump {
  readonly #operations: readonly Running[];
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #from = performance.now();
  readonly #perSecond: number;
  told = 0;

  constructor(operations: readonly Running[], perSecond: number) {
    this.#operations = operations;
    this.#perSecond = perSecond;
    this.#timer = setInterval(() => this.#tell(), TICK_MS);
  }

  /** What a busy machine held up is made up for. */
  #tell(): void {
    const due = Math.floor(((performance.now() - this.#from) / 1000) * this.#perSecond);
    for (; this.told < due; this.told += 1) {
      const { agent, id } = this.#operations[this.told % this.#operations.length]!;
      const step = 1 + Math.floor(this.told / this.#operations.length);
      agent.progress(id, step * STEP_BYTES, TOTAL_BYTES);
    }
  }

  /** @returns so many were told */
  stop(): number {
    clearInterval(this.#timer);
    return this.told;
  }
}
