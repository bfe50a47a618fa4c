/**
 * A controller that serves its pages over TLS, two scripted nodes, and a browser that reports whatever goes wrong on a page: errors
 * of scripts, of the console, of the content policy, and barriers for people who cannot see or point.
 */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import axe, { type AxeResults } from 'axe-core';
import { type Browser, type BrowserContext, chromium, type Locator, type Page } from 'playwright-core';
import { makeRestApp, PASSWORD, type RestApp } from '../contract/rest/app.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from '../contract/rest/nodes-world.ts';
import { tellOfFailures } from '../lab/seen.ts';

const GiB = 1024n ** 3n;
/** Runs in the browser, before any script of the page. */
const TELL_VIOLATIONS = `document.addEventListener('securitypolicyviolation', event =>
  console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI));`;
/**
 * A busy machine lays a page out anew between the press and the release of a button, which is elsewhere then, and the click is lost. A person
 * would press again.
 */
const PRESS_AGAIN = `{
  let pressed;
  addEventListener('mousedown', ({ isTrusted, target }) => {
    pressed = isTrusted ? target.closest?.('button, a, label, input') : undefined;
  }, true);
  addEventListener('mouseup', ({ target }) => {
    if (pressed?.isConnected && !pressed.contains(target)) pressed.click();
    pressed = undefined;
  }, true);
}`;
/** Else this browser keeps other sites from a loopback address before the controller sees what they try. */
const LETS_OTHERS_TRY = '--disable-features=LocalNetworkAccessChecks';
/** As which all tests of the pages start it: without windows of its own, for half of the processor time. */
export const BROWSER = {
  executablePath: '/usr/bin/chromium-headless-shell',
  args: ['--no-sandbox', LETS_OTHERS_TRY],
};
/** A page is slow on a busy machine, and that is no fault of it. */
const PATIENCE_MS = 120_000;
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
/** How a page learns that nobody is logged in; the browser writes it into the console. */
const NOBODY = /status of 401.*\/api\/session\/$/;
/** Markup as the name of a VM. */
export const HOSTILE_NAME = `<img src=x onerror="document.title='pwned'"><script>document.title='pwned'</script>`;

export interface WebWorld {
  rest: RestApp;
  browser: Browser;
  url: string;
  node: Enrolled;
  pool: Pool;
  domains: Record<'web' | 'database' | 'mail' | 'hostile', Domain>;
  /** Backs a VM up, as if it had been then. */
  backUp: (domain: Domain, created: Date, states?: number) => Promise<string>;
  close: () => Promise<void>;
}

/** @param config settings of the controller beside its address */
export async function startWorld(config: object = {}): Promise<WebWorld> {
  const listen = { host: '127.0.0.1', port: 0 };
  const rest = await makeRestApp({ ...config, listen }, undefined, { isSecure: true });
  const node = await enrolled(rest, 'node-1');
  const other = await enrolled(rest, 'node-2');
  const pool = node.agent.setPool({
    name: 'backups',
    capacity: 400n * GiB,
    allocation: 120n * GiB,
    available: 280n * GiB,
  });
  const domains = {
    web: machine(node, pool, 'web-1'),
    database: machine(node, pool, 'database'),
    mail: machine(node, pool, 'mail', { powerState: PowerState.OFF }),
    hostile: machine(node, pool, HOSTILE_NAME),
  };
  node.agent.show = ShowBackupResponse.fromPartial({
    file: { manifestJson: '{"members":[]}' },
    xml: '<domain/>',
    configuration: {
      domainId: domains.web.id,
      name: 'web-1',
      memoryCount: 2048n,
      cpuCount: 2,
      disks: [
        { id: 'd', targetDev: 'vda', targetBus: 'virtio', path: '/d', virtualSize: 20n * GiB, size: 4n },
      ],
    },
    warnings: [{ key: 'host_device_left_out', text: 'The host device 0000:01:00.0 is left out.' }],
    signature: { trust: 'own', signer: 'node-1' },
  });
  await until(
    async () => (await rest.call('GET', '/api/domains/')).body.count === Object.keys(domains).length,
  );
  await other.agent.stop();
  await status(rest, other.agent.id, 'FAILED');
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = rest.app.server.address() as AddressInfo;
  const browser = await chromium.launch(BROWSER);
  return {
    rest,
    browser,
    url: `https://127.0.0.1:${port}`,
    node,
    pool,
    domains,
    backUp: (domain, created, states) => backUp({ rest, node, pool }, domain, created, states),
    close: async () => {
      await browser.close();
      await stopAll(rest);
    },
  };
}

