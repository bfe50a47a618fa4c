import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { type RemoveDependencies, removeDomain } from './remove-domain.ts';

const nvramDirectory = mkdtempSync(join(tmpdir(), 'vk-remove-'));
afterAll(() => rmSync(nvramDirectory, { recursive: true }));

const DOMAIN = '11111111-2222-4333-8444-555555555555';
const OTHER = '99999999-2222-4333-8444-555555555555';
const XML = `<domain type='kvm'><name>web</name><uuid>${DOMAIN}</uuid><memory>1</memory><vcpu>1</vcpu><os><type>hvm</type></os><devices/></domain>`;

test('copies of the firmware of former saved states go with a VM that keeps its disks', async () => {
  const copy = (uuid: string) => join(nvramDirectory, `virtkeep_${uuid}_s1.tpm.tar`);
  for (const uuid of [DOMAIN, OTHER]) writeFileSync(copy(uuid), 'state');
  const domain = {
    uuid: DOMAIN,
    name: 'web',
    isActive: async () => false,
    snapshots: async () => [],
    xml: async () => XML,
    undefine: async () => {},
  };
  const libvirt = { domain: () => domain, domains: async () => [domain] };
  const declared: Effect[] = [];
  const context = {
    signal: new AbortController().signal,
    warn: () => {},
    step: (_name: string, work: () => unknown) => work(),
    commit: () => {},
    effects: { begin: (effect: Effect) => void declared.push(effect) },
  } as unknown as OperationContext;
  const dependencies = { libvirt: () => libvirt, nvramDirectory } as unknown as RemoveDependencies;
  await removeDomain(dependencies, { domainId: DOMAIN, full: false, force: false })(context);
  expect(declared).toEqual([{ type: 'orphaned_files', domainId: DOMAIN, paths: [copy(DOMAIN)] }]);
});
