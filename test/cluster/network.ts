/** A network for several controllers, each in a namespace of its own, so that what one of them reaches can be cut by nftables. */
import { run, succeeds } from '../lab/run.ts';

/** Nobody else's: a part of those for private use. */
const NET = '10.213.77';
const HOST = `${NET}.254`;
const BRIDGE = 'vkcluster';

/** What a controller does not reach any more. */
export type Cut = 'database' | 'nodes' | 'controllers' | 'all';

export interface NetworkPorts {
  database: number;
  controllers: number;
  /** First and last. */
  nodes: [number, number];
}

export class ControllerNetwork {
  readonly #count: number;

  private constructor(count: number) {
    this.#count = count;
  }

  /** The machine itself has the address that all of them reach. */
  get host(): string {
    return HOST;
  }

  /** @param count at most 200 */
  static async make(count: number): Promise<ControllerNetwork> {
    const network = new ControllerNetwork(count);
    await network.remove();
    await ip('link', 'add', BRIDGE, 'type', 'bridge');
    await ip('address', 'add', `${HOST}/24`, 'dev', BRIDGE);
    await ip('link', 'set', BRIDGE, 'up');
    for (let number = 1; number <= count; number += 1) await network.#add(number);
    return network;
  }

  async #add(number: number): Promise<void> {
    const space = spaceOf(number);
    const outer = `vkc${number}`;
    await ip('netns', 'add', space);
    await ip('link', 'add', outer, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', space);
    await ip('link', 'set', outer, 'master', BRIDGE, 'up');
    await ip('-n', space, 'address', 'add', `${this.address(number)}/24`, 'dev', 'eth0');
    for (const link of ['lo', 'eth0']) await ip('-n', space, 'link', 'set', link, 'up');
  }

  address(number: number): string {
    return `${NET}.${number}`;
  }

  /** What runs a program there. */
  inside(number: number): [string, ...string[]] {
    return ['ip', 'netns', 'exec', spaceOf(number)];
  }

  /** Drops what goes to it and comes from it, without a word to either end. */
  async cut(number: number, what: Cut, ports: NetworkPorts): Promise<void> {
    const dropped = {
      all: ['meta oifname != "lo"', 'meta iifname != "lo"'],
      database: matches(String(ports.database)),
      controllers: matches(String(ports.controllers)),
      nodes: matches(ports.nodes.join('-')),
    }[what];
    const [out, into] = what === 'all' ? dropped.map(match => [match]) : [dropped, dropped];
    const chain = (hook: string, rules: string[]) =>
      `chain ${hook} { type filter hook ${hook} priority 0; ${rules.map(rule => `${rule} drop; `).join('')}};`;
    const table = `table inet cut { ${chain('output', out!)} ${chain('input', into!)} }`;
    await run([...this.inside(number), 'nft', '-f', '-'], { input: table });
  }

  async heal(number: number): Promise<void> {
    await run([...this.inside(number), 'nft', 'flush', 'ruleset']);
  }

  async remove(): Promise<void> {
    for (let number = 1; number <= this.#count; number += 1)
      await succeeds(['ip', 'netns', 'del', spaceOf(number)]);
    await succeeds(['ip', 'link', 'del', BRIDGE]);
  }
}

const spaceOf = (number: number) => `vkcluster${number}`;
const ip = (...argv: string[]) => run(['ip', ...argv]);
const matches = (ports: string) => [`tcp dport ${ports}`, `tcp sport ${ports}`];
