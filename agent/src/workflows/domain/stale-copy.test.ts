import { expect, test } from '@jest/globals';
import { ErrorCode, LibvirtError } from '@virtkeep/node-libvirt';
import type { Answer, Use } from '../../other-nodes.ts';
import { copyRefusal, refuseStaleCopies } from './stale-copy.ts';

const used = (by: Partial<Use>): Answer => ({
  kind: 'used',
  by: { nodeName: 'n2', domainId: 'd', domainName: 'vm', ...by },
});

test.each<[string, boolean, Answer, string | undefined]>([
  ['nobody else knows it', false, { kind: 'unused' }, undefined],
  ['a node was not heard', false, { kind: 'unknown', reason: 'n2 is away' }, undefined],
  ['it runs here, and is off there', true, used({ active: false }), undefined],
  ['it is off here, and runs there', false, used({ active: true }), 'domain_elsewhere'],
  ['it runs twice', true, used({ active: true }), 'domain_runs_twice'],
  ['it is off on both', false, used({}), 'domain_on_several_nodes'],
  ['it is off on both, and ran here last', false, used({ lastRanHere: true }), undefined],
  ['a thin clone of it is there', false, used({ domainId: 'clone', active: true }), undefined],
])('%s', (_what, active, answer, key) => {
  expect(copyRefusal({ id: 'd', name: 'vm', active }, 'n1', answer)?.msgKey).toBe(key);
});

test('one stale copy among several refuses; what this node has not is no copy', async () => {
  const asked: unknown[] = [];
  const domainByUuid = async (id: string) => {
    if (id === 'new')
      throw new LibvirtError(
        { code: ErrorCode.NO_DOMAIN, domain: 10, level: 2, kind: 'libvirt', message: 'no domain' } as never,
        'virDomainLookupByUUID',
      );
    return { uuid: id, name: id, isActive: async () => id === 'running' };
  };
  const dependencies = {
    libvirt: () => ({ domainByUuid }) as never,
    nodeName: 'n1',
    otherNodes: {
      whoUses: async (things: readonly { id?: string }[]) => {
        asked.push(things);
        return things.map(({ id = '' }) => used({ domainId: id, active: id === 'moved' }));
      },
    } as never,
  };
  const signal = new AbortController().signal;
  await refuseStaleCopies(dependencies, ['new'], signal);
  expect(asked).toEqual([]);
  await refuseStaleCopies(dependencies, ['new', 'running'], signal);
  await expect(refuseStaleCopies(dependencies, ['running', 'new', 'moved'], signal)).rejects.toMatchObject({
    msgKey: 'domain_elsewhere',
    params: { domain: 'moved' },
  });
});
