/**
 * The management pages of a controller that has ten thousand virtual machines, on simulated nodes: what the test of them and the
 * measurements share.
 */
import type { AddressInfo } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Browser, chromium } from 'playwright-core';
import { World } from '../contract/scale/world.ts';
import { BROWSER } from './web-world.ts';

export const NODES = 20;
export const VMS = 500;
export const ALL = NODES * VMS;
/** The usual length of a page. */
export const PER_PAGE = 50;

export interface WebScaleWorld {
  world: World;
  browser: Browser;
  /** Of the pages. */
  url: string;
  close: () => Promise<void>;
}

export async function startScaleWorld(): Promise<WebScaleWorld> {
  const listen = { host: '127.0.0.1', port: 0 };
  const world = await World.make({ nodes: NODES, vms: VMS }, { listen }, { isSecure: true });
  await world.rest.app.listen(listen);
  const { port } = world.rest.app.server.address() as AddressInfo;
  const browser = await chromium.launch(BROWSER);
  return {
    world,
    browser,
    url: `https://127.0.0.1:${port}/ui/`,
    close: async () => {
      await browser.close();
      world.rest.draining.abort(new VirtkeepError('draining'));
      await world.end();
    },
  };
}