function machine({ agent }: Enrolled, pool: Pool, name: string, part: Partial<Domain> = {}): Domain {
  const disk = {
    id: randomUUID(),
    name: 'system',
    poolId: pool.id,
    targetDev: 'vda',
    targetBus: 'virtio',
    virtualSize: 20n * GiB,
  };
  return agent.setDomain({ name, memoryCount: 2048n, cpuCount: 2, disks: [disk as never], ...part });
}

/** Begins a backup, whose end is left to the caller. */
export async function beginBackup(
  { rest, pool }: Pick<WebWorld, 'rest' | 'pool'>,
  domain: Domain,
): Promise<{ file: string; task: string }> {
  const { body } = await rest.call('POST', '/api/domains/backup/?async=1', {
    body: { domain: domain.id, datapool: pool.id, can_be_incremental: true },
  });
  return { file: body.entity, task: body._task.id };
}

async function backUp(
  world: Pick<WebWorld, 'rest' | 'node' | 'pool'>,
  domain: Domain,
  created: Date,
  states = 1,
): Promise<string> {
  const { file, task } = await beginBackup(world, domain);
  const about = {
    id: file,
    poolId: world.pool.id,
    domainId: domain.id,
    domainName: domain.name,
    filename: `${domain.name.replaceAll(/\W+/g, '-')}.tar`,
    size: 3n * GiB,
    states: Array.from({ length: states }, (_, index) => ({
      name: String(index + 1),
      created: new Date(created.getTime() - (states - 1 - index) * 3_600_000),
      memory: false,
      consistency: 'quiesced',
    })),
  };
  world.node.agent.succeed(task, { file: world.node.agent.setFile(about as never) });
  await ended(world.rest, task);
  return file;
}

/** A backup of the VM that fails. */
export async function failBackup(world: WebWorld, domain: Domain): Promise<void> {
  const { task } = await beginBackup(world, domain);
  world.node.agent.fail(task, new VirtkeepError('disk_full', { path: '/pools/backups' }));
  await ended(world.rest, task, 'FAILED');
}

/** A page, and what went wrong on it so far. */
export interface Watched {
  page: Page;
  context: BrowserContext;
  faults: string[];
  /** Adds what axe finds on the page as it is now, by these rules or all of WCAG 2.2 AA. */
  inspect: (rules?: string[]) => Promise<void>;
}

export interface LookOptions {
  width?: number;
  height?: number;
  isDark?: boolean;
  locale?: string;
}

