import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { Claims } from '../../claims.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { findUses } from './find-uses.ts';

const ID = '11111111-2222-4333-8444-555555555555';
const TOO_DEEP = `${'<a>'.repeat(70)}${'</a>'.repeat(70)}`;

let directory: string;
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'uses-')));
  writeFileSync(join(directory, 'layer'), '');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

interface Shown {
  active: boolean;
  /** What its definition bears besides. */
  metadata?: string;
  /** The disk stands in a saved state alone. */
  isSaved?: boolean;
}

/** A domain with one disk. */
function domainWith({ active, metadata = '', isSaved = false }: Shown) {
  const disk = `<disk type='file' device='disk'><source file='${join(directory, 'layer')}'/><target dev='vda'/></disk>`;
  const definition = (devices: string) =>
    `<domain type='kvm'><name>vm</name><uuid>${ID}</uuid><metadata>${metadata}</metadata><memory>1</memory>` +
    `<os><type>hvm</type></os><devices>${devices}</devices></domain>`;
  const state = {
    name: 's',
    xml: async () =>
      `<domainsnapshot><name>s</name><creationTime>1</creationTime>${definition(disk)}</domainsnapshot>`,
  };
  return {
    uuid: ID,
    name: 'vm',
    isActive: async () => active,
    xml: async () => definition(isSaved ? '' : disk),
    hasManagedSave: async () => false,
    snapshots: async () => (isSaved ? [state] : []),
  };
}

async function useOfLayer(shown: Shown) {
  const pool = samplePool('one', { path: directory });
  const dependencies = {
    libvirt: () => ({ domains: async () => [domainWith(shown)] }) as unknown as Libvirt,
    pools: async () => [pool],
    claims: new Claims(),
    cloneOf: async () => undefined,
  };
  const thing = { kind: 'file', poolId: pool.id, path: 'layer' } as const;
  const [answer] = await findUses(dependencies, [thing], AbortSignal.timeout(240_000));
  return answer;
}

const BY = { domainId: ID, domainName: 'vm' };

test('a file of a VM that runs counts as in use now, also where its definition cannot be read', async () => {
  expect(await useOfLayer({ active: true })).toEqual({ ...BY, active: true });
  const metadata = `<x:y xmlns:x='urn:x'>${TOO_DEEP}</x:y>`;
  expect(await useOfLayer({ active: true, metadata })).toEqual({ ...BY, active: true });
  expect(await useOfLayer({ active: false, metadata })).toEqual({ ...BY, active: false });
});

test('a file that only a saved state names is not in use now', async () => {
  expect(await useOfLayer({ active: true, isSaved: true })).toEqual({ ...BY, active: false });
  expect(await useOfLayer({ active: false })).toEqual({ ...BY, active: false });
});
