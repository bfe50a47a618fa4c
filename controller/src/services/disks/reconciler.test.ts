import { expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { createLogger } from '@virtkeep/shared/log';
import { DomainMap } from '../inventory/domain-map.ts';
import { entryOf } from '../inventory/test-kit.ts';
import { LoanReconciler, type LoanReconcilerDependencies } from './reconciler.ts';

const DISK = 'd';
const OWNER = Domain.fromPartial({
  id: 'owner',
  disks: [{ id: DISK, poolId: 'shared' }],
  loans: [{ diskId: DISK, borrowerId: 'borrower', borrowerNodeId: 'two' }],
});
const ATTACHED = [{ diskId: DISK, ownerId: 'owner' }];

/** A reconciler that sees this borrower on another node than the owner's, and the disks that it asked to be given back. */
function reconcilerOf(borrower: Partial<Domain> | undefined, silent = '') {
  const returned: string[] = [];
  const node = { info: { libvirtConnected: true }, row: { service_mode: 0 } };
  const domains = new DomainMap().set('owner', entryOf(OWNER, 'one'));
  if (borrower) domains.set('borrower', entryOf({ ...borrower, id: 'borrower' }, 'two'));
  const back = async ({ diskId }: { diskId: string }) => {
    returned.push(diskId);
    throw new Error('tried again later');
  };
  const dependencies = {
    inventory: {
      domains,
      nodes: new Map(['one', 'two', 'three', 'four'].map(id => [id, node])),
      pools: new Map([['shared', { views: new Map(['one', 'two', 'three'].map(id => [id, {}])) }]]),
    },
    links: { isConnected: (id: string) => id !== silent, clients: () => ({ disks: { return: back } }) },
    tasks: { unfinished: async () => [] },
    log: createLogger('test', 'error'),
  };
  return { reconciler: new LoanReconciler(dependencies as unknown as LoanReconcilerDependencies), returned };
}

test.each<[string, Partial<Domain> | undefined, boolean]>([
  ['has the disk', { attachments: ATTACHED as Domain['attachments'] }, false],
  ['has it no more', {}, true],
  ['is gone', undefined, true],
  ['cannot be read, and may have it still', { unreadable: true }, false],
])('a loan whose borrower %s', async (_what, borrower, isEnded) => {
  const { reconciler, returned } = reconcilerOf(borrower);
  await reconciler.round();
  expect(returned).toEqual([]);
  await reconciler.round();
  expect(returned).toEqual(isEnded ? [DISK] : []);
  await reconciler.settle({ borrowerId: 'borrower', ownerId: 'owner', exceptTask: '' });
  expect(returned).toEqual(isEnded ? [DISK, DISK] : []);
});

test.each<[string, boolean]>([
  ['three', false],
  ['four', true],
])(
  'a borrower that is gone may have moved to a node that has the disk and says nothing, %s',
  async (silent, isEnded) => {
    const { reconciler, returned } = reconcilerOf(undefined, silent);
    await reconciler.round();
    await reconciler.round();
    expect(returned).toEqual(isEnded ? [DISK] : []);
  },
);
