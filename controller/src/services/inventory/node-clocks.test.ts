import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients } from '../../agents/clients.ts';
import type { Inventory } from './inventory.ts';
import { type EndedAt, NodeClocks } from './node-clocks.ts';

const NODE = 'node-1';

let clocks: NodeClocks;
let session: AbortController;
let warnings: string[];
/** What was taken over from answers, and which VMs were asked for. */
let taken: string[];
let asked: string[];
let answer: (id: string) => Promise<Domain>;

const clients = {
  domains: {
    get: async ({ id }: { id: string }) => {
      asked.push(id);
      return answer(id);
    },
  },
} as unknown as AgentClients;
const inventory = {
  nodes: new Map([[NODE, { row: { verbose_name: 'n1' } }]]),
  domainChanged: async (_node: string, { id }: Domain) => void taken.push(`changed ${id}`),
  domainRemoved: async (_node: string, id: string) => void taken.push(`removed ${id}`),
} as unknown as Inventory;
const log = { warn: (text: string) => void warnings.push(text) } as unknown as Logger;

function connect(): AbortController {
  session = new AbortController();
  clocks.begin(NODE, clients, session.signal);
  return session;
}

const endAt = (inventoryRevision: bigint, ...domains: string[]): EndedAt => ({
  id: 'operation',
  inventoryRevision,
  entities: domains.map(id => ({ id, entityClass: EntityClass.DOMAIN })),
});

/** Whether it has ended once all has gone on that waits for nothing but each other. */
async function isOver(wait: Promise<unknown>): Promise<boolean> {
  let over = false;
  const end = () => {
    over = true;
  };
  wait.then(end, end);
  await new Promise(setImmediate);
  return over;
}

beforeEach(() => {
  warnings = [];
  taken = [];
  asked = [];
  answer = async id => ({ id }) as Domain;
  clocks = new NodeClocks(inventory, log);
  connect();
});
afterEach(() => session.abort());

describe('an end', () => {
  test('that comes after its revision waits for nothing', async () => {
    clocks.reached(NODE, 7n);
    await clocks.seen(NODE, endAt(7n));
    await clocks.seen(NODE, endAt(3n));
  });

  test('that comes before its revision waits for that one, and for no more', async () => {
    clocks.reached(NODE, 5n);
    const [seven, nine] = [clocks.seen(NODE, endAt(7n)), clocks.seen(NODE, endAt(9n))];
    for (const revision of [0n, 6n, 4n]) clocks.reached(NODE, revision);
    expect(await isOver(Promise.race([seven, nine]))).toBe(false);
    clocks.reached(NODE, 8n);
    await seven;
    expect(await isOver(nine)).toBe(false);
    clocks.reached(NODE, 9n);
    await nine;
    expect([asked, warnings]).toEqual([[], []]);
  });

  test('waits for its own node', async () => {
    clocks.begin('node-2', clients, session.signal);
    const wait = clocks.seen(NODE, endAt(7n));
    clocks.reached('node-2', 8n);
    expect(await isOver(wait)).toBe(false);
    clocks.reached(NODE, 8n);
    await wait;
  });

  test('that loses its stream in between is heard again with the next one', async () => {
    const wait = clocks.seen(NODE, endAt(7n));
    session.abort();
    await expect(wait).rejects.toMatchObject({ msgKey: 'node_unreachable', params: { node: 'n1' } });
    connect();
    const again = clocks.seen(NODE, endAt(7n));
    expect(await isOver(again)).toBe(false);
    clocks.reached(NODE, 7n);
    await again;
  });

  test('of an earlier run of the agent is seen with the first whole inventory of the new one', async () => {
    session.abort();
    connect();
    const wait = clocks.seen(NODE, endAt(7n));
    // it has not looked at everything yet
    clocks.reached(NODE, 0n);
    expect(await isOver(wait)).toBe(false);
    clocks.reached(NODE, 1_000_000n);
    await wait;
  });

  test('of a node that is lost is not waited for', async () => {
    session.abort();
    await expect(clocks.seen(NODE, endAt(7n))).rejects.toMatchObject({ msgKey: 'node_unreachable' });
    await expect(clocks.seen('node-2', endAt(0n))).rejects.toMatchObject({ msgKey: 'node_unreachable' });
  });

  test('of the next connection is not ended by the end of the former one', async () => {
    const former = session;
    connect();
    const wait = clocks.seen(NODE, endAt(7n));
    former.abort();
    clocks.reached(NODE, 7n);
    await wait;
  });
});

test('a node that does not say how far it is holds up one end for a while, and no other until it speaks', async () => {
  const late = new AbortController();
  const timeout = jest.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(late.signal);
  try {
    const first = clocks.seen(NODE, endAt(7n));
    expect(await isOver(first)).toBe(false);
    late.abort();
    await first;
    await clocks.seen(NODE, endAt(8n));
    expect(warnings).toHaveLength(1);
    clocks.reached(NODE, 8n);
    const next = clocks.seen(NODE, endAt(9n));
    expect(await isOver(next)).toBe(false);
    clocks.reached(NODE, 9n);
    await next;
  } finally {
    timeout.mockRestore();
  }
});

describe('an agent of an earlier version', () => {
  test('is asked for the VMs that its operation names', async () => {
    await clocks.seen(NODE, endAt(0n, 'vm-1', 'vm-2'));
    expect(taken).toEqual(['changed vm-1', 'changed vm-2']);
  });

  test('says what is gone', async () => {
    answer = async id => {
      throw new VirtkeepError('domain_not_found', { id });
    };
    await clocks.seen(NODE, endAt(0n, 'vm-1'));
    expect(taken).toEqual(['removed vm-1']);
  });

  test('that cannot say it now holds nobody up', async () => {
    answer = async () => {
      throw new VirtkeepError('libvirt_unreachable', { uri: 'test', reason: 'down' });
    };
    await clocks.seen(NODE, endAt(0n, 'vm-1', 'vm-2'));
    expect([asked, taken, warnings.length]).toEqual([['vm-1', 'vm-2'], [], 2]);
  });

  test('that let one wait in vain is asked nothing until its stream says something', async () => {
    const late = new AbortController();
    const timeout = jest.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(late.signal);
    try {
      answer = async () => {
        late.abort();
        throw new VirtkeepError('timed_out', { operation: 'test', seconds: 10 });
      };
      await clocks.seen(NODE, endAt(0n, 'vm-1'));
      await clocks.seen(NODE, endAt(0n, 'vm-2'));
      clocks.reached(NODE, 0n);
      await clocks.seen(NODE, endAt(0n, 'vm-3'));
      expect(asked).toEqual(['vm-1', 'vm-3']);
    } finally {
      timeout.mockRestore();
    }
  });

  test('that is lost meanwhile is asked nothing more', async () => {
    answer = async () => {
      session.abort();
      throw new VirtkeepError('node_unreachable', { node: 'n1', reason: 'test' });
    };
    await expect(clocks.seen(NODE, endAt(0n, 'vm-1', 'vm-2'))).rejects.toMatchObject({
      msgKey: 'node_unreachable',
    });
    expect(asked).toEqual(['vm-1']);
  });
});
