import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import type { Answer } from '../../other-nodes.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { type GuestOperations, requireOff } from './domain.ts';

const UUID = '11111111-2222-4333-8444-555555555555';
const TEMPLATE = `<metadata><v:domain xmlns:v='urn:virtkeep:domain:1' template='yes' version='1'/></metadata>`;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'off-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const imageAt = (name: string, ...more: string[]) => {
  const path = join(directory, `${name}.qcow2`);
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...more, path, '1M']);
  return path;
};

interface Given {
  /** What the definition says of the VM. */
  metadata?: string;
  /** Of its second disk. */
  extra?: string;
  device?: string;
  /** What the other nodes say of it. */
  answer?: Answer;
  shared?: boolean;
}

/** The disks that a change of a VM that is off is given, by target. */
async function disksOf({
  metadata = '',
  extra = '',
  device: second = 'disk',
  answer = { kind: 'unused' },
  shared = false,
}: Given): Promise<string[]> {
  const disk = (target: string, device: string, more: string) => {
    const path = imageAt(target);
    return `<disk type='file' device='${device}'><driver name='qemu' type='qcow2'/><source file='${path}'/><target dev='${target}'/>${more}</disk>`;
  };
  const devices = disk('vda', 'disk', '') + disk('vdb', second, extra);
  const domain = {
    uuid: UUID,
    name: 'vm',
    isActive: async () => false,
    hasManagedSave: async () => false,
    xml: async () =>
      `<domain type='qemu'><name>vm</name><uuid>${UUID}</uuid>${metadata}<devices>${devices}</devices></domain>`,
    snapshots: async () => [],
  } as unknown as Domain;
  const libvirt = { domains: async () => [domain], domainByUuid: async () => domain } as unknown as Libvirt;
  const operations = {
    libvirt: () => libvirt,
    pools: async () => [samplePool('one', { path: directory, shared })],
    otherNodes: { whoUses: async (things: readonly unknown[]) => things.map(() => answer) },
  } as unknown as GuestOperations;
  const found = await requireOff(operations, domain, 'changed', AbortSignal.timeout(240_000));
  return found.disks.map(({ targetDev }) => targetDev);
}

test('a VM that is off is changed on the disks that it alone writes to', async () => {
  expect(await disksOf({})).toEqual(['vda', 'vdb']);
  expect(await disksOf({ extra: '<readonly/>' })).toEqual(['vda']);
  expect(await disksOf({ device: 'cdrom' })).toEqual(['vda']);
  // another VM may run on it, on another node even
  expect(await disksOf({ extra: '<shareable/>' })).toEqual(['vda']);
});

const usedBy = (domainId: string, domainName: string): Answer => ({
  kind: 'used',
  by: { nodeName: 'two', domainId, domainName, active: false },
});
const CLONE = usedBy('21111111-2222-4333-8444-555555555555', 'thin');
const COPY = usedBy(UUID, 'vm');
const UNHEARD: Answer = { kind: 'unknown', reason: 'two was not heard' };

test('a template is changed only where no other node has a thin clone of it', async () => {
  const template = { metadata: TEMPLATE, shared: true };
  expect(await disksOf(template)).toEqual(['vda', 'vdb']);
  await expect(disksOf({ ...template, answer: CLONE })).rejects.toMatchObject({
    msgKey: 'template_has_clones',
    params: { clones: 'thin on the node two' },
  });
  await expect(disksOf({ ...template, answer: UNHEARD })).rejects.toMatchObject({
    msgKey: 'image_use_unknown',
  });
  // beside the copy there may be a clone that is not told
  await expect(disksOf({ ...template, answer: COPY })).rejects.toMatchObject({ msgKey: 'image_in_use' });
});

test('silence and copies of other nodes hold up no template that lies on this node alone, and nothing that is none', async () => {
  for (const answer of [UNHEARD, COPY])
    expect(await disksOf({ metadata: TEMPLATE, answer })).toEqual(['vda', 'vdb']);
  for (const answer of [UNHEARD, COPY, CLONE])
    expect(await disksOf({ shared: true, answer })).toEqual(['vda', 'vdb']);
});

test('a template is not changed under an image whose VM is defined nowhere just now', async () => {
  const base = join(directory, 'vda.qcow2');
  imageAt('vda');
  imageAt('kept', '-b', base, '-F', 'qcow2');
  await expect(disksOf({ metadata: TEMPLATE })).rejects.toMatchObject({
    msgKey: 'image_in_use',
    params: { path: base, user: expect.stringContaining('kept.qcow2') },
  });
  expect(await disksOf({})).toEqual(['vda', 'vdb']);
});
