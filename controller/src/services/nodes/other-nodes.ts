/**
 * Answers what a node asks about the others: who uses a file of a shared pool, a device, or a VM. Every node that could
 * use it is asked now. One that cannot be reached leaves the answer open, unless another one uses the thing. One that was not tried yet,
 * or was there a moment ago, is waited for: after a power cut the node that asks may be back at the same time as the controller.
 */
import { isVirtkeepError, reasonOf } from '@virtkeep/shared/errors';
import type { FoundUse, Question, Thing, Use, UseAnswer } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { NodeLinks } from '../../agents/links.ts';
import type { Inventory } from '../inventory/inventory.ts';

/** Shorter than the time after which the asking node gives up. */
const NODE_LIMIT_MS = 8_000;

/** What one node says about a thing; `unheard` is the reason why a node that may use it gave no answer. */
type Report = { nodeName: string; found: FoundUse } | { nodeName: string; unheard: string };

export class OtherNodes {
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;
  readonly #limitMs: number;

  constructor(inventory: Inventory, links: NodeLinks, limitMs = NODE_LIMIT_MS) {
    this.#inventory = inventory;
    this.#links = links;
    this.#limitMs = limitMs;
  }

  /** Does not reject. */
  async answer(askerId: string, { things }: Question): Promise<UseAnswer[]> {
    const reports = things.map((): Report[] => []);
    const others = [...this.#inventory.nodes.keys()].filter(nodeId => nodeId !== askerId);
    await Promise.all(
      others.map(async nodeId => {
        const places = things.flatMap((thing, place) => (this.#mayUse(nodeId, thing) ? [place] : []));
        if (places.length === 0) return;
        const said = await this.#ask(
          nodeId,
          places.map(place => things[place]!),
        );
        for (const [index, place] of places.entries()) reports[place]!.push(said[index]!);
      }),
    );
    return things.map((thing, place) => this.#judge(askerId, thing, reports[place]!));
  }

  /** Only a node with its pool may use a file; a node that never reported its inventory may use anything. */
  #mayUse(nodeId: string, { thing }: Thing): boolean {
    if (thing?.$case !== 'file') return true;
    if (!this.#inventory.nodes.get(nodeId)?.info) return true;
    return this.#inventory.pools.get(thing.value.poolId)?.views.has(nodeId) ?? false;
  }

  async #ask(nodeId: string, things: Thing[]): Promise<Report[]> {
    const nodeName = this.#inventory.nodes.get(nodeId)?.row.verbose_name ?? nodeId;
    try {
      const signal = AbortSignal.timeout(this.#limitMs);
      await this.#links.untilBack(nodeId, signal);
      const { found } = await this.#links.clients(nodeId).node.findUses({ things }, { signal });
      return things.map((_, index) =>
        found[index] ? { nodeName, found: found[index] } : { nodeName, unheard: 'it gave no answer' },
      );
    } catch (error) {
      const reason = isVirtkeepError(error) ? (error.params.reason ?? error.message) : reasonOf(error);
      return things.map(() => ({ nodeName, unheard: reason }));
    }
  }

  #ranLast(nodeId: string, { domainId, active }: Use): boolean {
    return !active && this.#inventory.domains.get(domainId)?.ranOn === nodeId;
  }

  #judge(askerId: string, { thing }: Thing, reports: readonly Report[]): UseAnswer {
    if (thing?.$case === 'file' && !this.#inventory.pools.get(thing.value.poolId)?.views.has(askerId))
      return unknown('the controller does not know of the data pool yet');
    const uses = reports.flatMap(report =>
      'found' in report && report.found.use ? [useOf(report.nodeName, report.found.use)] : [],
    );
    const use = uses.find(({ active }) => active) ?? uses[0];
    if (use)
      return { answer: { $case: 'used', value: { ...use, lastRanHere: this.#ranLast(askerId, use) } } };
    const unsure = reports.find(report => 'found' in report && report.found.unsure !== '');
    if (unsure && 'found' in unsure)
      return unknown(`node ${unsure.nodeName} cannot tell: ${unsure.found.unsure}`);
    const unheard = reports.find(report => 'unheard' in report);
    if (unheard) return unknown(`node ${unheard.nodeName} was not heard: ${unheard.unheard}`);
    return { answer: { $case: 'unused', value: {} } };
  }
}

const useOf = (nodeName: string, use: NonNullable<FoundUse['use']>) => ({ ...use, nodeName });

const unknown = (reason: string): UseAnswer => ({ answer: { $case: 'unknown', value: reason } });
