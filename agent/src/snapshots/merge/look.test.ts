import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { ErrorCode, type Libvirt, LibvirtError } from '@virtkeep/node-libvirt';
import { NO_METADATA, setMetadata } from '../../domain-xml/index.ts';
import { nextStepOfAutomatic } from './automatic.ts';
import { foreignFiles, lookAt } from './look.ts';
import { nextMergeStep } from './plan.ts';

const ID = '11111111-2222-4333-8444-555555555555';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'look-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

const at = (name: string) => join(directory, name);

function image(name: string, backing?: string): string {
  const below = backing === undefined ? [] : ['-b', at(backing), '-F', 'qcow2'];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...below, at(name), '1M']);
  return at(name);
}

function domainXml(disk: string, odd = ''): string {
  const source = `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${at(disk)}'/><target dev='vda'/></disk>`;
  return `<domain type='qemu'><name>vm</name><uuid>${ID}</uuid><metadata>${odd}</metadata><memory>1</memory><os><type>hvm</type></os><devices>${source}</devices></domain>`;
}

/** A libvirt with one domain, which is off. */
function node(disk: string, managedSaveXml?: () => Promise<string>, odd = ''): Libvirt {
  const domain = {
    uuid: ID,
    name: 'vm',
    isActive: async () => false,
    isPersistent: async () => true,
    xml: async () => domainXml(disk, odd),
    currentSnapshot: async () => null,
    snapshots: async () => [],
    hasManagedSave: async () => managedSaveXml !== undefined,
    managedSaveXml,
  };
  return { domains: async () => [domain], domainByUuid: async () => domain } as unknown as Libvirt;
}

test('an overlay whose lower file is gone is left and named, and hides nothing else', async () => {
  image('disk.qcow2');
  image('lost.qcow2');
  const overlay = image('overlay.qcow2', 'lost.qcow2');
  rmSync(at('lost.qcow2'));
  const made = { overlays: [{ targetDev: 'vdb', path: overlay }] };
  const signal = AbortSignal.timeout(240_000);
  const look = await lookAt(node('disk.qcow2'), ID, new Map(), { files: made, signal });
  const goal = { name: 'virtkeep-tmp', countsAsDeletion: false };
  expect(nextStepOfAutomatic(look!.picture, goal, made)).toEqual({
    do: 'done',
    left: [`${overlay} (${at('lost.qcow2')}, which it stands on, is gone)`],
  });
  expect([...look!.picture.files.keys()]).toEqual([overlay, at('disk.qcow2')]);
});

test('what is known of a lent layer is forgotten when what it stood on is there without it', async () => {
  for (const name of ['disk.qcow2', 'named-by-nobody.top', 'named-by-nobody', 'removed']) image(name);
  // neither file of "not-mounted" is there
  const [unnamed, away, removed] = ['named-by-nobody', 'not-mounted', 'removed'].map(name => {
    return { path: at(`${name}.top`), below: at(name), mark: '12:0:0' };
  });
  const metadata = { ...NO_METADATA, lentLayers: [unnamed!, away!, removed!] };
  const [, noted] = /<metadata>(.*)<.metadata>/s.exec(setMetadata(domainXml('disk.qcow2'), metadata))!;
  const look = await lookAt(node('disk.qcow2', undefined, noted), ID, new Map());
  const step = nextMergeStep(look!.picture, { name: null, countsAsDeletion: false }, new Date());
  expect(step).toEqual({ do: 'note', metadata: { ...NO_METADATA, lentLayers: [unnamed, away] } });
});

test('a saved memory that cannot be read keeps nobody from merging', async () => {
  image('disk.qcow2');
  const refused = async () => {
    const fields = { kind: 'libvirt', code: ErrorCode.OPERATION_FAILED, domain: 10, level: 2 } as const;
    throw new LibvirtError({ ...fields, message: 'failed to read qemu header' }, 'managedSaveXml');
  };
  expect([...(await foreignFiles(node('disk.qcow2', refused))).keys()]).toEqual([at('disk.qcow2')]);
});

test('a domain that cannot be read keeps nobody from merging: what it names, and that stands on, is its own', async () => {
  image('below.qcow2');
  image('disk.qcow2', 'below.qcow2');
  const odd = `${'<a>'.repeat(100)}${'</a>'.repeat(100)}`;
  const foreign = await foreignFiles(node('disk.qcow2', undefined, odd));
  expect([...foreign]).toEqual(['disk.qcow2', 'below.qcow2'].map(name => [at(name), 'the domain vm']));
});
