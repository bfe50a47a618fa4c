import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { ErrorCode, type Libvirt, LibvirtError } from '@virtkeep/node-libvirt';
import { PendingAnswers } from '../../images/index.ts';
import type { Answer } from '../../other-nodes.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { settleForgotten, withMarks } from './forgotten-layers.ts';

let directory: string;
let disk: string;
let layer: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'forgotten-'));
  [disk, layer] = [join(directory, 'disk.qcow2'), join(directory, 'layer.qcow2')];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', disk, '1M']);
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', disk, '-F', 'qcow2', layer]);
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** A libvirt whose transient domain is gone. */
const libvirt = {
  domains: async () => [],
  domainByUuid: async () => {
    const fields = {
      code: ErrorCode.NO_DOMAIN,
      domain: 10,
      level: 2,
      kind: 'libvirt',
      message: 'not found',
    } as const;
    throw new LibvirtError(fields, 'virDomainLookupByUUID');
  },
} as unknown as Libvirt;

const UNKNOWN: Answer = { kind: 'unknown', reason: 'two was not heard' };

/** Settles a layer on a shared pool. @returns what was told */
async function settle(answer: Answer, pending: PendingAnswers): Promise<string[]> {
  const dependencies = {
    libvirt: () => libvirt,
    pools: async () => [samplePool('one', { path: directory, shared: true })],
    otherNodes: { whoUses: async (things: readonly unknown[]) => things.map(() => answer) },
  };
  const overlays = await withMarks([{ targetDev: 'vda', path: layer }], false);
  const state = { domainId: '11111111-2222-4333-8444-555555555555', name: 'virtkeep-tmp-1', overlays };
  const told: string[] = [];
  const warn = (text: string) => told.push(text);
  const signal = AbortSignal.timeout(240_000);
  await settleForgotten(dependencies, state, { signal, warn, settle: left => pending.settle(left, warn) });
  return told;
}

test('a node that was not heard is waited for, and the layer is put back when it has answered', async () => {
  const pending = new PendingAnswers(60_000);
  for (const _ of [1, 2])
    await expect(settle(UNKNOWN, pending)).rejects.toMatchObject({ msgKey: 'image_use_unknown' });
  expect(existsSync(layer)).toBe(true);
  expect(await settle({ kind: 'unused' }, pending)).toEqual([]);
  expect(existsSync(layer)).toBe(false);
});

test('after a while the layer stays and is named', async () => {
  const told = await settle(UNKNOWN, new PendingAnswers(0));
  expect(told.at(-1)).toContain(`KEEP ${layer}`);
  expect(existsSync(layer)).toBe(true);
});

test('one whose disk another node uses stays at once', async () => {
  const by = { nodeName: 'two', domainId: '21111111-2222-4333-8444-555555555555', domainName: 'vm' };
  const told = await settle({ kind: 'used', by }, new PendingAnswers(60_000));
  expect(told).toEqual([expect.stringContaining('the domain vm on the node two')]);
  expect(existsSync(layer)).toBe(true);
});