/** Opens a page of a new browser profile. Its faults are collected; a test expects that there are none. */
export async function look(world: Pick<WebWorld, 'browser'>, options: LookOptions = {}): Promise<Watched> {
  const { width = 1280, height = 900, isDark = false, locale = 'en-GB' } = options;
  const context = await world.browser.newContext({
    ignoreHTTPSErrors: true,
    viewport: { width, height },
    colorScheme: isDark ? 'dark' : 'light',
    locale,
    timezoneId: 'Europe/Berlin',
    reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(PATIENCE_MS);
  return watch(await context.newPage());
}

const LOOK_MS = 10_000;
const SEEN_CHARACTERS = 1500;

function tellOf(page: Page): void {
  const end = tellOfFailures(async () => {
    const body = page.locator('body').innerText({ timeout: LOOK_MS });
    return `${page.url()}: ${(await body.catch(String)).slice(-SEEN_CHARACTERS)}`;
  });
  page.once('close', end);
}

/** Collects what goes wrong on a page. */
export async function watch(page: Page): Promise<Watched> {
  const faults: string[] = [];
  tellOf(page);
  page.on('pageerror', error => faults.push(`error: ${error.message}`));
  page.on('console', message => {
    if (message.type() !== 'error') return;
    const text = `${message.text()} ${message.location().url}`;
    if (!NOBODY.test(text)) faults.push(`console: ${text}`);
  });
  // the console does not tell of every one
  await page.addInitScript({ content: TELL_VIOLATIONS + PRESS_AGAIN });
  const inspect = async (rules?: string[]) => {
    // a page that was not loaded anew has it still
    if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe.source);
    const runOnly = rules ? { type: 'rule', values: rules } : { type: 'tag', values: RULES };
    const options = JSON.stringify({ runOnly, resultTypes: ['violations'] });
    const { violations } = await page.evaluate<AxeResults>(`axe.run(document, ${options})`);
    for (const { id, nodes } of violations)
      for (const { html, failureSummary } of nodes) faults.push(`axe: ${id}: ${html}: ${failureSummary}`);
  };
  return { page, context: page.context(), faults, inspect };
}

/** Logs in on the page that is shown in place of the one asked for. */
export async function logIn({ page }: Watched, url: string, username = 'the-administrator'): Promise<void> {
  await page.goto(url);
  await page.getByLabel('User name').fill(username);
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('button', { name: 'Account and appearance' }).waitFor();
}

/** What a test brings about itself is no fault of the page: the browser writes of each call that was not answered, or refused. */
export function forgive({ faults }: Watched, what: RegExp): void {
  for (let index = faults.length - 1; index >= 0; index -= 1)
    if (what.test(faults[index]!)) faults.splice(index, 1);
}

/** As `forgive`, of what there was: the console may tell of it after the page has. */
export async function forgiveOne(seen: Watched, what: RegExp): Promise<void> {
  await until(() => seen.faults.some(fault => what.test(fault)));
  forgive(seen, what);
}

/** Whoever loads the page anew forgets it. */
export async function markPage({ page }: Watched): Promise<void> {
  await page.evaluate(`window.wasHere = true`);
}

/** Whether it was not loaded anew since `markPage`. */
export const isSamePage = ({ page }: Watched): Promise<boolean> =>
  page.evaluate<boolean>(`window.wasHere === true`);

/** A row of a list that holds the text; behind an open dialog, too: `detached` means that it is not there any more. */
export function rowOf(page: Page, text: string): Locator {
  return page.getByRole('row', { includeHidden: true }).filter({ hasText: text });
}

/** Chooses from the menu of a row. */
export async function choose(page: Page, of: string, action: string): Promise<void> {
  await page
    .getByRole('button', { name: `Actions of ${of}`, exact: true })
    .first()
    .click();
  await page.getByRole('menuitem', { name: action, exact: true }).click();
}

/** Ends what was begun last on the node. */
export function giveUp({ node: { agent } }: WebWorld, kind: string): void {
  const { request } = agent.calls.filter(call => call.kind === kind).at(-1)!;
  agent.fail(request.operationId, new VirtkeepError('canceled'));
}

/** Goes to a page by its address and waits for its heading. */
export async function goTo({ page }: Watched, url: string, heading: string): Promise<void> {
  await page.goto(url);
  await page.getByRole('heading', { level: 1, name: heading, exact: true }).waitFor();
}

/** Waits until nothing is being loaded on the page any more. */
export async function settled({ page }: Watched): Promise<void> {
  await page.getByRole('progressbar', { name: 'Loading' }).first().waitFor({ state: 'detached' });
  await page.waitForLoadState('load');
}
