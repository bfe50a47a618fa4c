import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Answer, Thing, Use } from '../other-nodes.ts';
import { samplePool } from '../pools/sample-pool.ts';
import { useElsewhere } from './index.ts';

const OWN = '11111111-2222-4333-8444-555555555555';
const CLONE = '21111111-2222-4333-8444-555555555555';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'elsewhere-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

const UNUSED: Answer = { kind: 'unused' };
const UNKNOWN: Answer = { kind: 'unknown', reason: 'two was not heard' };
const used = (by: Partial<Use> = {}): Answer => ({
  kind: 'used',
  by: { nodeName: 'two', domainId: OWN, domainName: 'vm', ...by },
});

function ask(answers: { domain?: Answer; file?: Answer }, { shared = true, proven = false, path = '' } = {}) {
  const { domain = UNUSED, file = UNUSED } = answers;
  const whoUses = async (things: readonly Thing[]) =>
    things.map(({ kind }) => (kind === 'domain' ? domain : file));
  const dependencies = {
    libvirt: () => {
      throw new Error('nobody asks this node');
    },
    pools: async () => [samplePool('one', { path: directory, shared })],
    otherNodes: { whoUses },
  };
  const question = { domainId: OWN, paths: [path || join(directory, 'a.qcow2')], proven };
  return useElsewhere(dependencies, question, AbortSignal.timeout(240_000));
}

const BY = { kind: 'used', by: 'the domain vm on the node two' };

test('what runs elsewhere counts, also when the files are as they were', async () => {
  for (const proven of [false, true]) {
    expect(await ask({ domain: used({ active: true }) }, { proven })).toEqual(BY);
    expect(await ask({ file: used({ domainId: CLONE, active: true }) }, { proven })).toEqual(BY);
    expect(await ask({ domain: used({ active: true }), file: UNKNOWN }, { shared: false, proven })).toEqual(
      BY,
    );
  }
});

test('what is defined elsewhere may have run, unless it ran here last or the files prove that it did not', async () => {
  expect(await ask({ domain: used() })).toEqual(BY);
  expect(await ask({ file: used({ domainId: CLONE }) })).toEqual(BY);
  expect(await ask({ domain: used({ lastRanHere: true }) })).toEqual({ kind: 'free' });
  expect(await ask({ domain: used() }, { proven: true })).toEqual({ kind: 'free' });
});

test('a thin clone elsewhere is no copy', async () => {
  expect(await ask({ domain: used({ domainId: CLONE, active: true }) })).toEqual({ kind: 'free' });
});

test('an answer that is missing leaves it open where other nodes reach the file and nothing is proven', async () => {
  const unknown = { kind: 'unknown', reason: 'two was not heard' };
  expect(await ask({ domain: UNKNOWN })).toEqual(unknown);
  expect(await ask({ domain: UNKNOWN }, { shared: false, path: '/dev/null' })).toEqual(unknown);
  expect(await ask({ domain: UNKNOWN }, { proven: true })).toEqual({ kind: 'free' });
  expect(await ask({ domain: UNKNOWN, file: UNKNOWN }, { shared: false })).toEqual({ kind: 'free' });
});
