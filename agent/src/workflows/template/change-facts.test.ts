import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { readChangeFacts } from './change-facts.ts';
import { planChange } from './change-plan.ts';

const TEMPLATE = '11111111-2222-4333-8444-555555555555';
const FIRST = '21111111-2222-4333-8444-555555555555';
const SECOND = '31111111-2222-4333-8444-555555555555';

let directory: string;
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'facts-')));
  mkdirSync(at('data'));
  symlinkSync(at('data'), at('link'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const at = (name: string) => join(directory, name);

function image(name: string, below?: string): void {
  const backing = below === undefined ? [] : ['-u', '-b', at(below), '-F', 'qcow2'];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...backing, at(name), '1M']);
}

function domain(uuid: string, disk: string): Domain {
  const own =
    uuid === TEMPLATE
      ? "<v:domain xmlns:v='urn:virtkeep:domain:1' template='yes' version='1'/>"
      : `<v:domain xmlns:v='urn:virtkeep:domain:1'><v:parent id='${TEMPLATE}' version='1'/></v:domain>`;
  const source = `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${at(disk)}'/><target dev='vda'/></disk>`;
  return {
    uuid,
    name: `vm-${uuid[0]}`,
    isActive: async () => false,
    hasManagedSave: async () => false,
    currentSnapshot: async () => null,
    snapshots: async () => [],
    xml: async () =>
      `<domain type='qemu'><name>vm-${uuid[0]}</name><uuid>${uuid}</uuid><metadata>${own}</metadata><devices>${source}</devices></domain>`,
  } as unknown as Domain;
}

/** The plan of the change by the first clone. */
async function planned(disks: Record<string, string>) {
  const domains = new Map(Object.entries(disks).map(([id, disk]) => [id, domain(id, disk)]));
  const libvirt = {
    domains: async () => [...domains.values()],
    domainByUuid: async (id: string) => domains.get(id),
  } as unknown as Libvirt;
  return planChange(await readChangeFacts(libvirt, FIRST, Object.keys(disks), []), 'op');
}

test.each(['data/base', 'link/base'])(
  'clones stand on the template whatever links their headers name it by: it is defined as %s',
  async base => {
    image('data/base');
    image('data/first', 'data/base');
    image('data/second', 'link/base');
    const plan = await planned({ [TEMPLATE]: base, [FIRST]: 'data/first', [SECOND]: 'link/second' });
    expect(plan).toMatchObject({
      disks: [{ to: at('data/base'), former: { path: at(base) } }],
      overlays: [
        { domainId: FIRST, to: at('data/first'), backing: { path: at(base) } },
        { domainId: SECOND, to: at('data/second'), backing: { path: at(base) } },
      ],
    });
  },
);

test('a clone whose definition names the file of the template by another link is refused', async () => {
  image('data/base');
  image('data/first', 'data/base');
  const plan = await planned({ [TEMPLATE]: 'data/base', [FIRST]: 'data/first', [SECOND]: 'link/base' });
  expect(plan).toEqual({ reasons: expect.arrayContaining(["vda of vm-3 is the template's own file"]) });
});
