import type {
  InventoryEvent,
  Inventory as InventoryMessage,
  NodeInfo,
  NodeServiceImplementation,
  Question,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { CertificateRenewal } from '../enroll/renewal.ts';
import type { Revocations } from '../enroll/revocations.ts';
import type { NodeStatus } from '../node-status.ts';
import type { Thing } from '../other-nodes.ts';
import type { QuestionChannel } from '../question-channel.ts';
import type { LocalAnswer } from '../workflows/devices/find-uses.ts';
import { merge } from './merge.ts';
import { answerOf, foundMessage, thingMessage, thingOf } from './question-messages.ts';

/** What the node service needs of the hypervisor's model (agent/src/inventory). */
export interface Inventory {
  /** False until everything was looked at once: what is absent from the lists may well exist. */
  readonly loaded: boolean;
  /** All domains and pools as last seen; empty before libvirt was reached. `node` is filled in by the service. */
  snapshot(): InventoryMessage;
  /**
   * One `full` event (without `node`), then one event per change, for ever; rejects with the abort reason. A slow
   * reader gets the newest state of each thing, not every state in between.
   */
  watch(signal: AbortSignal): AsyncIterable<InventoryEvent>;
}

export interface NodeServiceOptions {
  status: NodeStatus;
  inventory: Inventory;
  renewal: CertificateRenewal;
  revocations: Revocations;
  questions: QuestionChannel;
  /** Who uses things on this node. */
  findUses(things: readonly Thing[], signal: AbortSignal): Promise<LocalAnswer[]>;
}

/** `NodeService`; what its methods promise stands in the proto. */
export function nodeService(options: NodeServiceOptions): NodeServiceImplementation {
  const { status, inventory, renewal, revocations, questions } = options;
  // what is told from before the first look is no proof that anything is gone: it says so as without libvirt
  const nodeInfo = (info: NodeInfo = status.current(), pools = inventory.snapshot().pools): NodeInfo => ({
    ...info,
    libvirtConnected: info.libvirtConnected && inventory.loaded,
    basePoolId: pools.find(pool => pool.isBase)?.id ?? '',
  });

  async function* watchNode(signal: AbortSignal): AsyncGenerator<InventoryEvent> {
    for await (const info of status.watch(signal)) {
      yield { event: { $case: 'nodeChanged', value: nodeInfo(info) }, revision: 0n };
    }
  }

  async function* watchInventory(signal: AbortSignal): AsyncGenerator<InventoryEvent> {
    for await (const change of inventory.watch(signal)) {
      const { event } = change;
      if (event?.$case !== 'full') {
        yield change;
        continue;
      }
      const node = nodeInfo(undefined, event.value.pools);
      yield { ...change, event: { $case: 'full', value: { ...event.value, node } } };
    }
  }

  async function* watchQuestions(signal: AbortSignal): AsyncGenerator<Question> {
    for await (const { id, things } of questions.watch(signal))
      yield { id, things: things.map(thingMessage) };
  }

  return {
    getInfo: async () => nodeInfo(),
    watchInventory: (_request, { signal }) => merge(watchInventory(signal), watchNode(signal)),
    renewCertificate: async () => ({ csrPem: await renewal.request() }),
    installCertificate: async request => {
      await renewal.install(request.certificatePem);
      return {};
    },
    revoke: async request => {
      await revocations.add(request.revocations);
      return { revocations: revocations.list() };
    },
    watchQuestions: (_request, { signal }) => watchQuestions(signal),
    answerQuestion: async ({ questionId, answers }) => {
      questions.answer(questionId, answers.map(answerOf));
      return {};
    },
    findUses: async ({ things }, { signal }) => {
      const found = await options.findUses(things.map(thingOf), signal);
      return { found: found.map(foundMessage) };
    },
  };
}
