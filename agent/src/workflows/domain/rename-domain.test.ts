/** What a rename writes down, in an order that a power cut may break off anywhere. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { OperationContext } from '../context.ts';

const events: string[] = [];
jest.unstable_mockModule('../../libvirt/durable.ts', () => ({
  flushDefinitions: async () => {
    events.push(`flush, ${readdirSync(nvramDirectory).sort().join(' ')}`);
  },
}));
const { renameDomain } = await import('./rename-domain.ts');

let nvramDirectory: string;
const variablesOf = (name: string) => join(nvramDirectory, `${name}_VARS.fd`);
beforeEach(() => {
  nvramDirectory = mkdtempSync(join(tmpdir(), 'virtkeep-rename-'));
  writeFileSync(variablesOf('old'), 'own');
  events.length = 0;
});
afterEach(() => rmSync(nvramDirectory, { recursive: true }));

function renamed(os: string, name = 'new'): Promise<void> {
  const domain = {
    uuid: 'id',
    name: 'old',
    xml: async () => `<domain><name>old</name><uuid>id</uuid>${os}</domain>`,
    isActive: async () => false,
    isPersistent: async () => true,
    hasManagedSave: async () => false,
    snapshots: async () => [],
    rename: async () => {
      events.push(`rename, ${readdirSync(nvramDirectory).sort().join(' ')}`);
    },
  };
  const libvirt = { domainByUuid: async () => domain, domains: async () => [domain] };
  const saveDirectory = join(nvramDirectory, 'save');
  const dependencies = { libvirt: () => libvirt, nvramDirectory, saveDirectory } as unknown as Parameters<
    typeof renameDomain
  >[0];
  const context = {
    effects: { begin: () => events.push('declare') },
    step: (_name: string, work: () => Promise<unknown>) => work(),
    warn: (text: string) => events.push(text),
    commit: () => events.push('commit'),
  } as unknown as OperationContext;
  return renameDomain(dependencies, { domainId: 'id', name })(context);
}

test('the definition is flushed before the former name of the variables goes, and before the commit', async () => {
  await renamed("<os firmware='efi'/>");
  const both = 'new_VARS.fd old_VARS.fd';
  expect(events).toEqual(['declare', `rename, ${both}`, `flush, ${both}`, 'commit']);
  expect(existsSync(variablesOf('old'))).toBe(false);
  expect(readFileSync(variablesOf('new'), 'utf8')).toBe('own');
});

test('variables that lie under the new name are never taken, also by a VM that has none yet', async () => {
  writeFileSync(variablesOf('new'), 'of another');
  const refused = expect.objectContaining({ msgKey: 'file_exists', params: { path: variablesOf('new') } });
  await expect(renamed("<os firmware='efi'/>")).rejects.toEqual(refused);
  rmSync(variablesOf('old'));
  await expect(renamed("<os firmware='efi'/>")).rejects.toEqual(refused);
  expect(events).toEqual([]);
  expect(readFileSync(variablesOf('new'), 'utf8')).toBe('of another');
});

test.each([
  ['of its own choice', `<os><nvram>/elsewhere/old_VARS.fd</nvram></os>`],
  ['of none', '<os/>'],
  ['without variables', "<os firmware='efi'><loader stateless='yes'/></os>"],
])('a VM with firmware %s leaves files alone that go by names', async (_what, os) => {
  writeFileSync(variablesOf('new'), 'of another');
  await renamed(os);
  expect(events).toContain('commit');
  expect(readFileSync(variablesOf('new'), 'utf8')).toBe('of another');
  expect(readFileSync(variablesOf('old'), 'utf8')).toBe('own');
});
